"""Every page of results says which command, seed, machine and day its figures are of."""

import csv
import pathlib
import re

import pytest

from tests.docs.pages import read, table_rows
from tf_placer import workloads
from tf_placer.command_line.list_workloads import as_markdown
from tf_placer.planning.request import options_of

FIELDS = {
    "Command": r"`[^`]+`",
    "Seed": r"\d",
    "Machine": r"\d+ cores?, \d+ GiB.*GPU.*TensorFlow 2\.\d+, Python 3\.\d+",
    "Date": r"^20\d\d-[01]\d-[0-3]\d$",
}


def result_pages(root: pathlib.Path) -> list[pathlib.Path]:
    found = sorted(page for page in (root / "docs" / "results").glob("*.md") if page.name != "README.md")
    assert found, "no page of results: the test looks in the wrong place"
    return found


def faults(text: str) -> list[str]:
    """What a page does not say."""
    wrong = []
    for field, pattern in FIELDS.items():
        lines = re.findall(rf"^- {field}: (.+)$", text, re.MULTILINE)
        if len(lines) != 1:
            wrong.append(f"{len(lines)} lines begin with '- {field}: ', one is wanted")
        elif not re.search(pattern, lines[0]):
            wrong.append(f"'- {field}: {lines[0]}' does not match {pattern}")
    return wrong


def unknown_in_commands(root: pathlib.Path, text: str) -> list[str]:
    """Modules, flags and targets of a page's ``Command`` line that do not exist."""
    wrong = []
    [line] = re.findall(r"^- Command: (.+)$", text, re.MULTILINE)
    for command in re.findall(r"`([^`]+)`", line):
        target = re.match(r"(?:[A-Z_]+=\S+ )*make (\S+)", command)
        if target and not re.search(rf"^{target[1]}:", read(root / "Makefile"), re.MULTILINE):
            wrong.append(f"{command}: the Makefile has no target {target[1]}")
        module = re.search(r"python -m (\S+)", command)
        if module:
            file = root / (module[1].replace(".", "/") + ".py")
            if module[1] == "tf_placer":
                name = re.search(r"tf_placer (\w+)", command)[1]
                defined = "".join(f'"{option.name}"' for option in options_of(name))
            elif not file.is_file():
                wrong.append(f"{command}: there is no {file.relative_to(root)}")
                continue
            else:
                defined = read(file)
            wrong += [
                f"{command}: {module[1]} has no flag --{flag}"
                for flag in re.findall(r"--(\w+)", command)
                if f'"{flag}"' not in defined and f"= {flag}_flag(" not in defined
            ]
    return wrong


def test_every_page_says_command_seed_machine_and_date(root):
    wrong = [f"{page.name}: {fault}" for page in result_pages(root) for fault in faults(read(page))]
    assert wrong == [], "\n".join(wrong)


def test_the_commands_exist(root):
    wrong = [
        f"{page.name}: {fault}"
        for page in result_pages(root)
        for fault in unknown_in_commands(root, read(page))
    ]
    assert wrong == [], "\n".join(wrong)


def test_the_index_lists_every_page(root):
    listed = re.findall(r"\]\((\w+\.md)\)", read(root / "docs" / "results" / "README.md"))
    assert sorted(listed) == [page.name for page in result_pages(root)]


def test_the_readmes_table_links_its_results(root):
    rows = [row for row in table_rows(root / "README.md") if len(row) == 3][1:]
    assert len(rows) >= 3, "the README has one table: what, result, page"
    for *_, page in rows:
        assert re.fullmatch(r"\[\w+\]\(docs/results/\w+\.md\)", page), page


def test_the_readme_and_the_page_quote_the_same_minutes(root):
    page, readme = (read(root / name).replace(",", "") for name in ("docs/results/split.md", "README.md"))
    for row in csv.DictReader(read(root / "docs" / "results" / "split_minute.csv").splitlines()):
        parallel, parts = row["data_parallel_ms"], row["parts_ms"]
        assert f"| {row['workload']} on {row['cluster']} | {parallel} | {row['whole_ms']} | {parts} |" in page
        is_quoted = row["workload"] in ("inception_v3", "bert_base")
        assert is_quoted == (f"{parallel} ms data parallel {parts} ms split and placed" in readme)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("- Date: 2026-11-22", "- Date: yesterday", "Date"),
        ("- Seed: 0", "", "0 lines begin with '- Seed: '"),
        ("no GPU; ", "", "Machine"),
        ("`make demo`", "the demo", "Command"),
    ],
)
def test_a_page_that_leaves_something_out_is_seen(old, new, fault):
    page = (
        "# Title\n\n- Command: `make demo`\n- Seed: 0\n"
        "- Machine: 2 cores, 24 GiB of memory, no GPU; TensorFlow 2.21, Python 3.11\n- Date: 2026-11-22\n"
    )
    assert faults(page) == []
    [seen] = faults(page.replace(old, new))
    assert fault in seen


def test_a_command_that_does_not_exist_is_seen(root):
    assert unknown_in_commands(root, "- Command: `python -m experiments.demo --seed=1`") == []
    for command in ("make demon", "python -m experiments.demon", "python -m experiments.demo --sede=1"):
        assert unknown_in_commands(root, f"- Command: `{command}`"), command


def test_the_page_of_workloads_is_what_the_command_prints(root):
    assert f"\n\n{as_markdown(workloads.names())}\n\n" in read(root / "docs" / "results" / "workloads.md")
