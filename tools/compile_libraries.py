"""Compiles all C++ libraries side by side: into the checkout, and from there into a wheel (``setup.py``).

python -m tools.compile_libraries [FOLDER]
"""

from __future__ import annotations

import pathlib
import shutil
import sys

from tf_placer.base.native import Library, compiled_all
from tf_placer.ops.build import ops_library
from tf_placer.rewrite.plug_in import plug_in_library
from tf_placer.workers.fork_server import LOOPBACK_LIBRARY

_ROOT = pathlib.Path(__file__).parent.parent


def all_libraries() -> list[Library]:
    """All that is compiled, for the installed TensorFlow."""
    return [ops_library(), plug_in_library(), LOOPBACK_LIBRARY]


def main() -> None:
    libraries = all_libraries()
    for library, path in zip(libraries, compiled_all(libraries), strict=True):
        for folder in sys.argv[1:]:
            shutil.copy(path, pathlib.Path(folder) / library.folder.relative_to(_ROOT) / library.file_name)
        print(path)


if __name__ == "__main__":
    main()
