"""The published schema of plans, and what is said of texts that do not fit it."""

import json

import jsonschema
import pytest

from tf_placer.base.arguments import InputError
from tf_placer.problem.placement import SCHEMA_PATH, SCHEMA_VERSIONS, PlanFile

GOOD = {"schema_version": 1, "fingerprint": "ab12", "devices": {"a": "/device:CPU:0"}}


def test_the_schema_is_one_and_of_this_version():
    schema = json.loads(SCHEMA_PATH.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema_version"]["enum"] == list(SCHEMA_VERSIONS)


def test_a_plan_is_read():
    made_for = {"workload": "inception_v3", "batch_size": 8, "fetches": ["a:0"]}
    plan = PlanFile.parse(json.dumps(GOOD | {"made_for": made_for}), "here")
    assert plan == PlanFile("here", "ab12", {"a": "/device:CPU:0"}, made_for)


def test_what_a_plan_decides_beyond_devices():
    more = {"schema_version": 2, "priorities": {"a": 3.0}, "clusters": {}}
    plan = PlanFile.parse(json.dumps(GOOD | more), "here")
    assert plan.priorities == {"a": 3} and plan.clusters == {}
    plain = PlanFile.parse(json.dumps(GOOD | {"schema_version": 2}), "here")
    assert plain.priorities is None and plain.clusters is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": 3}, r"schema of plans at \$.fingerprint: 3 is not of type"),
        ({"fingerprint": "xyz"}, r"at \$.fingerprint"),
        ({"device": {}}, r"at \$: Additional properties are not allowed \('device'"),
        ({"devices": {"a": ["CPU:0"]}}, r"at \$.devices.a: \['CPU:0'\] is not of type 'string'"),
        ({"devices": {"a": ""}}, r"at \$.devices.a"),
        ({"made_for": {"workload": {}}}, r"at \$.made_for.workload"),
    ],
)
def test_what_does_not_fit_the_schema_is_told_with_its_place(changes, message):
    with pytest.raises(InputError, match=message) as error:
        PlanFile.parse(json.dumps(GOOD | changes), "here.json")
    assert str(error.value).startswith("here.json ") and "\n" not in str(error.value)


def test_an_op_may_be_named_once():
    text = json.dumps(GOOD).replace('"a": "/device:CPU:0"', '"a": "/device:CPU:0", "a": "/device:CPU:1"')
    with pytest.raises(InputError, match="here has 'a' twice"):
        PlanFile.parse(text, "here")


def test_endless_nesting_is_no_plan():
    with pytest.raises(InputError, match="not JSON that can be read"):
        PlanFile.parse("[" * 100_000, "here")
