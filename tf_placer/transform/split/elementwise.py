"""Rules of ops that work element by element, and of sums that go through them."""

from __future__ import annotations

from tf_placer.transform.split.states import WHOLE, NotSplit, OpStates, Part, Split, State, Sum


def elementwise(op: OpStates, argument: str = "") -> Split:
    """Element by element with broadcasting: examples stay where they are.

    An operand of length 1 along the examples is whole; a longer one is read in parts.
    """
    del argument
    rank = max((len(shape) for shape in op.shapes), default=0)
    from_end: list[tuple[int, int]] = []
    for state, shape in zip(op.states, op.shapes, strict=True):
        if isinstance(state, Part):
            from_end.append((len(shape) - state.axis, state.outer))
    if not from_end:
        raise NotSplit("it is not linear in its addends")
    if len(op.out_shapes[0]) != rank:  # two shapes that do not fit are not equal, in one word
        raise NotSplit("its operands have shapes that do not fit")
    distance, outer = max(from_end, key=from_end.count)
    given = Part(rank - distance, outer)
    length = op.out_shapes[0][given.axis]
    takes: list[State] = []
    for shape in op.shapes:
        axis = len(shape) - distance
        takes.append(Part(axis, outer) if axis >= 0 and shape[axis] == length else WHOLE)
    return Split(tuple(takes), (given,) * len(op.out_shapes))


def linear(op: OpStates, argument: str = "") -> Split:
    """Element by element, and linear: addends stay addends. ``moves`` also keeps maxima and the like."""
    total = op.all_sums()
    if total is not None and not op.is_in_parts and (total == Sum() or argument == "moves"):
        return Split(op.states, (total,))
    return elementwise(op)


def each(op: OpStates, argument: str = "") -> Split:
    """Hands every input on as it is."""
    del argument
    return Split(op.states, op.states)


def as_identity(op: OpStates, argument: str = "") -> Split:
    """Checks a shape that the program's graph has shown: the copies have another."""
    del argument
    return Split(op.states, op.states, op_type="Identity")


def add(op: OpStates, argument: str = "") -> Split:
    """A sum or difference: of addends, the copies' sums are addends again."""
    del argument
    if op.all_sums() == Sum():
        if any(shape != op.out_shapes[0] for shape in op.shapes):
            raise NotSplit("its addends have different shapes")
        return Split(op.states, (Sum(),))
    return elementwise(op)


def scale(op: OpStates, argument: str = "") -> Split:
    """A product (``both``) or quotient (``first``): addends times or over a whole value are addends."""
    is_product = argument == "both"
    divides = op.out_dtypes[0].is_floating or op.out_dtypes[0].is_complex
    is_first = op.states == (Sum(), WHOLE) and (is_product or divides)
    if is_first or (is_product and op.states == (WHOLE, Sum())):
        return Split(op.states, (Sum(),))
    return elementwise(op)


def cast(op: OpStates, argument: str = "") -> Split:
    """A change of type: addends may become wider, and are joined before they become narrower."""
    del argument
    source, target = op.dtypes[0], op.out_dtypes[0]
    is_wider = source.is_floating and target.is_floating and target.size >= source.size
    if op.states == (Sum(),) and is_wider:
        return Split(op.states, op.states)
    return elementwise(op)


def select(op: OpStates, argument: str = "") -> Split:
    """``Select``, whose condition may be a vector: one for each row."""
    del argument
    if len(op.shapes[0]) == 1 and len(op.shapes[1]) > 1:
        rows = {state for state in op.states if isinstance(state, Part)}
        if len(rows) != 1 or next(iter(rows)).axis != 0:
            raise NotSplit("its condition is one for each row, and the rows are not in parts")
        row = next(iter(rows))
        return Split((row,) * 3, (row,))
    if len(op.shapes[0]) == 0 and len(op.shapes[1]) > 0:
        state = next((s for s in op.states[1:] if isinstance(s, Part)), None)
        if state is None:
            raise NotSplit("its condition is made of all examples")
        return Split((WHOLE, state, state), (state,))
    return elementwise(op)


def bias(op: OpStates, argument: str = "") -> Split:
    """``BiasAdd``: a vector over channels is added to every row."""
    del argument
    state, rank = op.part(0), len(op.shapes[0])
    channel = 1 if op.attr("data_format").s == b"NCHW" else rank - 1
    if state is None or state.axis == channel:
        raise NotSplit("its channels are in parts")
    return Split((state, WHOLE), (state,))
