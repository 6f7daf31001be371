# Everything a fresh clone needs: `make test` and `make demo` set up what they use, once.
# Needs Python 3.11, g++ and make; `make bazel-test` also needs Bazel 4.

PYTHON_FOR_VENV ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PYTHON := $(VENV)/bin/python

# A stamp is written only after its step succeeded, so an interrupted step is run again.
VENV_STAMP := $(VENV)/.stamp
OP_STAMP := $(VENV)/.op.stamp
OP_SOURCES := $(wildcard tf_placer/ops/cc/*.* tf_placer/workers/cc/*.cc) \
  $(wildcard tf_placer/rewrite/cc/*.cc tf_placer/rewrite/cc/*.h) tf_placer/rewrite/plug_in.py \
  tf_placer/ops/build.py tf_placer/workers/fork_server.py tf_placer/base/native.py \
  tools/compile_libraries.py

export TF_CPP_MIN_LOG_LEVEL ?= 2
# The tests start many processes; compiling every module again takes each a second or two.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup demo test test-medium test-slow test-equivalence test-fleet test-all bazel-test results pictures format clean
.DEFAULT_GOAL := setup

setup: $(OP_STAMP)

$(VENV_STAMP): requirements.txt
	@$(PYTHON_FOR_VENV) -c 'import sys; v = sys.version_info[:2]; v == (3, 11) or sys.exit( \
	  f"Python 3.11 is needed; {sys.executable} is {v[0]}.{v[1]}: make PYTHON_FOR_VENV=/path/to/python3.11")'
	$(PYTHON) -m pip --version >/dev/null 2>&1 || $(PYTHON_FOR_VENV) -m venv --clear $(VENV)
	$(PYTHON) -m pip install --requirement requirements.txt
	touch $@

$(OP_STAMP): $(VENV_STAMP) $(OP_SOURCES)
	$(PYTHON) -m tools.compile_libraries
	touch $@

# The demo is for reading: what TensorFlow logs at start-up as errors (no GPU, say) stays off.
demo: export TF_CPP_MIN_LOG_LEVEL = 3
demo: setup
	$(PYTHON) -m experiments.demo

# Two processes take whole files in turn; what must be alone is (conftest.py). The last line has the sum and the time.
IN_TWO := --numprocesses=2 --dist=loadfile --no-loadscope-reorder
test: setup
	$(PYTHON) -m pytest $(IN_TWO) -m "not medium and not slow and not equivalence and not fleet"

# The fast tests that take seconds each. Continuous integration runs these too; it runs none of the targets below.
test-medium: setup
	$(PYTHON) -m pytest $(IN_TWO) -m "medium and not slow and not equivalence and not fleet"

# What takes longest comes first: 37 to 90 minutes, by what runs beside it. Give each suite a clone of its own: a test that must be
# alone waits for all others of its checkout.
test-slow: setup
	$(PYTHON) -m pytest $(IN_TWO) --verbose -m slow

# 10,000 random programs and placements, the bugs that these must catch, and 3,000 steps with the batch in parts.
test-equivalence: setup
	$(PYTHON) -m pytest $(IN_TWO) --verbose -m equivalence

# Actors and the driver of a fleet on this machine, killed at random: ten minutes.
test-fleet: setup
	@$(PYTHON) -c "import ray" || { echo "test-fleet needs Ray: $(PYTHON) -m pip install 'ray>=2.52'" >&2; exit 1; }
	$(PYTHON) -m pytest -m fleet -s tests/tf_placer/fleet

test-all: setup
	$(PYTHON) -m pytest

# Bazel builds its own copy of the op; it takes only TensorFlow and the interpreter from .venv.
bazel-test: $(VENV_STAMP)
	bazel test //...

# After a change of costs: facts, tables and studies of described devices, each with its page. Many hours; goes on when killed.
results: setup
	$(PYTHON) -m experiments.results

# README's pictures, of a report that is made for them: a minute and a half. Needs Debian's package chromium.
pictures: setup
	$(PYTHON) -m tf_placer place --workload=inception_v3 --cluster=k40x2 --budget_s=60 --out=out/picture
	$(PYTHON) -m tools.report_picture out/picture/report.html

format: $(VENV_STAMP)
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

clean:
	rm -rf $(VENV) build out *.egg-info .pytest_cache .ruff_cache .mypy_cache
