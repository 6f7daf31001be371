"""Folders of Python modules."""

def python_folder(name, data = [], deps = []):
    """One py_library of all modules below a package, and `checkout`, every file as it is in the repository.

    Args:
      name: of the library, as a rule that of the folder.
      data: built elsewhere.
      deps: libraries that the modules import.
    """
    native.py_library(
        name = name,
        srcs = native.glob(["**/*.py"], exclude = ["**/*_test.py"]),
        data = native.glob(
            ["**/*.*"],
            exclude = ["**/*.py", "**/*.pyc", "**/*.so", "**/*.new"],
        ) + data,
        deps = deps,
    )

    # For the tests that read the checkout itself.
    native.filegroup(
        name = "checkout",
        srcs = native.glob(["**"], exclude = ["**/*.pyc", "**/*.so"]),
    )
