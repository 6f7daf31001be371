"""Settings of every method have default, paper's value and limits; times and shares are formatted in one place."""

import ast
import dataclasses
import inspect
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.refused import refused
from tf_placer.base.method_spec import Settings
from tf_placer.search import methods
from tf_placer.search.methods import configured
from tools.module_map import source_modules

SPECS = tuple(map(methods.find, methods.BUILT_IN))
CONFIGS = {spec.name: spec.config for spec in SPECS if issubclass(spec.config, Settings)}
FIELDS = [(name, field) for name, config in CONFIGS.items() for field in dataclasses.fields(config)]
EVERY = pytest.mark.parametrize(("name", "field"), FIELDS, ids=lambda value: getattr(value, "name", value))


def wrong_values(field: dataclasses.Field[Any]) -> Iterator[Any]:
    """What no setting of this type and these limits can be."""
    limits = field.metadata["limits"]
    if field.type == "bool":
        yield from (1, "yes", None if field.metadata["paper"] is None else 0)
    elif field.type == "str":
        yield from (7, b"slack", *(["nothing such"] if field.metadata["words"] else []))
    else:
        yield from (True, "fast", 0.5 if field.type == "int" else math.nan)
        beyond = {"least": -1, "most": 1, "above": 0, "below": 0}
        yield from (limit + beyond[name] for name, limit in limits.items() if name in beyond)
        if field.metadata["even"]:
            yield field.metadata["default"] + 1


def test_all_settings_are_lines():
    described = [spec.config for spec in SPECS if dataclasses.fields(spec.config)]
    assert all(issubclass(config, Settings) for config in described)


@EVERY
def test_a_setting_says_what_it_is(name, field):
    assert field.type in ("bool", "float", "int", "str")
    limits, default, paper = (field.metadata[key] for key in ("limits", "default", "paper"))
    assert bool(limits) == (field.type in ("float", "int")), "what are its limits?"
    assert paper != default, "the paper's value is the default: leave it out"
    assert paper is None or "preset" in {one.name for one in dataclasses.fields(CONFIGS[name])}
    # A row for it in the docstring, where several may share one, or a comment behind or above its line.
    rows = str(CONFIGS[name].__doc__).partition("Attributes:")[2].splitlines()
    is_row = any(field.name in row.partition(":")[0].strip().split(", ") for row in rows)
    lines = [line.strip() for line in inspect.getsource(CONFIGS[name]).splitlines()]
    place = next((n for n, line in enumerate(lines) if line.startswith(f"{field.name}: ")), 0)
    assert is_row or "#" in lines[place] or lines[place - 1].startswith("#"), "what does it do?"


@EVERY
def test_wrong_values_are_refused_in_one_line(name, field):
    for value in wrong_values(field):
        with refused(rf"^{field.name} is .*; give "):
            CONFIGS[name](**{field.name: value})


@pytest.mark.parametrize("name", CONFIGS)
def test_values_of_numpy_are_taken_as_pythons_own(name):
    config = configured(methods.find(name))
    of_numpy = {"bool": np.bool_, "int": np.int64, "float": np.float64, "str": np.str_}
    fields = dataclasses.fields(config)
    given = {field.name: of_numpy[field.type](getattr(config, field.name)) for field in fields}
    again = type(config)(**given)
    assert again == config
    assert {type(getattr(again, field.name)).__name__ for field in fields if field.type != "str"} <= set(
        of_numpy
    )


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        (
            "go",
            {"rollouts": 32, "minibatches": 3},
            "minibatches is 3; give a divisor of rollouts, which is 32",
        ),
        ("mars", {"minibatches": 33}, "minibatches is 33; give at most placements, which is 32"),
        (
            "colocrl",
            {"step_pattern": "("},
            "step_pattern is '(' (missing ), unterminated subpattern at position 0)",
        ),
        ("go_zero_shot", {"weights": ""}, "weights is ''; give the path of a file that `train` wrote, or"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(name, given, told):
    with refused() as caught:
        CONFIGS[name](**given)
    assert str(caught.value).startswith(told)


# What the papers say, in the sections that the docstrings of the settings name.
PAPERS = {
    # 256 groups, hidden 256, one grouping of 4 placements, learning rates 0.1, a moving average, no start.
    "hdp": {
        "num_groups": 256, "placer_hidden": 256, "placements": 4, "loss": "reinforce", "learning_rate": 0.1,
        "grouper_learning_rate": 0.1, "groups_per_step": 1, "incumbent": False, "row_step": 0,
        "start_probability": 0,
    },
    # Adam 0.1, clipped at 1, C = 5, T = 10; 20 controllers of 8 workers; baselines begin at the failing signal; after
    # 5,000 steps what fails does not teach.
    "colocrl": {
        "learning_rate": 0.1, "gradient_clip": 1, "tanh_constant": 5, "temperature": 10, "controllers": 20,
        "placements": 8, "valid_only_after": 5000, "start_probability": 0,
    },
    # Ops one by one, 800 rollouts, 40 minibatches, 20 epochs, clip 0.2, GraphSAGE of width 128, two layers of three
    # heads of 25 on width 64, inner width 256; what fails is worth -10; a mean of all trials before.
    "go": {
        "granularity": "units", "rollouts": 800, "minibatches": 40, "epochs": 20, "clip": 0.2, "layers": 2,
        "graph_width": 128, "heads": 3, "head_width": 25, "width": 64, "inner_width": 256,
        "failing_reward": -10, "standardize": False, "begin": "nothing", "elite_share": 0,
    },
    # GCN 3 x 256; 1,000 iterations; 512; segments of 128; PPO 0.2, 1e-3, 3e-4, 1.0, 4 minibatches of 10 placements;
    # moving average 0.99; unit by unit.
    "mars": {
        "encoder_layers": 3, "encoder_width": 256, "pretrain_iterations": 1000, "hidden": 512,
        "segment": 128, "groups_per_step": 1, "num_groups": 0, "clip": 0.2, "entropy": 1e-3,
        "learning_rate": 3e-4, "gradient_clip": 1, "minibatches": 4, "placements": 10,
        "baseline_decay": 0.99, "elites": 0, "start_probability": 0,
    },
    "placeto": {"width": 8, "rounds": 8, "learning_rate": 1e-3, "decay": 10},
    # Five of fifty: ten samples a batch, five batches a cross-entropy step, a tenth are elites.
    "post": {"samples": 10, "cross_every": 5, "elites": 0.1, "smoothing": 1, "clip": 0, "kl_target": 0.03},
    "regal": {"generations": 20, "mutants": 0.1},
}  # fmt: skip


def test_every_paper_that_is_a_preset_is_here():
    assert PAPERS.keys() == {
        name for name, field in FIELDS if field.name == "preset" and "paper" in field.metadata["words"]
    }


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_settings_are_a_preset(name):
    paper = configured(methods.find(name), {"preset": "paper"})
    assert {field: getattr(paper, field) for field in PAPERS[name]} == PAPERS[name]


ONE_PLACE = "tf_placer.base.quantities"


def formats_of_its_own(tree: ast.AST) -> list[int]:
    """Lines with an f-string that shows a number as a percentage, or with " ms" behind it."""
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in zip(node.values, [*node.values[1:], None], strict=True):
            if not isinstance(value, ast.FormattedValue) or value.format_spec is None:
                continue
            is_share = ast.unparse(value.format_spec).rstrip("'\"").endswith("%")
            is_time = isinstance(after, ast.Constant) and str(after.value).startswith(" ms")
            if is_share or is_time:
                lines.append(value.lineno)
    return lines


def test_times_and_shares_are_formatted_in_one_place(root):
    assert [
        f"{module.path}:{line}"
        for name, module in source_modules(root).items()
        if name.startswith("tf_placer.") and name != ONE_PLACE
        for line in formats_of_its_own(module.tree)
    ] == [], f"use {ONE_PLACE}, which shows neither nan nor -0.0"


def test_the_rule_sees_a_violation():
    assert formats_of_its_own(ast.parse('f"{x:.1%}"')) == [1]
    assert formats_of_its_own(ast.parse('f"a {1e3 * x:.3f} ms b"')) == [1]
    assert formats_of_its_own(ast.parse('f"{x} ms, {y:.3f} MB"')) == []
