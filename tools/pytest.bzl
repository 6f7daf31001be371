"""A test file run by pytest under Bazel."""

def pytest_test(name, src, data = [], deps = [], **kwargs):
    """One py_test that runs the fast tests of one file.

    Args:
      name: of the target.
      src: the test file.
      data: files it reads.
      deps: libraries it imports.
      **kwargs: passed to py_test.
    """
    native.py_test(
        name = name,
        srcs = ["//tools:pytest_main.py", src],
        main = "//tools:pytest_main.py",
        args = ["$(rootpath %s)" % src],
        data = data + ["//:pytest_config"],
        deps = deps,
        # Two cores run two tests at a time, some of which trace whole models or start worker processes.
        timeout = "long",
        **kwargs
    )
