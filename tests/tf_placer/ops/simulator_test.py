"""The simulator op: by hand, equal to the reference simulator on random problems, and on input it must refuse."""

import numpy as np
import pytest
import tensorflow as tf

from tests.logical_devices import outcomes_of
from tests.oracles.simulator import reference_simulate
from tests.tf_placer.ops.random_inputs import CHORES, random_inputs
from tests.tf_placer.ops.small_arrays import CHAIN, arrays
from tf_placer.base.arguments import InputError
from tf_placer.ops.simulator import SimulatorInputs, simulate

DIAMOND = arrays(4, [(0, 6, [1, 2]), (1, 20, [3]), (2, 30, [3]), (3, 40, [])], [10] * 4, num_devices=1)
QUEUE = arrays(4, [(0, 20, [2]), (1, 5, [3])], [0, 0, 1, 1])
LINE = [(0, 0, [1]), (1, 0, [2]), (2, 0, [3])]
# 0 makes 20 bytes, of which 1 makes 20 others for 2 and 3, which write nothing.
SHARING = arrays(4, [(0, 20, [1]), (1, 20, [2, 3])], [10, 10, 10, 10], alias_of_tensor=np.array([-1, 0]))
# 0, then 2, which makes 5 bytes, then 1, which makes 8 of the 20 of 0; 3 reads both.
OUTLIVED = arrays(4, [(0, 20, [1]), (1, 8, [3]), (2, 5, [3])], [1, 1, 10, 1], num_devices=1)
# A variable's handle of 0 bytes, its read, a view of the read in another unit.
FED = arrays(3, [(0, 20, [1]), (1, 10, [2]), (2, 30, [])], [0, 1, 1], alias_of_tensor=np.array([0, -1, -1]))
VIEW = arrays(3, [(0, 0, [1]), (1, 50, [2]), (2, 50, [])], [0, 1, 1], alias_of_tensor=np.array([-1, 0, 1]))


def outcome(inputs, *device_of_unit):
    """(runtime, peaks, starts, ends) of one placement, after the reference has confirmed them."""
    placement = np.array([device_of_unit], np.int32)
    result = tuple(field.numpy()[0].tolist() for field in simulate(inputs, placement, with_schedule=True)[:4])
    assert result == tuple(reference_simulate(inputs, placement[0]))[:4]
    return result


BY_HAND = {
    # 100 + 50. The 5 bytes live from 0 to 150, on device 0 only.
    "a chain on one device": (CHAIN, {}, (0, 0), (150, [5, 0], [0, 100], [100, 150])),
    # 100 + (10 latency + 5 bytes at 1 ns) + 50 = 165.
    "a chain over two devices": (CHAIN, {}, (0, 1), (165, [5, 5], [0, 115], [100, 165])),
    # 5 bytes at 3 bytes a nanosecond take 1.67 ns: 2. 100 + 10 + 2 + 50.
    "a transfer is rounded up": (CHAIN, {"link_bytes_per_s": np.full((2, 2), 3 * 10**9)}, (0, 1), (162,)),
    # Op 0 ends at 100, its tensor is there at 115, ops 1 and 2 run one after the other: 115 + 50 + 50.
    # Were it sent twice, op 2 would wait until 130, which changes nothing, but the peak would be 10.
    "a tensor crosses once for two consumers": (
        arrays(3, [(0, 5, [1, 2])], [100, 50, 50]), {}, (0, 1, 1), (215, [5, 5], [0, 115, 165], [100, 165, 215]),
    ),
    # Ops 0 and 1 (free) end at 0. Tensor 0: 0 to 10 + 20 = 30. Tensor 1 queues: 30 to 30 + 10 + 5 = 45.
    # Op 2 runs from 30 to 31, op 3 from 45 to 46. At 30 both copies are on device 1: 20 + 5.
    "transfers of a channel queue": (QUEUE, {}, (0, 0, 1, 1), (46, [25, 25], [0, 0, 30, 45], [0, 0, 31, 46])),
    # As above, but tensor 1 goes from device 1 to 0: on a channel of its own it arrives at 15, on a shared one at 45.
    "two directions, two channels": (QUEUE, {}, (0, 1, 1, 0), (None, None, [0, 0, 30, 15])),
    "two directions, one channel": (
        QUEUE, {"channel_of_link": np.array([[-1, 3], [3, -1]])}, (0, 1, 1, 0), (None, None, [0, 0, 30, 45]),
    ),
    # Op 0 ends at 10 and sends (10 + 5); op 1 keeps device 0 busy from 10 to 110; op 2 runs 25 to 32.
    "a transfer overlaps computation": (
        arrays(3, [(0, 5, [2])], [10, 100, 7]), {}, (0, 0, 1), (110, [5, 5], [0, 10, 25], [10, 110, 32]),
    ),
    # Three ops of 10 on two streams: two at 0, the third at 10.
    "streams run at once": (
        arrays(3, [], [10] * 3, 1), {"streams": np.array([2])}, (0, 0, 0), (20, [0], [0, 0, 10], [10, 10, 20]),
    ),
    # All ready at 0 on one device: by index; with priorities op 2 (-1), then 0 and 1.
    "by index": (arrays(3, [], [10] * 3, 1), {}, (0, 0, 0), (30, [0], [0, 10, 20])),
    "priority before index": (
        arrays(3, [], [10] * 3, 1), {"priority": np.array([5, 5, -1])}, (0, 0, 0), (30, [0], [10, 20, 0]),
    ),
    # Op 1 keeps the device from 0 to 100; ops 0, 2, 3 are free and do not wait for it.
    "free ops complete in a cascade on a busy device": (
        arrays(4, [(0, 8, [2]), (2, 8, [3])], [0, 100, 0, 0], 1), {}, (0, 0, 0, 0), (100, [0], [0] * 4, [0, 100, 0, 0]),
    ),
    # Op 0 (6 bytes out) feeds 1 and 2, those (20 and 30 out) feed 3 (40 out, nobody reads). Resident 1. At 0: 1 + 6.
    # At 10 op 1: + 20 = 27. At 20 op 2: + 30 = 57. At 30 the 6 are freed and 40 allocated: 1 + 20 + 30 + 40 = 91.
    "memory of a diamond": (DIAMOND, {"resident_bytes": np.array([1, 0, 0, 0])}, (0, 0, 0, 0), (40, [91])),
    # A chain of 10-byte tensors: at each moment the op's input and output live, never three.
    "what is freed makes room at the same moment": (
        arrays(4, [(0, 10, [1]), (1, 10, [2]), (2, 10, [3])], [5] * 4, 1), {}, (0, 0, 0, 0), (20, [20]),
    ),
    # Op 0 sends 50 bytes (10 to 70). Op 1 allocates 7 bytes on device 0 from 10 to 80: 57 together.
    "a source copy lives until its transfer has ended": (
        arrays(3, [(0, 50, [2]), (1, 7, [])], [10, 70, 5]), {}, (0, 0, 1), (80, [57, 50], [0, 10, 70], [10, 80, 75]),
    ),
    "a unit moves its ops together": (
        CHAIN, {"unit_of_op": np.array([0, 0]), "resident_bytes": np.array([9])}, (1,), (150, [0, 14], [0, 100]),
    ),
    # 2^48 + 1 ns on each of two ops and 2^40 + 1 bytes at 10^9 a second: 2^40 + 1 ns and 10 of latency.
    "large numbers stay exact": (
        arrays(2, [(0, 2**40 + 1, [1])], [2**48 + 1] * 2), {}, (0, 1), (2 * (2**48 + 1) + 10 + 2**40 + 1,),
    ),
    "no ops": (arrays(0, [], []), {}, (), (0, [0, 0], [], [])),
    # What has an input's memory takes none where it is made.
    "shared": (SHARING, {}, (0, 0, 0, 0), (None, [20, 0])),
    # The copy that 3 receives takes its own, and what it is a copy of stays until 2 has ended.
    "shared and received": (SHARING, {}, (0, 0, 0, 1), (None, [20, 20])),
    # What 1 makes has the memory of the copy that 1 received.
    "a received copy is shared": (SHARING, {}, (1, 0, 0, 0), (None, [20, 20])),
    "memory of its own": (OUTLIVED, {}, (0, 0, 0, 0), (None, [33])),
    # All 20 of 0, until 3 has ended.
    "what is shared lives as long as what shares it": (
        OUTLIVED, {"alias_of_tensor": np.array([-1, 0, -1])}, (0, 0, 0, 0), (None, [25]),
    ),
    # 20 that stay, and 10 and 30 of ops 1 and 2; a copy of the 20 is there until op 1 has ended.
    "an input stays": (FED, {}, (0, 0, 0), (None, [60, 0])),
    "a copy of an input goes": (FED, {}, (0, 1, 1), (None, [20, 40])),
    "a view of an input": (FED, {"alias_of_tensor": np.array([0, 0, -1])}, (0, 0, 0), (None, [50, 0])),
    "a view of what holds nothing": (VIEW, {}, (0, 0, 0), (None, [0, 0])),
    "a received view of what holds nothing": (VIEW, {}, (0, 0, 1), (None, [0, 50])),
    # Op 0 elsewhere until 400, its tensor there at 410; op 1, free or not, hands on to op 2. Op 3 runs meanwhile.
    "no op is dispatched before its tensor is there": (
        arrays(4, LINE[:2], [400, 0, 50, 50]), {"dispatch_ns": np.array([0, 100])}, (0, 1, 1, 1),
        (560, None, [0, 410, 410, 0]),
    ),
    "nor an op behind it": (
        arrays(4, LINE[:2], [400, 50, 50, 50]), {"dispatch_ns": np.array([0, 100])}, (0, 1, 1, 1),
        (660, None, [0, 410, 560, 0]),
    ),
    # A step is the later of the device's time and the host's: hidden, as the host is ahead after the first;
    "a slow device": (arrays(4, LINE, [1000] * 4, 1), {"dispatch_ns": np.array([100])}, (0,) * 4, (4100,)),
    # bound by the host: the last is dispatched at 400;
    "a slow host": (arrays(4, LINE, [10] * 4, 1), {"dispatch_ns": np.array([100])}, (0,) * 4, (410,)),
    # what costs nothing is no kernel;
    "free ops": (arrays(4, LINE, [0, 10, 0, 10], 1), {"dispatch_ns": np.array([100])}, (0,) * 4, (210,)),
    # dispatched while the first ran.
    "ahead": (arrays(4, LINE, [1000, 10, 10, 10], 1), {"dispatch_ns": np.array([100])}, (0,) * 4, (1130,)),
    # Both cross one after the other, at 110 and 120; each is there 1000 ns later.
    "tensors are handed over side by side": (
        arrays(4, [(0, 0, [2]), (1, 0, [3])], [100, 100, 1, 1], streams=np.array([2, 2])),
        {"link_tensor_ns": np.full((2, 2), 1000)}, (0, 0, 1, 1), (None, None, [0, 0, 1110, 1120]),
    ),
    # More chores than ops: five outputs, all read elsewhere, sent from 10 to 110, then each 10 ns of the channel.
    "a device with many streams sends many tensors at once": (
        arrays(2, [(0, 0, [1])] * 5, [10, 10], streams=np.array([8, 1])),
        {"link_send_ns": np.full((2, 2), 100), "link_bytes_per_s": np.full((2, 2), 10**15)}, (0, 1),
        (None, None, [0, 160]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case):
    graph, changes, placement, expected = BY_HAND[case]
    found = outcome(SimulatorInputs(**graph | changes), *placement)
    assert all(value in (None, other) for value, other in zip(expected, found, strict=False)), found


def test_no_placements():
    inputs, none = SimulatorInputs(**CHAIN), np.zeros((0, 2), np.int32)
    nothing = simulate(inputs, none)
    assert nothing.runtime_ns.shape == (0,) and nothing.peak_bytes.shape == (0, 2)
    assert simulate(inputs, none, with_schedule=True).start_ns.shape == (0, 2)


def test_when_a_tensor_is_sent_crosses_and_is_received():
    # Sending takes 3 ns and 1 a byte, crossing 10 and 1 a byte, receiving 2: 100, 108, 123, 125.
    chores = {"link_send_ns": 3, "link_send_ps_per_byte": 1000, "link_receive_ns": 2}
    inputs = SimulatorInputs(**{**CHAIN, **{name: np.full((2, 2), value) for name, value in chores.items()}})
    step = simulate(inputs, [[0, 1], [1, 1]], with_legs=True)
    assert step.leg_start_ns.numpy()[0, :, 0].tolist() == [[-1, 100], [-1, 108], [-1, 123]]
    assert step.leg_end_ns.numpy()[0, :, 0].tolist() == [[-1, 108], [-1, 123], [-1, 125]]
    assert (step.leg_start_ns.numpy()[1] == -1).all() and (step.leg_end_ns.numpy()[1] == -1).all()


def test_inside_a_function_with_static_shapes():
    inputs = SimulatorInputs(**CHAIN)

    @tf.function
    def step(device_of_unit):
        cost = simulate(inputs, device_of_unit)
        schedule = simulate(inputs, device_of_unit, with_schedule=True)
        assert cost.runtime_ns.shape == (3,) and cost.peak_bytes.shape == (3, 2)
        assert schedule.end_ns.shape == (3, 2)
        assert simulate(inputs, device_of_unit, with_legs=True).leg_end_ns.shape == (3, 3, 1, 2)
        return cost.runtime_ns

    assert step(tf.constant([[0, 0], [0, 1], [1, 1]])).numpy().tolist() == [150, 165, 150]


def test_two_problems_in_turn_are_not_mixed_up():
    slow = SimulatorInputs(**CHAIN | {"compute_ns": np.full((2, 2), 1000)})
    fast = SimulatorInputs(**CHAIN)
    placement = np.zeros((1, 2), np.int32)
    assert [int(simulate(i, placement).runtime_ns[0]) for i in (slow, fast, slow)] == [2000, 150, 2000]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([(0, 5, [1]), (1, 0, [])], "is of a tensor of 0 bytes"),
        ([(0, 5, []), (1, 5, [])], "is not an input of the tensor's producer, nor the tensor itself"),
    ],
)
def test_refuses_to_share_where_there_is_nothing(tensors, message):
    graph = arrays(2, tensors, [1, 1], alias_of_tensor=np.array([-1, 0]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"alias_of_tensor\[1\] {message}"):
        simulate(SimulatorInputs(**graph), np.zeros((1, 2), np.int32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit_of_op": [0, 2]}, r"unit_of_op\[1\] is 2, expected a unit in \[0, 2\)"),
        ({"compute_ns": [[1, 1], [1, -1]]}, r"compute_ns\[3\] is negative"),
        ({"compute_ns": [[1, 1]]}, r"compute_ns: expected shape \[2,2\], got \[1,2\]"),
        ({"compute_ns": [[2**50, 1], [1, 1]]}, "exceeds 2\\^50 ns"),
        ({"priority": [1]}, r"priority: expected shape \[2\], got \[1\]"),
        ({"tensor_producer": [2]}, r"tensor_producer\[0\] is not an op"),
        ({"tensor_bytes": [-1]}, r"tensor_bytes\[0\] is negative"),
        ({"tensor_bytes": [2**62]}, "exceeds 2\\^"),
        ({"alias_of_tensor": [1]}, r"alias_of_tensor\[0\] is not a tensor, nor -1"),
        ({"alias_of_tensor": [-2]}, r"alias_of_tensor\[0\] is not a tensor, nor -1"),
        ({"alias_of_tensor": [-1, -1]}, r"alias_of_tensor: expected shape \[1\], got \[2\]"),
        ({"consumer_offset": [0, 2]}, "must begin with 0 and end with the number of consumers, 1"),
        ({"consumer_op": [0]}, "topological order"),
        ({"consumer_op": [2]}, "topological order"),
        ({"resident_bytes": [-1, 0]}, r"resident_bytes\[0\] is negative"),
        ({"streams": [1, 0]}, r"streams\[1\] is below 1"),
        ({"link_latency_ns": [[0, -1], [0, 0]]}, r"link_latency_ns\[1\] is negative"),
        ({"link_bytes_per_s": [[1, 1], [0, 1]]}, r"link_bytes_per_s\[2\] is below 1"),
        ({"channel_of_link": [[-1, -1], [0, -1]]}, r"channel_of_link\[1\]"),
    ],
)
def test_refuses_wrong_arrays(change, message):
    inputs = SimulatorInputs(**CHAIN | {name: np.array(value) for name, value in change.items()})
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        simulate(inputs, np.zeros((1, 2), np.int32))


def test_refuses_too_many_devices():
    square = dict.fromkeys(("link_latency_ns", "link_bytes_per_s", "channel_of_link"), np.ones((65, 65), int))
    inputs = SimulatorInputs(**arrays(2, [], [1, 1], num_devices=65, **square))
    with pytest.raises(tf.errors.InvalidArgumentError, match="1 to 64 devices, got 65"):
        simulate(inputs, np.zeros((1, 2), np.int32))


@pytest.mark.parametrize(
    ("device_of_unit", "message"),
    [
        ([[0, 2]], r"device_of_unit\[0,1\]: expected a device in \[0, 2\), got 2"),
        ([[0, 0], [-1, 0]], r"device_of_unit\[1,0\]"),
        ([[0, 0, 0]], r"resident_bytes: expected shape \[3\], got \[2\]"),
        ([0, 0], "[Ss]hape must be rank 2|device_of_unit: expected a matrix"),
    ],
)
def test_refuses_wrong_placements(device_of_unit, message):
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
        simulate(SimulatorInputs(**CHAIN), np.array(device_of_unit, np.int32))


@pytest.mark.parametrize("priority", [[0] * 5, [0, 1, 1, 0, 0]])
def test_a_device_may_run_the_newest_first(priority):
    # Op 0 makes ops 1 and 2 ready at 10, and op 1 or 2 whichever is first makes 3 or 4.
    graph = arrays(5, [(0, 0, [1, 2]), (1, 0, [3]), (2, 0, [4])], [10] * 5, num_devices=1)
    graph["priority"] = np.array(priority)
    place = np.zeros((1, 5), np.int32)
    oldest = simulate(SimulatorInputs(**graph), place, with_schedule=True).start_ns.numpy()[0]
    newest = simulate(
        SimulatorInputs(**graph, newest_first=np.array([True])), place, with_schedule=True
    ).start_ns.numpy()[0]
    assert newest.tolist() == [0, 30, 10, 40, 20]
    assert oldest.tolist() == ([0, 10, 20, 30, 40] if not any(priority) else [0, 10, 30, 20, 40])


@pytest.mark.parametrize(
    ("newest_first", "priority", "starts"),
    [
        (False, [0] * 5, [0, 10, 30, 40, 40]),  # at once: from 20 to 30
        (True, [0] * 5, [40, 0, 10, 20, 50]),  # behind 2, which was ready with it, and 3, but before 0
        (True, [0, 0, 1, 0, 0], [20, 0, 30, 40, 30]),  # with its producer's priority before 2
    ],
)
def test_a_send_waits_among_the_ops_where_the_newest_runs_first(newest_first, priority, starts):
    # Op 4 is elsewhere and waits for op 1, as op 2 does, which op 3 waits for; op 0 has to do with nothing.
    graph = arrays(5, [(1, 0, [2, 4]), (2, 0, [3])], [10] * 5)
    changes = {"link_send_ns": np.full((2, 2), 10), "newest_first": np.array([newest_first, False])}
    changes["priority"] = np.array(priority)
    assert outcome(SimulatorInputs(**graph | changes), 0, 0, 0, 0, 1)[2] == starts


def test_inputs_refuse_fractions_and_ranks():
    with pytest.raises(InputError, match="compute_ns: expected whole numbers"):
        SimulatorInputs(**CHAIN | {"compute_ns": np.full((2, 2), 0.5)})
    with pytest.raises(InputError, match="streams: expected 1 dimensions"):
        SimulatorInputs(**CHAIN | {"streams": np.ones((1, 2), int)})
    with pytest.raises(InputError, match="priority: expected whole numbers that fit int32"):
        SimulatorInputs(**CHAIN | {"priority": np.array([2**31, 0])})


def test_inputs_are_copies():
    compute_ns = np.full((2, 2), 5)
    inputs = SimulatorInputs(**CHAIN | {"compute_ns": compute_ns})
    compute_ns[:] = 7
    assert (inputs.compute_ns == 5).all() and not inputs.compute_ns.flags.writeable


def test_result_does_not_depend_on_the_number_of_threads():
    one, four = (outcomes_of("tests.tf_placer.ops.threads_process", threads) for threads in ("1", "4"))
    assert one == four and len(set(one["runtime_ns"])) == 33  # 33 different placements, 33 different runtimes


NUM_PROBLEMS = 2400
NUM_CHUNKS = 8
PLACEMENTS_PER_PROBLEM = 3


def check_equal(seed, inputs, device_of_unit, *priority_of_op):
    """Compares the op with the reference on placements, which may have priorities of their own."""
    cost = simulate(inputs, device_of_unit, *priority_of_op)
    schedule = simulate(inputs, device_of_unit, *priority_of_op, with_schedule=True)
    expected = [reference_simulate(inputs, *row) for row in zip(device_of_unit, *priority_of_op, strict=True)]
    for name in ("runtime_ns", "peak_bytes", "start_ns", "end_ns"):
        values = [getattr(one, name) for one in expected]
        np.testing.assert_array_equal(getattr(schedule, name), values, f"seed {seed}")
    for name in ("runtime_ns", "peak_bytes"):
        np.testing.assert_array_equal(getattr(cost, name), getattr(schedule, name), f"seed {seed}")
    return schedule, expected


@pytest.mark.medium
@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
def test_op_equals_reference(chunk):
    for seed in range(chunk, NUM_PROBLEMS, NUM_CHUNKS):
        rng, message = np.random.default_rng(seed), f"seed {seed}"
        inputs = random_inputs(rng)
        shape = (PLACEMENTS_PER_PROBLEM, inputs.num_units)
        device_of_unit = rng.integers(0, inputs.num_devices, shape, np.int32)
        device_of_unit[0] = 0
        schedule, expected = check_equal(seed, inputs, device_of_unit)
        step = simulate(inputs, device_of_unit, with_legs=True)
        for got, also in zip(step[:4], schedule[:4], strict=True):
            np.testing.assert_array_equal(got, also, message)
        for got, side in ((step.leg_start_ns, 0), (step.leg_end_ns, 1)):
            legs = np.full((3, len(inputs.tensor_bytes), inputs.num_devices), -1)
            for row, one in zip(got, expected, strict=True):
                legs[:] = -1
                for where, times in one.legs.items():
                    legs[where] = times[side]
                np.testing.assert_array_equal(row, legs, message)


@pytest.mark.parametrize("chunk", range(4))
def test_op_equals_reference_where_placements_have_priorities(chunk):
    for seed in range(chunk, 800, 4):
        rng = np.random.default_rng(seed)
        inputs = random_inputs(rng)
        device_of_unit = rng.integers(0, inputs.num_devices, (3, inputs.num_units), np.int32)
        priority_of_op = rng.choice([-(2**31), -1, 0, 1, 2**31 - 1], (3, inputs.num_ops)).astype(np.int32)
        check_equal(seed, inputs, device_of_unit, priority_of_op)


@pytest.mark.medium
def test_random_problems_cover_what_they_must():
    """Otherwise equality would prove less than it says."""
    problems = [random_inputs(np.random.default_rng(seed)) for seed in range(NUM_PROBLEMS)]
    assert {p.num_devices for p in problems} == {1, 2, 3, 4}
    assert {p.num_units for p in problems} == set(range(1, 41))
    assert any(p.streams.max() > 3 for p in problems)
    for uniform in (True, False):  # the op has a loop of its own for each
        newest = [p.newest_first for p in problems if (np.ptp(p.priority) == 0) == uniform and p.num_ops > 5]
        assert any(n.all() for n in newest) and any(not n.any() for n in newest)
    assert {len(set(p.priority)) > 1 for p in problems} == {True, False}
    assert any((p.compute_ns == 0).any(1).sum() > (p.compute_ns == 0).all(1).sum() for p in problems)
    off_diagonal = [p.channel_of_link[~np.eye(p.num_devices, dtype=bool)] for p in problems]
    assert sum(len(set(c)) < len(c) for c in off_diagonal) > 100  # shared channels
    assert {p.join_ns.any() for p in problems} == {True, False}
    fed = [p.dispatch_ns.any() for p in problems]
    handed_over = [p.link_tensor_ns.any() for p in problems]
    assert len(set(zip(fed, handed_over, strict=True))) == 4
    assert {sum(np.any(getattr(p, name)) for name in CHORES) for p in problems} == {0, 1, 2, 3, 4}
    assert {0, 1, 2, 5} <= {fanout for p in problems for fanout in np.diff(p.consumer_offset)}


def test_the_problems_priority_breaks_ties_only():
    # Three ops of 10, all ready at 0. The plan puts op 0 last; of 1 and 2, equal to it, the problem prefers 2.
    graph = arrays(3, [], [10, 10, 10], num_devices=1, priority=np.array([0, 2, 1]))
    inputs, place = SimulatorInputs(**graph), np.zeros((2, 3), np.int32)
    starts = simulate(inputs, place, [[5, 4, 4], [0, 0, 0]], with_schedule=True).start_ns.numpy().tolist()
    assert starts == [[20, 10, 0], [0, 20, 10]]


def test_equal_priorities_decide_nothing():
    rng = np.random.default_rng(3)
    inputs = random_inputs(rng)
    place = rng.integers(0, inputs.num_devices, (4, inputs.num_units), np.int32)
    without, with_equal = (
        simulate(inputs, place, *given, with_schedule=True)
        for given in ([], [np.full((4, inputs.num_ops), 9)])
    )
    np.testing.assert_array_equal(without.end_ns, with_equal.end_ns)


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (1, 2, 1)])
def test_refuses_other_shapes(shape):
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=r"priority_of_op|rank 2"):
        simulate(SimulatorInputs(**CHAIN), np.zeros((1, 2), np.int32), np.zeros(shape, np.int32))
