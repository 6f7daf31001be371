"""A page is one file whose data is what went in, whatever ops are called."""

import base64
import hashlib
import html
import json
import re

import pytest

from tests.tf_placer.report_page.drawn_pages import HOSTILE, layered_problem, page_of
from tf_placer.report_page.page import page_html

_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)


@pytest.fixture(scope="module")
def text() -> str:
    return page_html(page_of(layered_problem(40)))


def test_the_data_is_what_went_in(text: str) -> None:
    attributes, data = _SCRIPT.findall(text)[0]
    assert 'type="application/json"' in attributes
    section = json.loads(data)["sections"][0]
    assert section["notes"] == [f"A note about {HOSTILE}"]
    ops = section["plan"]["ops"]
    assert section["plan"]["scopes"][ops["scope"][1]] + ops["leaf"][1] == f"model/layer_0/{HOSTILE}"


def test_no_name_ends_a_script_or_begins_one(text: str) -> None:
    assert len(_SCRIPT.findall(text)) == 3, "data, library, page"
    assert not set("<>&") & set(_SCRIPT.findall(text)[0][1])
    assert f"<title>{html.escape('layered <b> on k40x2')}</title>" in text


def test_only_scripts_of_the_package_may_run(text: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    directives = dict(part.split(maxsplit=1) for part in policy[1].split("; "))
    assert directives["default-src"] == "'none'"
    allowed = {word.removeprefix("'sha256-").removesuffix("'") for word in directives["script-src"].split()}
    for _, script in _SCRIPT.findall(text)[1:]:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in allowed


def test_nothing_that_is_shown_goes_in_as_html(text: str) -> None:
    own = _SCRIPT.findall(text)[2][1]
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b", own)


def test_a_large_program_stays_below_four_megabytes() -> None:
    assert len(page_html(page_of(layered_problem(12_000))).encode()) < 4e6
