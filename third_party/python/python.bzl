"""A Python toolchain from an interpreter that is already on this machine."""

load("//third_party/python:interpreter.bzl", "ENVIRON", "find_interpreter")

_BUILD = """\
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

py_runtime(
    name = "runtime",
    interpreter_path = "{interpreter}",
    python_version = "PY3",
    # Otherwise a test is started through `env python`, which a machine need not have.
    stub_shebang = "#!{interpreter}",
)

py_runtime_pair(
    name = "runtime_pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _local_python_impl(repository_ctx):
    interpreter = find_interpreter(repository_ctx)
    repository_ctx.file("BUILD", _BUILD.format(interpreter = interpreter))

local_python = repository_rule(
    implementation = _local_python_impl,
    attrs = {"workspace_file": attr.label(default = Label("@device_placement//:WORKSPACE"))},
    environ = ENVIRON,
    local = True,
    doc = "A toolchain around PYTHON_BIN_PATH or the workspace's .venv/bin/python.",
)
