"""docs/command_line.md says what the command line has, and every command line on a page is one."""

import dataclasses
import pathlib
import re

import pytest

import tf_placer
from tests.docs.pages import blocks, command_lines, pages, read, table_rows
from tf_placer import __main__ as command_line
from tf_placer.base.arguments import InputError
from tf_placer.cluster import device as cluster_file
from tf_placer.command_line.check_flags import parse
from tf_placer.planning.request import options_of
from tf_placer.report.views import RESULTS

PAGE = pathlib.Path("docs") / "command_line.md"


def code(cell: str) -> list[str]:
    """What stands in backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def flag_faults(rows: list[list[str]]) -> list[str]:
    """Where rows of flag, default, commands and meaning differ from the flags that there are."""
    wrong = []
    actual = {command: defaults(command) for command in command_line.COMMANDS}
    listed = {code(row[0])[0].removeprefix("--"): row for row in rows}
    wrong += [
        f"--{name} has several rows" for name in listed if sum(f"`--{name}`" == row[0] for row in rows) > 1
    ]
    for name in sorted({name for found in actual.values() for name in found} - listed.keys()):
        wrong.append(f"--{name} is missing; its row: {row_for(name, actual)}")
    for name, (_, default, commands, meaning) in listed.items():
        having = {command for command, found in actual.items() if name in found}
        if set(code(commands)) != having:
            wrong.append(f"--{name} is a flag of {sorted(having)}, the page says {sorted(code(commands))}")
        wanted = default_words(name, having, actual)
        if set(code(default)) != wanted or ("needed" in default) != is_needed(name):
            wrong.append(f"--{name}: the cell of its default must have {sorted(wanted)} as code")
        if not meaning:
            wrong.append(f"--{name} has no meaning")
    return wrong


def defaults(command: str) -> dict[str, str]:
    """Flag -> its default as it is typed, "" for none."""
    values = {option.name: option.metadata["default_of"][command] for option in options_of(command)}
    return {
        name: ""
        if value in (None, ())
        else ",".join(value)
        if isinstance(value, tuple)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
        for name, value in values.items()
    }


def is_needed(name: str) -> bool:
    """Whether a command requires the flag and has no default for it."""
    return any(
        name in one.required and not defaults(command)[name] for command, one in command_line.COMMANDS.items()
    )


def default_words(name: str, having: set[str], actual: dict[str, dict[str, str]]) -> set[str]:
    """Defaults, and, where not all commands have the same, the commands that have one or need the flag."""
    texts = {command: actual[command][name] for command in having}
    needing = {
        command
        for command in having
        if name in command_line.COMMANDS[command].required and not texts[command]
    }
    words = {text for text in texts.values() if text} | needing
    if len(set(texts.values())) > 1:
        words |= {command for command, text in texts.items() if text}
    return words


def row_for(name: str, actual: dict[str, dict[str, str]]) -> str:
    """A row to begin with, for whoever adds a flag."""
    having = [command for command, found in actual.items() if name in found]
    default = actual[having[0]][name]
    [about] = [option.metadata["about"] for option in options_of(having[0]) if option.name == name]
    return f"| `--{name}` | {f'`{default}`' if default else ''} | {' '.join(f'`{c}`' for c in having)} | {about} |"


def flag_rows(root: pathlib.Path) -> list[list[str]]:
    return [row for row in table_rows(root / PAGE) if row[0].startswith("`--")]


def test_the_page_has_the_flags_that_there_are(root):
    wrong = flag_faults(flag_rows(root))
    assert wrong == [], "\n".join(wrong)


def test_other_flags_defaults_and_commands_are_seen(root):
    rows = flag_rows(root)
    [seed] = [row for row in rows if row[0] == "`--seed`"]
    without = [row for row in rows if row is not seed]
    [missing] = flag_faults(without)
    assert missing.startswith("--seed is missing; its row: | `--seed` | `0` | `place` `compare` `train` | ")
    for changed in (
        [seed[0], "`1`", *seed[2:]],
        [seed[0], "", *seed[2:]],
        [seed[0], seed[1], "`place`", seed[3]],
        ["`--sede`", *seed[1:]],
    ):
        assert flag_faults([*without, changed]), changed


def test_the_page_has_the_commands_that_there_are(root):
    listed = {code(row[0])[0]: row[1] for row in table_rows(root / PAGE) if row[0].startswith("[`")}
    assert listed == {name: command.help for name, command in command_line.COMMANDS.items()}
    headings = ", ".join(re.findall(r"^## (.*)$", read(root / PAGE), re.MULTILINE)).split(", ")
    assert set(listed) <= set(headings)


def test_the_page_has_the_exit_statuses(root):
    listed = [int(row[0]) for row in table_rows(root / PAGE) if row[0].isdecimal()]
    assert listed == [command_line.OK, command_line.OUR_FAILURE, command_line.BAD_INPUT]


def test_the_page_has_the_files_of_a_run(root):
    rows = table_rows(root / PAGE)
    first = next(i for i, row in enumerate(rows) if row[0] == "file in `--out`")
    assert {code(row[0])[0] for row in rows[first + 1 :][: len(RESULTS)]} == set(RESULTS)


def test_the_page_has_the_keys_of_a_cluster_file(root):
    rows = table_rows(root / PAGE)
    for table, keys in (("[[device]]", cluster_file.DeviceTable), ("[[link]]", cluster_file.LinkTable)):
        first = next(i for i, row in enumerate(rows) if row[0] == f"key of `{table}`")
        listed = set()
        for row in rows[first + 1 :]:
            if row[0].startswith("key of"):
                break
            listed |= set(code(row[0]))
        assert listed | {"type"} == {field.name for field in dataclasses.fields(keys)}, table


def test_the_pages_cluster_file_is_one(root, tmp_path):
    [block] = blocks(root / PAGE, "toml")
    (tmp_path / "box.toml").write_text(block.text)
    cluster = tf_placer.Cluster.from_file(tmp_path / "box.toml")
    assert [device.type for device in cluster.devices] == ["GPU", "GPU", "CPU"]
    assert cluster.devices[0].memory_bytes == 12_000_000_000  # replaces the model's


def test_command_lines_on_the_pages_parse(root):
    found = [(page, line) for page in pages(root) for line in command_lines(read(page))]
    found = [(page, line) for page, line in found if line[0] != "COMMAND"]
    assert {line[0] for page, line in found if page == root / PAGE} == command_line.COMMANDS.keys()
    for page, line in found:
        assert line[0] in command_line.COMMANDS, f"{page.name}: {line}"
        try:
            parse(line[0], line)
        except InputError as error:
            pytest.fail(f"{page.relative_to(root)}: {' '.join(line)}: {error}")
