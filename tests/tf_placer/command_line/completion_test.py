"""Completion in shells: what bash offers is asked of bash itself; zsh and fish parse theirs where they are there."""

import io
import shutil
import subprocess

import pytest
import rich.console

from tf_placer import workloads
from tf_placer.__main__ import COMMANDS, run
from tf_placer.cluster.device import preset_names
from tf_placer.command_line.check_flags import CommandWords, FlagWords, completion
from tf_placer.planning.request import SHELLS
from tf_placer.search import methods


@pytest.fixture(scope="module")
def scripts():
    """Shell -> what the command prints for it."""
    found = {}
    for shell in SHELLS:
        console = rich.console.Console(file=io.StringIO(), width=80)
        assert run(["completion", shell], console) == 0
        found[shell] = console.file.getvalue()
    return found


def offered(script, *words):
    """What bash offers for the last of some words."""
    listed = " ".join(f"'{word}'" for word in ("tf-placer", *words))
    ask = f'COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _tf_placer; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_and_their_flags(scripts):
    bash = scripts["bash"]
    assert offered(bash, "") == list(COMMANDS)
    assert offered(bash, "com") == ["compare", "completion"]
    assert offered(bash, "place", "--clu") == ["--cluster="]
    assert offered(bash, "place", "--com") == ["--complete_plan"]
    assert offered(bash, "clusters", "--") == ["--json"]
    assert offered(bash, "completion", "f") == ["fish"]
    assert offered(bash, "plcae", "--") == []


def test_bash_completes_values(scripts):
    bash = scripts["bash"]
    p100 = [name for name in preset_names() if name.startswith("p100")]
    assert offered(bash, "place", "--cluster", "=", "p100") == p100
    assert offered(bash, "place", "--cluster=p100") == [f"--cluster={name}" for name in p100]
    assert offered(bash, "place", "--cluster", "p100") == p100
    assert (
        offered(bash, "place", "--json", "p100") == []
    )  # a flag without a value: no file of that name either
    assert offered(bash, "place", "--workload", "=") == list(workloads.names())
    assert offered(bash, "place", "--write", "=", "") == ["fastest", "method"]
    assert offered(bash, "train", "--method", "=", "") == list(methods.names())
    assert offered(bash, "compare", "--methods", "=", "single,ran") == ["single,random"]
    assert offered(bash, "doctor", "--clear=plans,pro") == ["--clear=plans,profiles"]
    assert offered(bash, "place", "--out", "=", "x") == []  # bash itself offers files then


def test_fish_has_every_command_flag_and_value_and_zsh_runs_the_script_of_bash(scripts):
    for name, command in COMMANDS.items():
        assert name in scripts["fish"] and command.help in scripts["fish"]
    for word in (*workloads.names(), *preset_names(), *methods.names(), "-l json"):
        assert word in scripts["fish"]
    assert scripts["zsh"] == f"autoload -U +X bashcompinit && bashcompinit\n{scripts['bash']}"
    for shell in filter(shutil.which, SHELLS):
        subprocess.run([shell, "-n"], input=scripts[shell], text=True, check=True, timeout=120)


def test_help_cannot_end_a_quoted_text():
    flag = FlagWords("out", 'It\'s "that": `x` [or] $(rm)\n\\')
    for shell in SHELLS:
        script = completion(shell, {"place": CommandWords("do it", (flag,))})
        assert "It's" not in script and "$(rm)" not in script
