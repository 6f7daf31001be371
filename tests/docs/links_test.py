"""Links between the pages lead somewhere, and every page is reached from the README."""

import pathlib
import re

from tests.docs.pages import pages, read

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def links_of(page: pathlib.Path) -> list[str]:
    """Targets of a page's links and pictures that are files here, without what follows a ``#``."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL)
    found = [target for target in _LINK.findall(text) if not re.match(r"[a-z]+:", target)]
    return [target.partition("#")[0] for target in found if not target.startswith("#")]


def test_links_lead_to_files(root: pathlib.Path) -> None:
    broken = [
        f"{page.relative_to(root)} links to {target}"
        for page in pages(root)
        for target in links_of(page)
        if not (page.parent / target).exists()
    ]
    assert broken == [], "\n".join(broken)


def test_every_page_and_picture_is_reached_from_the_readme(root: pathlib.Path) -> None:
    reached, ahead = set(), [root / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        targets = {page.parent.joinpath(target).absolute() for target in links_of(page)}
        targets = {pathlib.Path(*normal_parts(target)) for target in targets}
        ahead += [target for target in targets - reached if target.suffix == ".md"]
        reached |= targets
    wanted = {*pages(root), *(root / "docs").rglob("*.png")}
    lost = sorted(str(page.relative_to(root)) for page in wanted - reached)
    assert lost == [], "no page that the README leads to has a link to these"


def normal_parts(path: pathlib.Path) -> list[str]:
    """Parts without ``..``; not resolved, because under Bazel files are links into the checkout."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return parts


def test_headings_that_links_name_are_there(root: pathlib.Path) -> None:
    wrong = []
    for page in pages(root):
        for file, heading in re.findall(r"\]\(([\w/.]*)#([^)\s]+)\)", read(page)):
            target = page.parent / file if file else page
            if heading not in anchors(read(target)):
                wrong.append(f"{page.relative_to(root)} links to #{heading}, which {target.name} lacks")
    assert wrong == [], "\n".join(wrong)


def anchors(text: str) -> list[str]:
    """What links call the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_a_broken_link_is_seen(tmp_path: pathlib.Path) -> None:
    (tmp_path / "README.md").write_text(
        "[a](docs/a.md) ![p](docs/p.png#x) [w](https://example.org) [t](#top)\n```python\nf[a](b)\n```\n"
    )
    assert links_of(tmp_path / "README.md") == ["docs/a.md", "docs/p.png"]
    assert anchors("# A `b`, c\n\n## Two words\n") == ["a-b-c", "two-words"]
