"""Settings of methods on the command line."""

import pathlib

import pytest

from tf_placer.base.arguments import InputError
from tf_placer.command_line.request import method_settings


def test_a_setting_is_of_the_one_method_or_says_of_which() -> None:
    alone = method_settings(["num_groups=256", "learning_rate=1e-3"], None, ["hdp"])
    assert alone == {"hdp": {"num_groups": 256, "learning_rate": 1e-3}}
    several = method_settings(["hdp.num_groups=256", "random.batch=4"], None, ["random", "hdp"])
    assert several == {"hdp": {"num_groups": 256}, "random": {"batch": 4}}
    beside = method_settings(["num_groups=9", "random.batch=4"], None, ["hdp"], ["random", "single"])
    assert beside == {"hdp": {"num_groups": 9}, "random": {"batch": 4}}


def test_a_file_has_a_table_for_each_method_and_flags_win(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("landmarks = 3\n[hdp]\nnum_groups = 8\nincumbent = false\n[random]\nbatch = 2\n")
    found = method_settings(["num_groups=9"], str(file), ["hdp"], ["random"])
    assert found == {"hdp": {"landmarks": 3, "num_groups": 9, "incumbent": False}, "random": {"batch": 2}}


@pytest.mark.parametrize(
    ("text", "asked", "message"),
    [
        ("num_groups", ["hdp"], "--set=num_groups is no setting; write --set=SETTING=VALUE"),
        ("=3", ["hdp"], "--set==3 is no setting"),
        ("num_group=3", ["hdp"], "--set=num_group=3: method 'hdp' has no setting 'num_group'; did you mean"),
        ("batch=3", ["random", "hdp"], "--set=batch=3 does not say which method's setting 'batch' is meant"),
        ("hpd.num_groups=3", ["hdp"], "no method of this run is called 'hpd'; did you mean 'hdp'"),
        ("random.batch=3", ["hdp"], "no method of this run is called 'random'"),
        ("num_groups=many", ["hdp"], "method 'hdp': num_groups is 'many'; give a whole number"),
        ("num_groups=2.5", ["hdp"], "num_groups is 2.5"),
        ("num_groups=true", ["hdp"], "num_groups is True"),
        ("num_groups=0", ["hdp"], "num_groups is 0"),
        ("incumbent=1", ["hdp"], "incumbent is 1; give True or False"),
        ("learning_rate=nan", ["hdp"], "learning_rate is nan"),
        ("depth=1", ["single"], "method 'single' has no setting 'depth'; it has none"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_line(text: str, asked: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        method_settings([text], None, asked)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[hdp", "is no TOML"),
        ("[hpd]\nnum_groups = 3", "no method of this run is called 'hpd'"),
        ("[hdp]\nnum_group = 3", "method 'hdp' has no setting 'num_group'"),
        ("num_groups = 'a'", "num_groups is 'a'"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(content: str, message: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(content)
    with pytest.raises(InputError) as error:
        method_settings([], str(file), ["hdp"])
    assert str(error.value).startswith(f"--settings={file}") and message in str(error.value)
