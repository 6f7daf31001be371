"""Times and shares are formatted in one place."""

import ast
import pathlib

from tools.module_map import source_modules

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
            is_time = (
                isinstance(after, ast.Constant)
                and isinstance(after.value, str)
                and after.value.startswith(" ms")
            )
            if is_share or is_time:
                lines.append(value.lineno)
    return lines


def test_times_and_shares_are_formatted_in_one_place(root: pathlib.Path) -> None:
    offenders = [
        f"{module.path}:{line}"
        for name, module in source_modules(root).items()
        if name.startswith("tf_placer.") and name != ONE_PLACE
        for line in formats_of_its_own(module.tree)
    ]
    assert offenders == [], f"use {ONE_PLACE}, which shows neither nan nor -0.0"


def test_the_rule_sees_a_violation() -> None:
    assert formats_of_its_own(ast.parse('f"{x:.1%}"')) == [1]
    assert formats_of_its_own(ast.parse('f"a {1e3 * x:.3f} ms b"')) == [1]
    assert formats_of_its_own(ast.parse('f"{x} ms, {y:.3f} MB"')) == []
