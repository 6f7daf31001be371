"""Test files run by pytest under Bazel."""

def pytest_tests(files, data = {}, **kwargs):
    """One py_test for each test file, which runs its fast tests, and one test_suite for each folder.

    A test is named by its path without the suffix, a suite by the folder, which has the folders below it:
    `bazel test //tests:docs/links_test //tests:tf_placer/search`.

    Args:
      files: paths of test files below the package.
      data: files that the tests of a folder read, by the folder.
      **kwargs: passed to every py_test.
    """
    suites = {}
    for file in files:
        name = file[:-len(".py")]
        folders = name.split("/")[:-1]
        read = []
        for depth in range(1, len(folders) + 1):
            folder = "/".join(folders[:depth])
            read = read + data.get(folder, [])
            suites[folder] = suites.get(folder, []) + [name]
        native.py_test(
            name = name,
            srcs = ["//tools:pytest_main.py", file],
            main = "//tools:pytest_main.py",
            args = ["$(rootpath %s)" % file],
            data = read + ["//:pytest_config"],
            # Two cores run two tests at a time, some of which trace whole models or start worker processes.
            timeout = "long",
            **kwargs
        )
    for folder, names in suites.items():
        native.test_suite(name = folder, tests = names)
