"""Completion in shells: words that may stand where one is typed, and scripts that ask for them."""

import io
import shutil
import subprocess
import sys

import pytest
import rich.console

from tf_placer import workloads
from tf_placer.__main__ import COMMANDS, run
from tf_placer.cluster.cluster import preset_names
from tf_placer.command_line.check_flags import completions
from tf_placer.planning.request import SHELLS
from tf_placer.search import methods

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
