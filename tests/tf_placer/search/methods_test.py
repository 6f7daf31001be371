"""The table of methods, settings and budgets; where searches begin, and peaks before anything runs."""

import dataclasses
import io
import math

import numpy as np
import pytest
import rich.console

import tf_placer
from tests.refused import refused
from tests.tf_placer.planners.full_devices import full_problem, sized_cluster
from tests.tf_placer.problem.small_problems import altered, branches_problem, multi_branch_problem, problem_of
from tests.tf_placer.search.other_machine import OtherMachine
from tests.tf_placer.search.small_learner import SMALL_HDP
from tf_placer import workloads
from tf_placer.__main__ import run
from tf_placer.base.method_spec import Kind, MethodSpec, Role
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.plain import RandomSearchConfig
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.memory import MOST_EXAMPLES, device_peaks, largest_batches, room_needed
from tf_placer.search.methods import Budget, configured
from tf_placer.search.round import Starts, evaluated
from tf_placer.search.search import NothingFits, search
from tf_placer.transform.split.split_batch import split_program


def test_names_are_found_and_described():
    assert {"hdp", "random", "single"} <= set(methods.names())
    assert tf_placer.methods() == methods.names()
    for name in methods.names():
        assert methods.find(name).name == name
        assert methods.find(name).summary and "\n" not in methods.find(name).summary


@pytest.mark.parametrize(
    ("name", "near"), [("hpd", "hdp"), ("rand", "random"), ("zzz", "'[a-z_]+', '[a-z_]+'")]
)
def test_an_unknown_name_gets_the_nearest_ones(name, near):
    told = f"no method is called '{name}'; (did you mean|there are [0-9]+, the nearest are) .*{near}"
    with refused(told):
        methods.find(name)


@pytest.fixture
def methods_as_they_were(monkeypatch):
    monkeypatch.setattr(methods, "_METHODS", dict(methods._METHODS))


def nothing_new(context):
    """Tries nothing new."""
    yield evaluated(context, context.problem.everything_on(0)[np.newaxis])


@pytest.mark.usefixtures("methods_as_they_were")
def test_a_registered_method_is_found_like_any_other():
    methods.register("nothing_new", nothing_new)
    assert "nothing_new" in methods.names()
    assert methods.find("nothing_new").summary == "Tries nothing new."
    with refused("method 'nothing_new' is registered already; give another name, or rep"):
        methods.register("nothing_new", nothing_new)
    methods.register("nothing_new", nothing_new, replace=True)  # a notebook's cell that is run again


@pytest.mark.usefixtures("methods_as_they_were")
def test_a_row_is_added_with_its_settings():
    spec = dataclasses.replace(
        methods.find("random"), name="thirds", default=RandomSearchConfig(batch=3), roles=frozenset()
    )
    methods.add(spec)
    result = search(multi_branch_problem(Cluster.preset("k40x2")), "thirds", budget_evaluations=7)
    assert [entry.evaluations for entry in result.history] == [3, 6, 7] and result.settings == {"batch": 3}


def test_every_role_is_taken():
    assert all(methods.having(role) for role in Role)


@pytest.mark.usefixtures("methods_as_they_were")
@pytest.mark.parametrize(
    ("name", "method", "message"),
    [
        ("hdp", nothing_new, "'hdp' comes with tf_placer; give your method another name"),
        ("a,b", nothing_new, "'a,b' is no name of a method; use small letters, digits and _"),
        ("", nothing_new, "'' is no name of a method"),
        (None, nothing_new, "None is no name of a method"),
        ("mine", lambda context: iter(()), "method 'mine' has no docstring"),
        ("mine", "hdp", "method 'mine' is 'hdp', which cannot be called"),
    ],
)
def test_what_cannot_be_registered_is_told_and_changes_nothing(name, method, message):
    before = methods.names()
    with refused(message):
        methods.register(name, method)
    assert methods.names() == before


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of a test."""

    count: int = 3
    rate: float = 0.5
    keep: bool = True
    word: str = "a"
    sizes: tuple[int, ...] = (1, 2)


SPEC = MethodSpec("a_test", Kind.CONSTRUCTIVE, "Does nothing.", lambda *given: given, Config)


def test_an_instance_is_taken_as_it_is_and_a_dict_changes_the_default():
    assert configured(SPEC) == Config()
    given = Config(count=4)
    assert configured(SPEC, given) is given
    assert configured(SPEC, {"rate": 1, "keep": False}) == Config(rate=1.0, keep=False)
    variant = dataclasses.replace(SPEC, default=Config(count=9, word="b"))
    assert configured(variant) == Config(count=9, word="b")
    assert configured(variant, {"word": "c"}) == Config(count=9, word="c")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (3, "config is 3; give a Config, the settings of method 'a_test', or a dict"),
        (Config, "give a Config"),
        ({"cuont": 3}, "has no setting 'cuont'; did you mean 'count'"),
        ({3: 3}, "has no setting 3"),
        ({"count": 1.5}, "method 'a_test': count is 1.5; give a whole number"),
        ({"count": "3"}, "count is '3'"),
        ({"rate": "fast"}, "rate is 'fast'"),
        ({"keep": 1}, "keep is 1"),
        ({"word": 1}, "word is 1"),
    ],
)
def test_what_is_wrong_is_one_line(config, message):
    with refused() as error:
        configured(SPEC, config)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_budgets_are_plain_numbers_that_say_what_is_left_and_what_a_control_has():
    budget = Budget(np.float32(1.5), np.int64(3))
    assert type(budget.seconds) is float and type(budget.evaluations) is int and budget == Budget(1.5, 3)
    assert (Budget(1.0).left(10**9), Budget(evaluations=10).left(7)) == (math.inf, 3)
    # A control has as many evaluations and no more time.
    assert Budget(60.0).capped(500) == Budget(60.0, 500)
    assert Budget(evaluations=700).capped(500) == Budget(math.inf, 500)


PLANNERS = methods.having(Role.BESIDE)


def test_the_fastest_plan_is_first_and_rewards_are_relative_to_it():
    problem = branches_problem(4, 6)
    simulator = SimulatedEvaluator(problem)
    starts = Starts(problem, simulator, PLANNERS)
    times_s = simulator.evaluate(starts.plans).runtime_s
    assert (np.diff(times_s) >= 0).all()
    assert starts.reference_s == times_s[0] < 0.6 * starts.single_device_s


def test_a_single_device_wins_a_tie():
    problem = problem_of([[200, 100]] * 3, [(0, 1), (1, 2)], 1000)
    starts = Starts(problem, SimulatedEvaluator(problem), PLANNERS)
    assert starts.plans[0].tolist() == [1, 1, 1]
    assert starts.reference_s == starts.single_device_s == pytest.approx(300e-9)


@pytest.mark.parametrize(("devices", "fill"), [(2, 0.9), (3, 0.6), (3, 0.9), (4, 0.6), (4, 0.9)])
def test_where_no_single_device_fits_the_plans_do(devices, fill):
    for seed in range(5):
        problem = full_problem(devices, fill, seed, more_bytes=2000)
        starts = Starts(problem, SimulatedEvaluator(problem), PLANNERS)
        assert starts.single_device_s is None
        assert (SimulatedEvaluator(problem).evaluate(starts.plans).status == 0).all()


def test_where_nothing_fits_it_is_the_plan_that_exceeds_memory_least():
    problem = problem_of([1] * 3, [], cluster=sized_cluster([17, 19]), resident_bytes=10)
    starts = Starts(problem, SimulatedEvaluator(problem), PLANNERS)
    assert starts.single_device_s is None and len(starts.plans) == 1
    load = np.bincount(starts.plans[0], minlength=2) * 10
    assert load.tolist() == [10, 20], "1 byte over on the second, not 3 on the first"
    assert starts.reference_s > 0


def test_on_the_runtime_only_the_single_devices_are_measured():
    problem = branches_problem(4, 6)
    machine = OtherMachine(problem, alone=3.0)
    starts = Starts(problem, machine, PLANNERS)
    assert len(np.unique(starts.plans[0])) == 2
    assert machine.evaluated == problem.num_devices
    # The machine takes three times as long as the simulator, for the plan that it has not measured, too.
    expected_s = 3.0 * SimulatedEvaluator(problem).evaluate(starts.plans[:1]).runtime_s[0]
    assert starts.reference_s == pytest.approx(expected_s, rel=0.05)


def test_a_device_on_which_the_step_failed_is_no_place_to_begin():
    problem = problem_of([[200, 100]] * 3, [(0, 1), (1, 2)], 1000)
    machine = OtherMachine(problem, fails=lambda row: row[0] == 1)
    assert not (Starts(problem, machine, PLANNERS).plans[0] == 1).all()


GB = 10**9


def chain(sizes_gb: list[int], cluster: tf_placer.Cluster) -> tf_placer.Problem:
    """Ops in a row that hold so many gigabytes each, and nothing else."""
    return problem_of(
        [[1000] * cluster.num_devices] * len(sizes_gb),
        [[i, i + 1] for i in range(len(sizes_gb) - 1)],
        cluster=cluster,
        resident_bytes=[gb * GB for gb in sizes_gb],
        names=[f"layer{i}" for i in range(len(sizes_gb))],
    )


def test_what_no_device_holds_is_told_in_bytes_with_the_largest_holders_and_a_machine():
    cluster = tf_placer.Cluster.preset("k40x2")
    assert room_needed(chain([1, 2], cluster)) is None
    # 14 GB on a K40 of 11.4; a P100 has 15.9 or so, which is the smallest that does.
    room = room_needed(chain([1, 5, 2, 6], cluster))
    assert room is not None and (room.needed_bytes, room.preset) == (14 * GB, "p100x1")
    assert list(room.holders.items()) == [("layer3", 6 * GB), ("layer1", 5 * GB), ("layer2", 2 * GB)]
    assert "would need 13.0 GiB (14000000000 bytes)" in str(room)
    assert str(room).endswith("whose accelerators hold the step is p100x1")
    none = room_needed(chain([900, 100], cluster))
    assert none is not None and none.preset is None
    assert str(none).endswith("no described machine holds the step on its accelerators")


def test_the_error_of_a_search_says_it_too():
    cluster = tf_placer.Cluster.preset("k40x2").with_memory_limit({"CPU:0": 1})
    with pytest.raises(NothingFits) as error:
        tf_placer.search(chain([12, 12], cluster), "random", budget_evaluations=4)
    told = str(error.value)
    assert "24000000000 bytes" in told and "'layer0'" in told and "\n" not in told
    assert "the smallest described machine whose accelerators hold the step is t4x2" in told


K40S = Cluster.preset("k40x2")
LARGER = {"transformer_small": 24, "inception_v3_small": 5, "rnnlm_2_small": 40, "transformer_xl_2_small": 3}


@pytest.mark.parametrize(
    ("name", "batch"),
    [("dense_small", 13), *(pytest.param(*row, marks=pytest.mark.medium) for row in LARGER.items())],
)
def test_another_batch_has_the_peaks_of_the_program_traced_with_it(name, batch):
    resized = split_program(workloads.build(name), 2).whole_of(batch)
    traced = split_program(workloads.build(name, batch=batch), 2).straight.item
    # A loss's gradient of one number for each example is made of constants, so it keeps its size.
    peaks, expected = (device_peaks(analytic_problem(item, K40S))[0] for item in (resized, traced))
    np.testing.assert_allclose(peaks, expected, rtol=4e-3)


def test_the_largest_batch_fits_and_one_more_example_does_not():
    cluster = K40S.with_memory_limit({"GPU:0": "40MB", "GPU:1": "40MB"})
    _, one, on_all, again = largest_batches(workloads.build("two_towers"), cluster)
    assert 0 < one < again < MOST_EXAMPLES and one < on_all < MOST_EXAMPLES
    for examples, fits_one in ((one, True), (one + 1, False), (on_all, False)):
        single, least = device_peaks(analytic_problem(workloads.build("two_towers", batch=examples), cluster))
        assert (single <= cluster.capacity_bytes())[cluster.accelerators()].any() == fits_one
        assert (least <= cluster.capacity_bytes()).all()


def told(*flags):
    console = rich.console.Console(file=io.StringIO(), width=160)
    assert run(["memory", "--cluster=k40x2", *flags], console) == 0
    return console.file.getvalue()


def test_the_command_says_what_is_missing_and_what_fits():
    text = told("--workload=two_towers", *(f"--memory_limit=GPU:{gpu}=40MB" for gpu in range(2)))
    assert "The batch is 1024. The largest that fits: 536 on one device, 1181 over all, " in text
    assert "No single device holds the step: GPU:0 has 38.1 MiB and would need 58.2 MiB" in text
    assert [line[2:7] for line in text.splitlines() if line[0] == "│"] == ["GPU:0", "GPU:1", "CPU:0"]
    assert f"{MOST_EXAMPLES} or more on one device" in told("--workload=dense_small")


def test_a_program_without_a_batch_is_told_so(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(
        "import tensorflow as tf\n\nv = tf.Variable(tf.ones([9, 9]))\nstep = tf.function(lambda: v @ v)\n"
    )
    assert "The largest batch is not known: 'step' has no input with several examples" in told(
        f"{script}:step"
    )


def with_bytes_times(problem: Problem, factor: int) -> Problem:
    """All bytes, of tensors, variables, memories and a second on a link, times ``factor``."""
    times = lambda amount: amount * factor  # noqa: E731
    return dataclasses.replace(
        altered(problem, {"memory_bytes": times}, {"bytes_per_s": times}),
        tensor_bytes=problem.tensor_bytes * factor,
        resident_bytes=problem.resident_bytes * factor,
        output_shapes=tuple(((shapes[0][0] * factor,),) for shapes in problem.output_shapes),
    )


@pytest.mark.medium
@pytest.mark.parametrize(
    "method",
    [
        "random",
        "local_search",
        "list_schedule",
        "topological_fill",
        pytest.param(SMALL_HDP, id="hdp", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("fill", [0.2, 0.7])
def test_every_placement_tried_is_the_same(method, fill):
    # Edges of up to 200 bytes and links on which 66.7 are noticed.
    problem = altered(full_problem(3, fill, seed=1, more_bytes=50_000), links={"latency_ns": 50_000})
    one, other = (
        search(p, method, budget_evaluations=200, seed=2) for p in (problem, with_bytes_times(problem, 1000))
    )
    assert [repr(e.mean_s) for e in one.history] == [repr(e.mean_s) for e in other.history]
    np.testing.assert_array_equal(one.placement.device_of_unit, other.placement.device_of_unit)
