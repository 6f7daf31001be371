"""Takes README's pictures of a report, on a wide screen and on a phone (`make pictures`).

    python -m tf_placer place --workload=inception_v3 --cluster=k40x2 --budget_s=60 --out=out/picture
    python -m tools.report_picture out/picture/report.html

Needs Debian's package chromium, and the packages of requirements.txt.
"""

from __future__ import annotations

import pathlib
import shutil
import sys

from playwright.sync_api import sync_playwright

_DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
# Picture -> width and height in pixels: to the end of the bars, and the first screen of a phone.
_PICTURES = {"report.png": (1280, 860), "report_phone.png": (390, 844)}


def main() -> None:
    """Opens the report that the command line names, and writes the pictures of its upper part."""
    [report] = sys.argv[1:]
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium") or sys.exit("install Debian's package chromium"),
            args=["--no-sandbox"],
        )
        for name, (width, height) in _PICTURES.items():
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
            tab.goto(pathlib.Path(report).resolve().as_uri())
            tab.wait_for_selector("#timeline canvas")
            tab.screenshot(path=_DOCS / name)
            sys.stdout.write(f"wrote {_DOCS / name}\n")
        browser.close()


if __name__ == "__main__":
    main()
