"""The installed TensorFlow's headers and framework library, as Bazel targets."""

load("//third_party/python:interpreter.bzl", "ENVIRON", "find_interpreter")

# Prints the package's directory, its compile flags, its version; warnings of the import go to stderr.
_PROBE = """\
import tensorflow as tf
print(tf.sysconfig.get_include())
print(tf.sysconfig.get_lib())
print(*(flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")))
print(tf.__version__)
"""

_FRAMEWORK = "libtensorflow_framework.so.2"

_BUILD = """\
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    # Some headers have no extension (Eigen's), so everything is taken.
    hdrs = glob(["include/**"]),
    includes = ["include"],
)

cc_import(
    name = "framework",
    shared_library = "{framework}",
)
"""

_FLAGS = """\
COPTS = {flags}
VERSION = "{version}"
"""

def _local_tensorflow_impl(repository_ctx):
    interpreter = find_interpreter(repository_ctx)
    probe = repository_ctx.execute([interpreter, "-c", _PROBE])
    if probe.return_code:
        fail("%s cannot import TensorFlow; install requirements.txt into it:\n%s" %
             (interpreter, probe.stderr))
    include, library_dir, flags, version = probe.stdout.strip().split("\n")
    repository_ctx.symlink(include, "include")
    repository_ctx.symlink(library_dir + "/" + _FRAMEWORK, _FRAMEWORK)
    repository_ctx.file("BUILD", _BUILD.format(framework = _FRAMEWORK))
    repository_ctx.file("flags.bzl", _FLAGS.format(flags = repr(flags.split(" ")), version = version))

local_tensorflow = repository_rule(
    implementation = _local_tensorflow_impl,
    attrs = {"workspace_file": attr.label(default = Label("@device_placement//:WORKSPACE"))},
    environ = ENVIRON,
    local = True,
    doc = "Targets :headers and :framework, and COPTS and VERSION in flags.bzl, of the interpreter's TensorFlow.",
)
