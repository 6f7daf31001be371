"""Wrong values for a flag: those that follow from its type, and those that only its name tells."""

from collections.abc import Iterator, Mapping, Sequence

from absl import flags


def wrong_values(flag: flags.Flag, of_name: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Values that a flag must refuse.

    Args:
      flag: any but a text or a list has values that are wrong whatever it means.
      of_name: name of each text or list -> values that are wrong because of what it means.

    Raises:
      KeyError: a text or a list that ``of_name`` lacks.
    """
    parser = flag.parser
    if flag.boolean:
        yield "maybe"
        return
    yield ""
    if isinstance(parser, flags.IntegerParser | flags.FloatParser):
        yield from ("a", "1.5.1", "nan")
        if isinstance(parser, flags.IntegerParser):
            yield "1.5"
        if flag.name not in of_name:
            assert parser.lower_bound is not None, (
                f"--{flag.name}: any number is taken; give it a lower bound"
            )
            yield str(parser.lower_bound - 1)
    elif isinstance(flag, flags.EnumFlag):
        yield "nothing"
        return
    if parser.__class__ in (flags.ArgumentParser, flags.ListParser) or flag.name in of_name:
        yield from of_name[flag.name]
