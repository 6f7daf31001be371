"""Test files run by pytest under Bazel."""

def pytest_tests(files, alone, data = {}, **kwargs):
    """One py_test for each folder, which runs its fast tests in one process, and a test_suite with the folder's name.

    TensorFlow is imported once for a folder. What is below the second folder belongs to that: `bazel test
    //tests:docs //tests:tf_placer/search`. A suite of a first folder has the folders below it.

    Args:
      files: paths of test files below the package.
      alone: those that measure times; they are in a test of their own, and Bazel runs nothing beside it.
      data: files that the tests of a folder read, by the folder.
      **kwargs: passed to every py_test.
    """
    tests = {"alone": alone}
    for file in files:
        if file not in alone:
            folder = "/".join(file.split("/")[:-1][:2])
            tests[folder] = tests.get(folder, []) + [file]

    suites = {}
    for folder, members in tests.items():
        # A name below the folder's: its own is that of the sources.
        name = (folder + "/fast_tests").lstrip("/")
        read = {"//:pytest_config": True}
        for file in members:
            folders = file.split("/")[:-1]
            for depth in range(1, len(folders) + 1):
                for one in data.get("/".join(folders[:depth]), []):
                    read[one] = True
        for depth in range(1, len(folder.split("/")) + 1):
            suite = "/".join(folder.split("/")[:depth])
            suites[suite] = suites.get(suite, []) + [name]
        native.py_test(
            name = name,
            srcs = ["//tools:pytest_main.py"] + members,
            main = "//tools:pytest_main.py",
            args = ["$(rootpath %s)" % file for file in members],
            data = read.keys(),
            # Two cores run two tests at a time, some of which trace whole models or start worker processes.
            timeout = "eternal",
            tags = ["exclusive"] if folder == "alone" else [],
            **kwargs
        )
    for suite, names in suites.items():
        if suite:
            native.test_suite(name = suite, tests = names)
