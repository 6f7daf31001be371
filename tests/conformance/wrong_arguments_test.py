"""Whatever is wrong with an argument of a public call ends in one line that names it and says what to give.

Wrong values follow from the annotations; ``wrong_arguments/wrong.py`` has those that annotations cannot say.
"""

import inspect
import re
from typing import Any

import pytest

import tf_placer
from tests.conformance.public_calls import public_calls
from tests.conformance.wrong_arguments.good import Good, NewPath, good_calls
from tests.conformance.wrong_arguments.scene import Scene
from tests.conformance.wrong_arguments.wrong import Told, wrong_by_hand, wrong_values

CALLS = public_calls()
ARGUMENTS = {f"{call}.{name}": kind for call, found in CALLS.items() for name, kind in found.items()}
_REMEDY = re.compile(r"; \w|expected|give |is needed|did you mean|must |can run on")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("wrong"))


@pytest.fixture(scope="module")
def calls(scene: Scene) -> dict[str, Good]:
    return good_calls(scene)


@pytest.fixture(scope="module")
def by_hand(scene: Scene) -> dict[str, tuple[Any, ...]]:
    return wrong_by_hand(scene)


def test_every_public_call_has_good_arguments(calls):
    assert sorted(CALLS.keys() - calls.keys()) == [], "add arguments for it to wrong_arguments/good.py"
    assert sorted(calls.keys() - CALLS.keys()) == [], "no such call; take it out of wrong_arguments/good.py"


def test_every_argument_has_wrong_values_and_every_value_an_argument(by_hand):
    without = [name for name, kind in ARGUMENTS.items() if not list(wrong_values(name, kind, by_hand))]
    assert without == [], "add wrong values for it to wrong_arguments/wrong.py"
    there = ARGUMENTS.keys() | {f".{name.rpartition('.')[2]}" for name in ARGUMENTS}
    assert sorted(by_hand.keys() - there) == [], "no such argument; take it out of wrong_arguments/wrong.py"


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_good_call_works(scene, calls, name):
    if calls[name].runs:
        _call(scene, calls[name], {})


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_wrong_argument_is_one_line(scene, calls, by_hand, name):
    complaints = []
    for argument, annotation in CALLS[name].items():
        for given in wrong_values(f"{name}.{argument}", annotation, by_hand):
            value, word = (given.value, given.by) if isinstance(given, Told) else (given, argument)
            complaint = _complaint(scene, calls[name], argument, value, word)
            complaints += [f"{name}({argument}={str(value)[:60]}): {complaint}"] if complaint else []
    assert complaints == [], "\n".join(complaints)


def _complaint(scene: Scene, good: Good, argument: str, value: Any, word: str) -> str:
    """What is wrong with how a wrong value is refused, or ""."""
    try:
        _call(scene, good, {argument: value})
    except tf_placer.InputError as error:
        text = str(error)
        if "\n" in text or "{{" in text or " at 0x" in text:
            return f"not for users: {text!r}"
        if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
            return f"does not say {word!r}: {text}"
        return "" if _REMEDY.search(text) else f"has no remedy: {text}"
    except Exception as error:  # noqa: BLE001 - that it is another exception is what is told
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return "taken"


def _call(scene: Scene, good: Good, changed: dict[str, Any]) -> Any:
    given = {
        name: scene.new() if isinstance(value, NewPath) else value
        for name, value in (good.arguments | changed).items()
    }
    positional = given.pop("example_args", None)
    if positional is None:
        return good.call(**given)
    # What comes before ``*example_args`` can only be given by position with them.
    parameters = inspect.signature(good.call).parameters.values()
    names = [one.name for one in parameters if one.kind == one.POSITIONAL_OR_KEYWORD]
    return good.call(*(given.pop(name) for name in names), *positional, **given)


def test_nothing_was_started(scene):
    assert scene.runtime.worker_pids == ()


def test_what_the_walk_reaches(tmp_path):
    assert {"search", "Problem.from_arrays", "Cluster", "auto_place", "Placement.load"} <= CALLS.keys()
    assert {"fn", "cluster", "budget_s"} <= CALLS["auto_place"].keys()
    assert "self" not in CALLS["SimulatedEvaluator.evaluate"] and "cls" not in CALLS["Cluster.preset"]
