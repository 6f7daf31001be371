"""Finds the Python interpreter that has TensorFlow."""

# Repository rules that call find_interpreter name these in `environ`, to be re-run when they change.
ENVIRON = ["PYTHON_BIN_PATH"]

def find_interpreter(repository_ctx):
    """Returns the interpreter's path: PYTHON_BIN_PATH, else the workspace's own .venv.

    Args:
      repository_ctx: of a rule with a label attribute `workspace_file` in the main repository.
    """
    named = repository_ctx.os.environ.get("PYTHON_BIN_PATH", "")
    if named:
        if not repository_ctx.path(named).exists:
            fail("PYTHON_BIN_PATH is %s, which does not exist" % named)
        return named
    workspace = repository_ctx.path(repository_ctx.attr.workspace_file).dirname
    # Not resolved: a virtual environment is known by where its link lies, not by what it points to.
    interpreter = workspace.get_child(".venv").get_child("bin").get_child("python")
    if not interpreter.exists:
        fail("no interpreter at %s: run `make setup` first, or pass " % interpreter +
             "--repo_env=PYTHON_BIN_PATH=/path/to/python of an environment with requirements.txt installed")
    return str(interpreter)
