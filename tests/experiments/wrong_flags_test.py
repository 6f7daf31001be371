"""Whatever is wrong with a flag of an experiment ends with status 2 and one line, before any work."""

import pathlib
import sys

import pytest
from absl import flags

import experiments
from experiments.main_program import status_of
from tests.conformance.wrong_flag_values import wrong_values
from tests.experiments.without_flags import loaded

NAMES = sorted(
    path.stem
    for path in pathlib.Path(experiments.__file__).parent.glob("*.py")
    if path.stem not in ("__init__", "main_program")
)
# Of texts and lists: values that cannot be. FILE is there.
OF_NAME = {
    "cluster": ("k40x3", "nowhere.toml"),
    "course": ("generatd", "generated:", "generated:0", "generated:ten", "workloads:3"),
    "figures": ("FILE/figures.json",),
    "fjsp": ("nowhere", "FILE"),
    "leave_out": ("gnmd", "gnmt,wavenett"),
    "method": ("hpd",),
    "methods": ("hpd", "hdp,hpd"),
    "out": ("FILE", "FILE/out", "FILE/out.npz"),
    "programs": ("dense_smal:k40x2", "dense_small:k40x3", "dense_small"),
    "sizes": ("0", "10,ten", "-5"),
    "stg": ("nowhere", "FILE"),
    "workload": ("dense_smal",),
    "workloads": ("dense_smal", "dense_small,dense_smal"),
}


@pytest.fixture(scope="module")
def flags_by_name() -> dict[str, flags.FlagValues]:
    # What other tests have loaded in this process comes first: two programs cannot have a flag of one name at a time.
    loaded_first = sorted(NAMES, key=lambda name: f"experiments.{name}" not in sys.modules)
    return {name: loaded(name)[1] for name in loaded_first}


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_flag_is_one_line(flags_by_name, name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    values = flags_by_name[name]
    assert list(values), "it has no flag; the test looks in the wrong place"
    for flag in values:
        for value in (text.replace("FILE", "file") for text in wrong_values(values[flag], OF_NAME)):
            values.unparse_flags()
            for one in values:
                values[one].unparse()
            status = status_of(no_work, values, [f"experiments/{name}.py", f"--{flag}={value}"])
            error = capsys.readouterr().err
            what = f"{name} --{flag}={value}: {error}"
            assert status == 2, what
            assert len(error.splitlines()) == 1, what
            assert f"--{flag}" in error and ("; " in error or ": " in error), what
            assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def no_work() -> None:
    """What a right command line would begin with."""


@pytest.mark.parametrize("name", NAMES)
def test_good_flags_begin_the_work(flags_by_name, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values, begun = flags_by_name[name], []
    for one in values:
        values[one].unparse()
    assert status_of(lambda: begun.append(name), values, [name]) == 0
    assert begun == [name]


def test_columns_of_a_table_are_methods_there(flags_by_name, capsys):
    values, begun = flags_by_name["study"], []
    for columns, status in (("hdp_paper,single", 0), ("hdp_papr", 2)):
        for one in values:
            values[one].unparse()
        argv = ["study", "--study=hdp_2018", f"--methods={columns}"]
        assert status_of(lambda: begun.append("study"), values, argv) == status
    assert len(begun) == 1
    assert "no candidate 'hdp_papr'; did you mean 'hdp_paper'" in capsys.readouterr().err


def test_a_flag_that_there_is_not_and_help(flags_by_name, capsys):
    assert status_of(no_work, flags_by_name["demo"], ["demo", "--sead=1"]) == 2
    assert capsys.readouterr().err == "demo: demo has no flag --sead; did you mean '--seed'?\n"
    assert status_of(no_work, flags_by_name["demo"], ["demo", "--help"]) == 0
    assert "--seed" in capsys.readouterr().out
