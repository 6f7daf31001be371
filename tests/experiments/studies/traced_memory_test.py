"""The most bytes at once are read off a trace's records of allocations."""

import tensorflow as tf

from experiments.studies.traced_memory import readers_of, traced_peak_bytes

WORKER = "/job:worker/replica:0/task:0/device:CPU:0"


def traced(records, outputs=True):
    """A trace with these (microsecond, bytes) of each op on one device, and a second device that does nothing."""
    trace = tf.compat.v1.RunMetadata()
    device = trace.step_stats.dev_stats.add(device=WORKER)
    for name, changes in records.items():
        node = device.node_stats.add(node_name=name)
        if outputs:
            node.output.add()
        memory = node.memory.add(allocator_name="cpu")
        for micros, num_bytes in changes:
            memory.allocation_records.add(alloc_micros=micros, alloc_bytes=num_bytes)
    trace.step_stats.dev_stats.add(device="idle")
    return trace


def test_the_peak_is_of_what_is_held_at_once():
    # a holds 100 from 1 to 5; b 30 from 3 to 4; c takes 50 in the moment at which a gives back: 130, never 180.
    trace = traced({"a": [(1, 100), (5, -100)], "b": [(3, 30), (4, -30)], "c": [(5, 50)]})
    assert traced_peak_bytes(trace, {}) == {WORKER: 130, "idle": 0}


def test_a_new_value_of_a_variable_takes_the_place_of_the_old_one():
    # What an assignment keeps was there before the step, under another address; its scratch memory was not.
    trace = traced({"assign": [(1, 100), (2, 30), (3, -30)]}, outputs=False)
    assert traced_peak_bytes(trace, {})[WORKER] == 30


def test_what_a_variable_is_given_takes_the_place_of_its_value():
    # made holds 100, which scaled writes into and the variable has from 8 on: then the 100 from before are free.
    trace = traced({"made": [(1, 100)], "scaled": [], "assign": [], "late": [(9, 50), (10, -50)]})
    assign = trace.step_stats.dev_stats[0].node_stats[2]
    assign.all_start_micros, assign.all_end_rel_micros = 7, 1
    readers = {"made": ["scaled"], "scaled": ["assign"]}
    assert traced_peak_bytes(trace, readers)[WORKER] == 150
    assign.timeline_label = "assign = AssignVariableOp(v, scaled)"
    assert traced_peak_bytes(trace, readers)[WORKER] == 100
    assert traced_peak_bytes(trace, {**readers, "made": ["scaled", "late"]})[WORKER] == 150


def test_a_copy_lives_from_its_arrival_until_its_last_reader_has_ended():
    early, late, later = [(5, 7), (6, -7)], [(25, 50), (30, -50)], [(41, 60), (45, -60)]
    trace = traced({"early": early, "late": late, "later": later})
    arrivals = trace.step_stats.dev_stats.add(device=WORKER)
    copy = arrivals.node_stats.add(node_name="RecvTensor", all_start_micros=1, all_end_rel_micros=9)
    sender = "/job:worker/replica:0/task:1/device:CPU:0"
    copy.timeline_label = f"[1KB] [1Gb/s] edge_12_made_there/MatMul from {sender} to {WORKER}"
    copy.output.add().tensor_description.allocation_description.requested_bytes = 1000
    nodes = trace.step_stats.dev_stats[0].node_stats
    for node, times in zip(nodes, ((5, 1), (25, 15), (41, 4)), strict=True):
        node.all_start_micros, node.all_end_rel_micros = times
    assert traced_peak_bytes(trace, {"made_there/MatMul": ["early", "late"]})[WORKER] == 1050
    assert traced_peak_bytes(trace, {"made_there/MatMul": ["later"]})[WORKER] == 1060


def test_readers_are_told_by_name():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a")
    graph_def.node.add(name="b", input=["a:1", "^c"])
    graph_def.node.add(name="c", input=["a", "b"])
    assert readers_of(graph_def) == {"a": ["b", "c"], "b": ["c"]}
