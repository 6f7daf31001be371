"""Studies, and random graphs and networks for them, are as written; what is wrong is one line that names it."""

import dataclasses
import math

import numpy as np
import pytest

import tf_placer
from experiments.studies.edits import scores, told_apart, trained
from experiments.studies.random_arrays import FREE_FRACTION, random_layered_inputs
from experiments.studies.study import STUDIES, TABLES, VARIANTS, read_study
from tests.refused import refused
from tf_placer import workloads
from tf_placer.base.method_spec import Kind
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.ops.simulator import simulate
from tf_placer.search import methods

GOOD = """
title = "A study"
about = "What is compared."
evaluations = 100
cap_s = 60
seeds = [3, 4]
window = 8
quick_evaluations = 10
quick_seeds = 1
against = "shipped"
[quick_settings]
hdp = { placements = 4, landmarks = 2 }
[[row]]
workload = "inception_v3"
cluster = "k40x2"
quick = "dense_small"
[[row]]
workload = "resnet50"
cluster = "p100x2"
[[candidate]]
name = "shipped"
method = "hdp"
[[candidate]]
name = "many groups"
asks = "How many groups?"
method = "hdp"
settings = { placements = 3 }
of_units = ["num_groups"]
variant = "colocation_groups"
only = ["inception_v3 on k40x2"]
[[candidate]]
name = "elsewhere"
method = "random"
only = ["resnet50 on p100x2"]
"""


def read(tmp_path, text):
    (tmp_path / "study.toml").write_text(text)
    return read_study(tmp_path / "study.toml")


def test_what_is_written_is_read(tmp_path):
    study = read(tmp_path, GOOD)
    assert (study.name, study.seeds, study.rows[0].quick) == ("study", (3, 4), "dense_small")
    assert (study.candidates[1].of_units, study.candidates[1].asks) == (("num_groups",), "How many groups?")


def test_a_quick_study_is_of_what_stands_for_the_rows(tmp_path):
    quick = read(tmp_path, GOOD).quick()
    assert [row.name for row in quick.rows] == ["dense_small on k40x2"]
    assert (quick.evaluations, quick.seeds) == (10, (3,))
    shipped, many = quick.candidates  # the third is run elsewhere alone
    assert shipped.settings == {"placements": 4, "landmarks": 2}
    assert (many.settings, many.only) == ({"placements": 3, "landmarks": 2}, ("dense_small on k40x2",))


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_shipped_studies_are_good(path):
    study = read_study(path)
    study.quick().check()
    assert study.seeds == (100, 101, 102, 103, 104)
    assert len(study.quick().rows) == 1


def test_every_agent_joins_by_itself(monkeypatch):
    study = read_study(STUDIES / "learning.toml")
    names = [one.name for one in study.candidates]
    learned = {spec.name for spec in map(methods.find, methods.BUILT_IN) if spec.kind == Kind.LEARNED}
    assert learned | {"random", "cem", "list_schedule", "local_search", "single"} <= set(names)
    new = dataclasses.replace(methods.find("hdp"), name="newcomer")
    monkeypatch.setitem(methods._METHODS, "newcomer", new)
    assert "newcomer" in [one.name for one in read_study(STUDIES / "learning.toml").candidates]


TABLE = """
title = "A table"
source = "A paper"
methods = ["single", "random"]
once = ["single"]
evaluations = 25
cap_s = 60
seeds = [3, 4]
[published_as]
one_accelerator = "GPU"
random = "RL"
[settings.random]
[[row]]
workload = "inception_v3"
cluster = "k40x2"
quick = "dense_small"
published = { GPU = "OOM", RL = 2.5, Other = 1 }
[[row]]
workload = "resnet50"
cluster = "p100x2"
[notes]
"resnet50 on p100x2" = "Because."
"""


def test_a_table_is_read(tmp_path):
    study = read(tmp_path, TABLE)
    assert (study.name, study.evaluations, study.seeds) == ("study", 25, (3, 4))
    assert study.rows[0].published == {"GPU": math.inf, "RL": 2.5, "Other": 1.0}
    assert study.columns == ("GPU", "RL", "Other")
    assert [one.seeds_of(study.seeds) for one in study.candidates] == [(3,), (3, 4)]


def test_a_column_can_be_a_method_with_settings_of_its_own(tmp_path):
    few = '[variants]\nfew = "local_search"\n[settings.few]\nchains = 1'
    text = TABLE.replace('"random"]', '"random", "few"]').replace("[settings.random]", few)
    study = read(tmp_path, text)
    assert [one.method for one in study.candidates] == ["single", "random", "local_search"]
    with refused("no method is called 'local_serch'"):
        read(tmp_path, text.replace('few = "local_search"', 'few = "local_serch"'))
    with refused("it has no method 'fewer'"):
        read(tmp_path, text.replace('few = "local_search"', 'fewer = "local_search"'))


def test_a_quick_table_is_a_tenth_on_what_stands_for_the_rows(tmp_path):
    quick = read(tmp_path, TABLE).quick()
    assert [row.name for row in quick.rows] == ["dense_small on k40x2"]
    assert (quick.evaluations, quick.cap_s, quick.seeds) == (2, 6.0, (3,))
    assert quick.columns == ()


def test_a_thinned_table_has_the_first_seeds_and_the_named_methods_of_the_same_problems(tmp_path):
    row = "RL = 2.5, Other = 1 }"
    full = read(tmp_path, TABLE.replace(row, row + "\nsettings = { random = { batch = 2 } }"))
    thin = full.thinned(1, ["single"])
    assert (thin.seeds, [one.name for one in thin.candidates]) == ((3,), ["single"])
    assert (thin.evaluations, thin.cap_s, thin.columns) == (full.evaluations, full.cap_s, full.columns)
    assert thin.published_as == {"one_accelerator": "GPU"}  # the column of random is the paper's alone
    assert [dict(row.settings) for row in thin.rows] == [{}, {}]
    assert [one.name for one in full.thinned(names=["random", "single"]).candidates] == ["single", "random"]
    assert full.thinned() == full
    with refused("it has no candidate 'rndom'; did you mean 'random'"):
        full.thinned(0, ["rndom"])


@pytest.mark.parametrize(
    ("text", "old", "new", "told"),
    [
        (GOOD, "[3, 4]", "[3, 3]", "it has the same seed twice; give each once"),
        (GOOD, "[3, 4]", "3", "seeds is 3; give a list, each a whole number"),
        (GOOD, "window = 8", "window = 0", "window is 0; "),
        (GOOD, "cap_s = 60", "", "cap_s is missing; give"),
        (GOOD, "cap_s = 60", "cap_s = 60\nseed = 1", "unknown key seed; did you mean 'seeds' or"),
        (GOOD, '"many groups"', '"shipped"', "it has the same candidate twice; give each once"),
        (GOOD, 'against = "shipped"', 'against = "shiped"', "it has no candidate 'shiped'; did you mean 'shipped'?"),
        (GOOD, '"inception_v3"\n', '"inception_v"\n', "no workload is called 'inception_v'"),
        (GOOD, '"colocation_groups"', '"groups"', "variant of candidate 'many groups' is 'groups'; "),
        (GOOD, '["num_groups"]', '["groups_of"]', "config: method 'hdp' has no setting 'groups_of'"),
        (GOOD, '["resnet50 on p100x2"]', '["resnet50"]', "candidate 'elsewhere' is run on 'resnet50', which is no row"),
        (GOOD, "title", "[title", "it is no TOML"),
        (TABLE, '"inception_v3"', '"inception_v"', "no workload is called 'inception_v'"),
        (TABLE, '"dense_small"', '"dense_smal"', "no workload is called 'dense_smal'"),
        (TABLE, '"k40x2"', '"k40x3"', "unknown cluster preset 'k40x3'"),
        (TABLE, '["single", "random"]', '["single", "random", "rndom"]', "no method is called 'rndom'"),
        (TABLE, '["single", "random"]', '["single", "single", "random"]', "the same candidate twice"),
        (TABLE, '"resnet50 on p100x2"', '"resnet50 on p100x4"', "no row 'resnet50 on p100x4'"),
        (TABLE, 'random = "RL"', 'random = "LR"', "no column of the paper 'LR'"),
        (TABLE, 'random = "RL"', 'randm = "RL"', "no candidate 'randm'"),
        (TABLE, 'once = ["single"]', 'once = ["sngle"]', "no method 'sngle'"),
        (TABLE, "[settings.random]", "[settings.random]\nbatch = 1\nwidth = 2", "has no setting"),
        (TABLE, "RL = 2.5", "RL = -2.5", "rows[0].published[RL] is -2.5"),
        (TABLE, "RL = 2.5", 'RL = "oom"', "rows[0].published[RL] is 'oom'"),
        (TABLE, "evaluations = 25", "evaluations = 0", "evaluations is 0"),
        (TABLE, "evaluations = 25", "", "evaluations is missing"),
        (TABLE, "seeds = [3, 4]", "seeds = []", "it has no seed"),
        (TABLE, "seeds = [3, 4]", "seeds = 3", "seeds is 3; give a list"),
        (TABLE, "cap_s = 60", "cap_s = 60\ncapp = 1", "unknown key capp"),
        (TABLE, 'cluster = "p100x2"', 'clustr = "p100x2"', "rows[1].cluster is missing"),
        (TABLE, 'source = "A paper"', "source = 5", "source is 5"),
        (TABLE, "[notes]", "[notes", "it is no TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_names_file_and_word(text, old, new, told, tmp_path):
    assert old in text
    with refused() as error:
        read(tmp_path, text.replace(old, new, 1))
    message = str(error.value)
    assert told in message and str(tmp_path / "study.toml") in message
    assert "\n" not in message and ";" in message


IN_PARTS = """
[[candidate]]
name = "parts"
method = "random"
variant = "in_parts"
only = ["resnet50 on p100x2"]
"""


def test_a_row_can_have_its_batch_in_parts(tmp_path):
    text = TABLE.replace('cluster = "p100x2"', 'cluster = "p100x2"\nparts = 2') + IN_PARTS
    study = read(tmp_path, text)
    assert [row.parts for row in study.rows] == [1, 2] and study.has_parts
    assert not read(tmp_path, TABLE).has_parts
    # Where a row is whole nothing is searched in parts.
    messages = {"parts = 0": "parts is 0", "parts = true": "parts is (True|true)", "": "give the row 'parts'"}
    for wrong, told in messages.items():
        with refused(told):
            read(tmp_path, text.replace("parts = 2", wrong))


def test_a_file_that_is_not_there(tmp_path):
    with refused("No such file"):
        read_study(tmp_path / "study.toml")


UNPUBLISHED = ("go_generalization", "go_multi_task", "plain_search", "split")


def test_every_table_has_something_quick_and_that_of_a_paper_its_numbers():
    papers = {"colocrl_2017", "go_2020", "hdp_2018", "mars_2021", "placeto_2019"}
    files = sorted(TABLES.glob("*.toml"))
    assert {path.stem for path in files} == papers | set(UNPUBLISHED)
    for path in files:
        study = read_study(path)  # which also knows the names
        assert all(bool(row.published) == (path.stem not in UNPUBLISHED) for row in study.rows)
        assert 0 < len(study.quick().rows) <= len(study.rows)


def test_colocation_groups_hold_whole_units_and_cost_nothing():
    item, cluster = workloads.build("dense_small"), tf_placer.Cluster.preset("k40x2")
    shipped, grouped = (VARIANTS[name](item, cluster) for name in ("as_shipped", "colocation_groups"))
    assert grouped.num_units < shipped.num_units
    group_of_unit = np.zeros(shipped.num_units, np.int64)
    group_of_unit[shipped.unit_of_op] = grouped.unit_of_op
    np.testing.assert_array_equal(group_of_unit[shipped.unit_of_op], grouped.unit_of_op)
    rows = np.random.default_rng(0).integers(0, 2, (5, grouped.num_units)).astype(np.int32)
    rows = grouped.legalized(rows)
    coarse, fine = SimulatedEvaluator(grouped), SimulatedEvaluator(shipped)
    np.testing.assert_array_equal(
        coarse.evaluate(rows).runtime_s, fine.evaluate(rows[:, group_of_unit]).runtime_s
    )


@pytest.mark.parametrize(("num_ops", "num_devices"), [(1, 1), (2, 3), (1000, 4)])
def test_arrays_can_be_simulated(num_ops, num_devices):
    arrays = random_layered_inputs(num_ops, num_devices, seed=0)
    # The op refuses arrays that are out of range, unsorted or not in topological order.
    cost = simulate(arrays, np.zeros((1, num_ops), np.int32))
    assert cost.peak_bytes.shape == (1, num_devices)
    # One device of 8 streams is busy at least an eighth of the total work, and no longer than all of it.
    work_ns = int(arrays.compute_ns[:, 0].sum())
    assert work_ns / 8 <= int(cost.runtime_ns[0]) <= work_ns


def test_equal_seeds_give_equal_arrays():
    first, again, other = (random_layered_inputs(500, 2, seed) for seed in (3, 3, 4))
    assert all((a == b).all() for a, b in zip(*(vars(one).values() for one in (first, again)), strict=True))
    assert first.compute_ns.tolist() != other.compute_ns.tolist()


def test_shape_of_the_graph():
    arrays = random_layered_inputs(20_000, 3, seed=0)
    free = (arrays.compute_ns == 0).all(axis=1).mean()
    # 20,000 independent draws: the standard error is 0.0035.
    assert abs(free - FREE_FRACTION) < 0.015
    # A fifth of the ops are constants and read nothing; the others ask for two tensors on average, and lose
    # the few that they ask for twice or that lie before the beginning: 0.8 * 2 = 1.6 at most.
    assert 1.5 < len(arrays.consumer_op) / 20_000 < 1.6


FEATURES = 34


def test_how_well_moves_are_told_apart():
    is_gain = np.array([True, False, True, False])
    # Of the four pairs of a gain and another the gain has more in two; then in all; then in none; then ties.
    assert told_apart(np.array([3.0, 2.0, 0.0, -1.0]), is_gain) == 0.75
    assert told_apart(np.array([3.0, 0.0, 2.0, -1.0]), is_gain) == 1.0
    assert told_apart(np.array([0.0, 3.0, 1.0, 4.0]), is_gain) == 0.0
    assert told_apart(np.array([1.0, 1.0, 1.0, 1.0]), is_gain) == 0.5


def test_scores_by_hand():
    weights = np.zeros((FEATURES + 1) * 16 + 17 * 16 + 17, np.float32)
    weights[0] = 2.0
    weights[FEATURES * 16] = 1.0
    second = (FEATURES + 1) * 16
    weights[second] = 3.0
    weights[second + 16 * 16] = -1.0
    weights[-17], weights[-1] = -2.0, 0.5
    features = np.full((2, FEATURES), 7.0, np.float32)
    features[:, 0] = 0.25, -1.0
    # As in edit_scorer_cc_test.cc: h = relu(2 f + 1), g = relu(3 h - 1), 0.5 - 2 g.
    np.testing.assert_allclose(scores(weights, features), [-6.5, 0.5])


@pytest.fixture(scope="module")
def examples() -> np.ndarray:
    """A move gains where the product of two features is above 0, which neither of them tells; the features are of
    other scales than the network's."""
    random = np.random.default_rng(0)
    features = random.normal(3.0, 0.05, (6000, FEATURES))
    gain = ((features[:, 0] - 3) * (features[:, 1] - 3) > 0) * 0.01
    return np.column_stack([features, gain]).astype(np.float32)


def test_it_learns_what_no_single_feature_tells(examples):
    learned, held_out = examples[:5000], examples[5000:]
    is_gain = held_out[:, -1] > 0
    assert told_apart(scores(trained(learned, seed=0), held_out[:, :-1]), is_gain) > 0.9
    shuffled = learned.copy()
    shuffled[:, -1] = np.random.default_rng(1).permutation(shuffled[:, -1])
    assert 0.4 < told_apart(scores(trained(shuffled, seed=0), held_out[:, :-1]), is_gain) < 0.6


def test_a_seed_says_all(examples):
    few = examples[:600]
    np.testing.assert_array_equal(trained(few, seed=3), trained(few, seed=3))
    assert (trained(few, seed=3) != trained(few, seed=4)).any()
