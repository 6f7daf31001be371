"""The driver of a fleet: whatever becomes of actors and answers, every trial has one answer, and none has two."""

import dataclasses
import random

import numpy as np
import pytest

from tests.refused import refused
from tests.tf_placer.fleet.stand_in import Actor, Ray
from tests.tf_placer.problem.small_problems import branches_problem
from tests.tf_placer.search.other_machine import OtherMachine, live
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator, Status
from tf_placer.fleet import fleet as fleet_module
from tf_placer.fleet.fleet import Fleet, FleetConfig, FleetEvaluator, FleetLost, FleetTiming, UnreachableFleet
from tf_placer.fleet.machine import Program, Reply, machine_class, software
from tf_placer.planning.outcome import CONSTRUCTED, Note
from tf_placer.problem.placement import Decisions
from tf_placer.report.sentences import remarks
from tf_placer.runtime.timing import RuntimeConfig

PROBLEM = branches_problem(4, 6)
TRUTH = SimulatedEvaluator(PROBLEM)
EXPECTED = {"software": software(), "machines": machine_class(PROBLEM.cluster)}


class Known:
    """A machine whose times are the simulator's, ``speed`` times as long."""

    def __init__(self, host, speed=1.0, error="", **told):
        self.host, self.speed, self.error, self.told = host, speed, error, told

    def hello(self):
        return {"host": self.host, "pid": 1, "error": "", **EXPECTED, **self.told}

    def measure(self, trial, program):
        if self.error:
            return Reply(trial.id, error=self.error)
        found, reference = (TRUTH.evaluate(one.plain) for one in (trial.plan, program.reference))
        runtime_s = self.speed * found.runtime_s
        found = dataclasses.replace(found, runtime_s=runtime_s, peak_bytes=None, spread_s=0.1 * runtime_s)
        return Reply(trial.id, found, self.speed * float(reference.runtime_s[0]))


@pytest.fixture(autouse=True)
def no_program_is_packed(monkeypatch):
    """The problem has no graph behind it."""

    def packed(item, problem, reference, config):
        return Program("program", np.zeros(1), np.zeros(1), reference, config)

    monkeypatch.setattr(fleet_module, "check_can_be_timed", lambda item, problem: None)
    monkeypatch.setattr(Program, "packed", staticmethod(packed))


def fleet_of(*actors, ray=None, **config):
    """Each actor is (machine, fate), or a machine."""
    ray = ray or Ray()
    pairs = [one if isinstance(one, tuple) else (one, lambda *_: None) for one in actors]
    handles = {
        f"actor {number}": Actor(ray, lambda machine=machine: machine, fate)
        for number, (machine, fate) in enumerate(pairs)
    }
    fleet = Fleet(ray, handles, EXPECTED, FleetConfig(**config), clock=ray.clock, sleep=ray.sleep)
    return fleet, ray, list(handles.values())


def third(fate):
    """The fate of an actor's third call."""
    return lambda actor, method, number: fate if number == 2 else None


def plans_of(count, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.unique(rng.integers(0, 2, (2 * count, PROBLEM.num_units), np.int32), axis=0)
    return rows[rng.permutation(len(rows))[:count]]


def evaluator_of(fleet, **more):
    fleet.start()
    return FleetEvaluator(None, PROBLEM, fleet, **more)


def assert_true(found, plans, evaluator):
    """Times are those of the simulator, in the unit of the reference."""
    truth = TRUTH.evaluate(plans)
    level = evaluator.level_s / TRUTH.evaluate(evaluator.reference.plain).runtime_s[0]
    np.testing.assert_array_equal(found.status, truth.status)
    np.testing.assert_allclose(found.runtime_s, level * truth.runtime_s, rtol=1e-12)


def test_machines_of_different_speed_give_the_same_times():
    fleet, _, actors = fleet_of(Known("a"), Known("b", 3.0), Known("b", 0.5))
    evaluator, plans = evaluator_of(fleet), plans_of(40)
    assert_true(evaluator.evaluate(plans), plans, evaluator)
    assert (fleet.actors, fleet.hosts) == (3, 2)
    assert all(len(one.done) > 5 for one in actors), "all measure at once"
    assert dataclasses.asdict(fleet.counts) == {"sent": 40, "counted": 40, "doubles": 0, "lost": 0}
    assert len(fleet.baselines_s("program")) == 3


def test_a_plan_twice_in_a_batch_is_one_trial():
    fleet, _, _ = fleet_of(Known("a"))
    evaluator, plans = evaluator_of(fleet), plans_of(3)
    twice = np.concatenate([plans, plans])
    assert_true(evaluator.evaluate(twice), twice, evaluator)
    assert fleet.counts.sent == 3
    assert evaluator.evaluate(np.zeros((0, PROBLEM.num_units), np.int32)).batch == 0


def test_a_trial_is_program_plan_and_machines():
    fleet, _, (actor,) = fleet_of(Known("a"))
    evaluator, plans = evaluator_of(fleet), plans_of(5)
    for _ in range(2):
        assert_true(evaluator.evaluate(plans), plans, evaluator)
    ids = [arguments[0].id for method, arguments in actor.done if method == "measure"]
    assert fleet.counts.counted == len(ids) == 10
    assert len(set(ids)) == 5 and ids[:5] == ids[5:]


@pytest.mark.parametrize("fate", ["die", "die late"])
def test_what_an_actor_had_when_it_died_is_measured_by_another_or_again(fate):
    def dies(actor, method, number):
        return fate if method == "measure" and number % 3 == 0 else None

    fleet, _, _ = fleet_of((Known("a"), dies), (Known("b"), dies), attempts=20)
    evaluator, plans = evaluator_of(fleet), plans_of(30)
    assert_true(evaluator.evaluate(plans), plans, evaluator)
    assert fleet.counts.lost > 5 and fleet.counts.counted == 30
    assert fleet.counts.sent == 30 + fleet.counts.lost


def test_a_lost_answer_is_asked_for_again_and_its_actor_started_anew():
    fleet, _, actors = fleet_of((Known("a"), third("lose")), Known("b"), reply_s=10.0)
    evaluator, plans = evaluator_of(fleet), plans_of(12)
    assert_true(evaluator.evaluate(plans), plans, evaluator)
    assert (fleet.counts.lost, fleet.counts.doubles, actors[0].kills) == (1, 0, 1)


def test_a_late_answer_counts_once():
    fleet, _, actors = fleet_of((Known("a"), third("hold")), Known("b", 2.0), reply_s=10.0)
    evaluator, plans = evaluator_of(fleet), plans_of(12)
    assert_true(evaluator.evaluate(plans), plans, evaluator)
    assert (fleet.counts.counted, fleet.counts.lost, fleet.counts.doubles) == (12, 1, 0)
    actors[0].release()
    more = plans_of(6, seed=1)
    assert_true(evaluator.evaluate(more), more, evaluator)
    measured = [call[1][0].id for actor in actors for call in actor.done if call[0] == "measure"]
    assert len(measured) == len(set(measured)) + 1, "one was measured twice"
    assert fleet.counts.counted == len(set(measured))
    assert fleet.counts.doubles == 1


def test_a_plan_that_kills_whatever_measures_it_is_crashed():
    deadly = Decisions(plans_of(6)).digest(0, PROBLEM)

    class Mortal(Known):
        def measure(self, trial, program):
            reply = super().measure(trial, program)
            return Reply(trial.id, error="died") if trial.plan.digest(0, PROBLEM) == deadly else reply

    fleet, _, _ = fleet_of(Mortal("a"), Mortal("b"), attempts=3)
    found = evaluator_of(fleet).evaluate(plans_of(6))
    assert found.status.tolist() == [Status.CRASHED] + [Status.OK] * 5
    assert "3 times in a row" in found.messages[0]


def test_when_no_machine_is_left_it_is_said():
    fleet, _, _ = fleet_of(Known("a", error="no worker starts"), attempts=1000, failures=3)
    evaluator = evaluator_of(fleet)
    told = r"no machine .* any more: actor 0 failed 3 times in a row, .*no worker starts"
    with pytest.raises(FleetLost, match=told):
        evaluator.evaluate(plans_of(4))


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (
            {"software": {**software(), "TensorFlow": "2.0.0"}},
            r"machine b .* TensorFlow 2\.0\.0, and this one .*; install the same",
        ),
        ({"machines": "GPU x"}, r"machine b .* other devices \(GPU x\)"),
    ],
)
def test_a_machine_of_another_version_or_kind_is_refused(told, error):
    fleet, _, _ = fleet_of(Known("a"), Known("b", **told))
    with refused(error):
        fleet.start()


def test_a_worker_that_comes_back_in_another_version_is_left_out():
    machine = Known("a")

    def updated(actor, method, number):
        if number == 3:
            machine.told = {"software": {**software(), "tf_placer": "9"}}
            return "die"
        return None

    fleet, ray, actors = fleet_of((machine, updated), Known("b"))
    evaluator, plans = evaluator_of(fleet), plans_of(12)
    assert_true(evaluator.evaluate(plans), plans, evaluator)
    ray.now_s += 60
    more = plans_of(12, seed=1)
    assert_true(evaluator.evaluate(more), more, evaluator)
    assert fleet.actors == 1
    assert [name for name, _ in actors[0].done] == ["hello", "measure", "measure", "hello"]


def test_a_fleet_goes_on_without_machines_that_do_not_answer_but_not_without_any():
    lost = (Known("a"), lambda *_: "lose")
    fleet, _, _ = fleet_of(lost, Known("b"), start_s=60.0)
    evaluator, plans = evaluator_of(fleet), plans_of(5)
    assert_true(evaluator.evaluate(plans), plans, evaluator)
    fleet, ray, _ = fleet_of(lost, start_s=60.0)
    with pytest.raises(UnreachableFleet, match="no machine of the fleet can be used within 60 s") as error:
        fleet.start()
    assert "\n" not in str(error.value) and 60 <= ray.now_s < 61


def test_closing_ends_every_actor_once():
    left = []
    fleet, ray, actors = fleet_of(Known("a"), Known("b"))
    fleet._on_close = lambda: left.append(True)
    fleet.start()
    with fleet:
        pass
    fleet.close()
    assert ray.ended == actors and left == [True]


def test_a_killed_driver_goes_on_where_it_was(tmp_path):
    path, plans = tmp_path / "measured.jsonl", plans_of(20)
    fleet, _, _ = fleet_of(Known("a"), Known("b", 2.0))

    class Killed(Exception):
        pass

    class Dying(FleetEvaluator):
        def evaluate_each(self, plans):
            for number, one in enumerate(super().evaluate_each(plans)):
                if number == 7:
                    raise Killed
                yield one

    fleet.start()
    dying = Dying(None, PROBLEM, fleet)
    with JournaledEvaluator(dying, path) as journaled, pytest.raises(Killed):
        journaled.evaluate(plans)
    # The next driver begins on a machine of another speed: the unit of times stays.
    second, _, _ = fleet_of(Known("c", 5.0))
    evaluator = evaluator_of(second)
    with JournaledEvaluator(evaluator, path) as journaled:
        found = journaled.evaluate(plans)
        assert (journaled.kept, journaled.measured, journaled.reused) == (8, 13, 7)
    assert second.counts.counted == 13
    assert evaluator.level_s == dying.level_s
    assert_true(found, plans, evaluator)


def test_the_reference_is_the_first_record_and_the_unit(tmp_path):
    fleet, _, _ = fleet_of(Known("a"))
    evaluator = evaluator_of(fleet)
    evaluator.relative_to(100.0)
    with JournaledEvaluator(evaluator, tmp_path / "measured.jsonl") as journaled:
        plans = np.concatenate([plans_of(3), evaluator.reference.device_of_unit])
        found = journaled.evaluate(plans)
        assert found.runtime_s[3] == pytest.approx(100.0)
        assert_true(found, plans, evaluator)
        assert journaled.measured == 4


def test_answers_of_other_settings_are_refused(tmp_path):
    path = tmp_path / "measured.jsonl"
    fleet, _, _ = fleet_of(Known("a"))
    JournaledEvaluator(evaluator_of(fleet), path).close()
    with pytest.raises(InputError, match="was measured with config"):
        JournaledEvaluator(FleetEvaluator(None, PROBLEM, fleet, RuntimeConfig(steps=3, keep=1)), path)


def test_whatever_happens_nothing_is_lost_and_nothing_counts_twice(tmp_path):
    for seed in range(5):
        chance = random.Random(seed)

        def fate(actor, method, number, chance=chance):
            fates = ["die", "die late", "lose", "late"] if method == "measure" else ["die"]
            return chance.choice(fates) if chance.random() < 0.2 else None

        machines = [(Known(f"host {i}", 1.0 + i), fate) for i in range(4)]
        fleet, _, _ = fleet_of(*machines, reply_s=5.0, attempts=50, failures=50)
        evaluator, plans = evaluator_of(fleet), plans_of(60, seed)
        with JournaledEvaluator(evaluator, tmp_path / f"{seed}.jsonl") as journaled:
            for rows in (plans[:40], plans[20:]):
                assert_true(journaled.evaluate(rows), rows, evaluator)
            assert journaled.measured == len(
                {row.tobytes() for row in plans} | {evaluator.reference.device_of_unit.tobytes()}
            )
        assert fleet.counts.lost > 5


@pytest.mark.medium
def test_a_live_search_measures_on_the_fleet_and_races_here(tmp_path):
    fleet, _, _ = fleet_of(Known("a"), Known("b", 3.0))
    fleet.start()
    here = OtherMachine(PROBLEM)
    raced = []
    race = here.race
    here.race = lambda *given, **more: raced.append(given) or race(*given, **more)

    def searched(fleet):
        with FleetTiming(fleet, None, tmp_path) as timing:
            return live(PROBLEM, here, evaluations=300, fleet=timing)

    found = searched(fleet)
    assert here.evaluated == 1, "the reference plan, for the unit of times"
    assert len(raced) == 1 and found.written.raced_s is not None
    assert fleet.counts.counted == len(found.trials)
    assert len([one for one in found.trials if one.name == CONSTRUCTED]) >= 2
    assert (
        f"{len(found.trials)} plans were measured by 2 actors of a fleet on 2 machines"
        in found.notes[Note.MEASURED_ON]
    )
    assert found.notes[Note.MEASURED_ON] in remarks(found)
    level_s = found.trials[0].measured_s
    truth = TRUTH.evaluate(np.stack([one.placement.device_of_unit for one in found.trials])).runtime_s
    for trial, true_s in zip(found.trials, truth, strict=True):
        assert trial.measured_s == pytest.approx(level_s * true_s / truth[0])
    # Who searches again in that folder goes on from what was measured.
    again, _, _ = fleet_of(Known("c"))
    again.start()
    searched(again)
    assert again.counts.counted < fleet.counts.counted
