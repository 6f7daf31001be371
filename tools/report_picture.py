"""Takes README's picture of a report.

    python -m tf_placer place --workload=inception_v3 --cluster=k40x2 --budget_s=60 --out=out/picture
    python -m tools.report_picture out/picture/report.html

Needs Debian's package chromium, and the packages of requirements.txt.
"""

from __future__ import annotations

import pathlib
import shutil
import sys

from playwright.sync_api import sync_playwright

_PICTURE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "report.png"
_WIDTH, _HEIGHT = 1280, 1420  # to the end of the timeline, where six ways were tried


def main() -> None:
    """Opens the report that the command line names, and writes the picture of its upper part."""
    [report] = sys.argv[1:]
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium") or sys.exit("install Debian's package chromium"),
            args=["--no-sandbox"],
        )
        tab = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
        tab.goto(pathlib.Path(report).resolve().as_uri())
        tab.wait_for_selector("#timeline canvas")
        tab.screenshot(path=_PICTURE)
        browser.close()
    sys.stdout.write(f"wrote {_PICTURE}\n")


if __name__ == "__main__":
    main()
