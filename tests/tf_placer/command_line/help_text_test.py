"""Help, completion, ``--json``, ``--graph`` and settings of methods on the command line."""

import io
import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest
import rich.console

from tf_placer import workloads
from tf_placer.__main__ import COMMANDS, run, standard_output_silenced
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import preset_names
from tf_placer.command_line.check_flags import completions, help_text, parse
from tf_placer.command_line.request import method_settings
from tf_placer.planning.request import GROUPS, SHELLS, options_of
from tf_placer.search import methods


def help_of(name: str) -> list[str]:
    return help_text(name).splitlines()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_comes_first_and_is_one(name):
    lines = help_of(name)
    assert lines[:4] == [f"tf-placer {name}: {COMMANDS[name].help}", "", "example:", lines[3]]
    words = shlex.split(lines[3])
    assert words[:2] == ["tf-placer", name]
    parse(name, words[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_told_once_in_a_group(name):
    lines = help_of(name)
    for option in options_of(name):
        flag = option.name
        told = [
            line for line in lines if line.startswith((f"  --{flag}= ", f"  --{flag}  ", f"  --{flag}=\n"))
        ]
        told += [line for line in lines if line in (f"  --{flag}=", f"  FILE.py:NAME, --{flag}=")]
        needed = flag in COMMANDS[name].required and not option.metadata["default_of"][name]
        assert len(told) == 1, (flag, told)
        assert (f"  --{flag}" in lines) == needed
    headings = [line for line in lines if line.removesuffix(":") in GROUPS.values()]
    assert len(set(headings)) == len(headings)
    assert max(map(len, lines)) <= 110


def test_what_is_needed_is_told():
    lines = help_of("place")
    start = lines.index("needed:")
    assert lines[start + 1 : start + 4] == [
        "  one of --workload, FILE.py:NAME, --saved_model, --meta_graph or --graph",
        "  --cluster",
        "  --out",
    ]
    assert "needed:" not in help_of("clusters")


def test_defaults_and_choices_are_told():
    text = " ".join(" ".join(help_of("place")).split())
    assert "One of op, layer. Without: op." in text
    assert "Fixes everything random. Without: 0." in text
    assert "Without: False" not in text


P100 = [name for name in preset_names() if name.startswith("p100")]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("", list(COMMANDS)),
        ("com", ["compare", "completion"]),
        ("place --clu", ["--cluster="]),
        ("place --com", ["--complete_plan"]),
        ("clusters --", ["--json"]),
        ("completion f", ["fish"]),
        *[("plcae --", []), ("= x", [])],
        ("place --cluster = p100", P100),  # bash makes a word of "="
        ("place --cluster=p100", [f"--cluster={name}" for name in P100]),
        ("place --cluster p100", P100),
        ("place --json p100", []),  # a flag without a value: no file of that name either
        ("place --workload =", list(workloads.names())),
        ("place --write =", ["fastest", "method"]),
        ("train --method =", list(methods.names())),
        ("compare --methods = single,ran", ["single,random"]),
        ("doctor --clear=plans,pro", ["--clear=plans,profiles"]),
        ("place --out = x", []),  # the shell itself offers files then
    ],
)
def test_words_that_may_stand_there(words, offered):
    assert completions(words.split(" ")) == offered


def test_scripts_of_shells_ask_for_them():
    bash = ""
    for shell in SHELLS:
        console = rich.console.Console(file=io.StringIO(), width=80)
        assert run(["completion", shell], console) == 0
        script = console.file.getvalue()
        assert "tf-placer complete" in script
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=120)
        bash = script if shell == "bash" else bash
    program = f'tf-placer() {{ {sys.executable} -m tf_placer "$@"; }}'
    ask = 'COMP_WORDS=(tf-placer place --clu); COMP_CWORD=2; _tf_placer; printf "%s\\n" "${COMPREPLY[@]}"'
    command = ["bash", "--norc", "-c", f"{program}\n{bash}\n{ask}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout.split(), done.stderr) == (["--cluster="], "")


def test_python_and_the_system_print_to_standard_error_within(capfd):
    print("before")
    with standard_output_silenced():
        print("python")
        os.write(1, b"system\n")
        os.system("echo child")
    with pytest.raises(KeyError), standard_output_silenced():
        raise KeyError
    print("after")
    sys.stdout.flush()
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    assert sorted(err.split()) == ["child", "python", "system"]


def told(capsys, *argv):
    """The one line of a command that ends with status 2."""
    assert run([str(text) for text in argv]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_a_plan_of_such_a_graph_cannot_be_explained(tmp_path, capsys):
    plan = {
        "schema_version": 1,
        "fingerprint": 64 * "0",
        "made_for": {"graph": "vgg.txt", "cluster": "k40x2"},
        "devices": {"x": "/device:CPU:0"},
    }
    file = tmp_path / "placement.json"
    file.write_text(json.dumps(plan))
    line = told(capsys, "explain", f"--plan={file}", "--op=x")
    assert "was made for --graph=vgg.txt: this needs a program" in line


def test_a_setting_is_of_the_one_method_or_says_of_which():
    alone = method_settings(["num_groups=256", "learning_rate=1e-3"], None, ["hdp"])
    assert alone == {"hdp": {"num_groups": 256, "learning_rate": 1e-3}}
    several = method_settings(["hdp.num_groups=256", "random.batch=4"], None, ["random", "hdp"])
    assert several == {"hdp": {"num_groups": 256}, "random": {"batch": 4}}
    beside = method_settings(["num_groups=9", "random.batch=4"], None, ["hdp"], ["random", "single"])
    assert beside == {"hdp": {"num_groups": 9}, "random": {"batch": 4}}


def test_a_file_has_a_table_for_each_method_and_flags_win(tmp_path):
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
def test_a_wrong_setting_is_one_line(text, asked, message):
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
def test_a_wrong_file_is_one_line_that_names_it(content, message, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(content)
    with pytest.raises(InputError) as error:
        method_settings([], str(file), ["hdp"])
    assert str(error.value).startswith(f"--settings={file}") and message in str(error.value)
