"""The page in a real browser: it draws, its numbers are those of the data, it answers to pointer, keys and theme."""

import dataclasses
import pathlib
import re
import shutil
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.tf_placer.report_page.drawn_pages import HOSTILE, layered_problem, page_of
from tf_placer.base.quantities import milliseconds
from tf_placer.problem.placement import Placement
from tf_placer.report_page.page import Page, page_html

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip(
        "no browser to open report.html in: install Debian's package chromium to run these tests",
        allow_module_level=True,
    )
playwright = pytest.importorskip("playwright.sync_api")

_CHART = "echarts.getInstanceByDom(document.querySelector('#timeline .chart'))"
_PIXELS = """() => [...document.querySelectorAll("canvas")].map((canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(data.buffer)).size;
})"""
# Zooms in step by step; milliseconds of each redraw.
_REDRAWS = f"""() => Array.from({{ length: 40 }}, (_, i) => {{
  const begin = performance.now();
  {_CHART}.dispatchAction({{ type: "dataZoom", dataZoomIndex: 0, start: i, end: 100 - i }});
  {_CHART}.getZr().flush();
  return performance.now() - begin;
}})"""
# Where the middle of an op's box is, as the chart has it.
_PLACE_OF = f"""([ns, y]) => {{
  const box = document.querySelector("#timeline .chart").getBoundingClientRect();
  const [x, below] = {_CHART}.convertToPixel("grid", [ns, y]);
  return [box.x + x, box.y + below];
}}"""
# All texts that charts show, axes included.
_TEXTS = """() => [...document.querySelectorAll(".chart")].flatMap((place) => {
  const all = echarts.getInstanceByDom(place).getZr().storage.getDisplayList(true);
  return all.filter((shape) => shape.type === "tspan").map((shape) => shape.style.text);
})"""
# Boxes of what links lanes on the critical path, and of the lanes' labels, in pixels of the chart.
_LINKS_AND_LABELS = f"""() => {{
  const all = {_CHART}.getZr().storage.getDisplayList(true);
  const links = all.filter((shape) => shape.shape?.rectangles?.every(([, , width]) => width === 1));
  const labels = all.filter((shape) => shape.type === "tspan" && shape.style.text.endsWith("busy"));
  const box = (shape) => {{ const r = shape.getBoundingRect(); return [r.x, r.y, r.width, r.height]; }};
  return [links.at(-1).shape.rectangles, labels.map(box)];
}}"""
_FIRST_LANE = 25  # pixels to the middle of the boxes of the first device


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page() -> Page:
    return page_of(layered_problem(400))


@pytest.fixture(scope="module")
def file(page: Page, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_html(page), encoding="utf8")
    return path


@pytest.fixture
def opened(browser, file: pathlib.Path) -> Iterator[Callable]:
    """Opens the page; in the end nothing was complained of and nothing was loaded."""
    told: list[str] = []
    requested: list[str] = []
    contexts = []

    def open_page(path: pathlib.Path = file, width: int = 1280, height: int = 900, scheme: str = "light"):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: told.append(message.text))
        tab.on("pageerror", lambda error: told.append(str(error)))
        tab.on("dialog", lambda dialog: told.append(f"dialog: {dialog.message}"))
        tab.on("request", lambda request: requested.append(request.url))
        tab.goto(path.as_uri())
        tab.wait_for_selector("#timeline canvas")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert told == []
    assert {url.partition(":")[0] for url in requested} == {"file"} and len(requested) == len(contexts)


@pytest.fixture(scope="module")
def shared(browser, file: pathlib.Path) -> Iterator:
    """One tab for the tests that leave it as they find it, but for what ``tab`` resets; opening one takes a second."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    tab.goto(file.as_uri())
    yield tab
    tab.close()


@pytest.fixture
def tab(shared):
    shared.mouse.move(1, 1)
    shared.fill("#search", "")
    shared.check("#critical-path")
    shared.click("text=Whole step")
    return shared


def test_it_draws_every_part(opened):
    tab = opened()
    ids = tab.eval_on_selector_all("main > section", "all => all.map((section) => section.id)")
    assert ids == ["step-times", "timeline", "memory", "layers", "transfers", "progress", "apply"]
    colors = tab.evaluate(_PIXELS)
    assert len(colors) == 6 and min(colors) > 5, "step times, timeline, three memories, progress"


def test_its_numbers_are_those_of_the_data(tab, page):
    [section] = page.sections
    rows = tab.eval_on_selector_all(
        "#step-times > .scroll tbody tr", "all => all.map((row) => row.innerText)"
    )
    for row, shown in zip(section.step_times, rows, strict=True):
        assert shown.startswith(row["name"])
        for seconds in (row["simulated_s"], row["measured_s"]):
            assert milliseconds(seconds) in shown
    assert "-50.0%" in rows[0] and "1,234" in rows[0] and "1.00 GB" in rows[0]
    assert tab.inner_text(".verdict") == section.headline
    assert section.plan is not None
    sent = section.plan.transfers["bytes"]
    assert f"{len(sent):,} tensors cross, {sent.sum() / 1e6:.1f} MB" in tab.inner_text("#transfers")
    peaks = tab.inner_text("#memory")
    for curve, device in zip(section.plan.memory, section.plan.devices, strict=True):
        assert device["label"] in peaks
        gigabytes = device["capacity_bytes"] / 1e9
        assert f"of {gigabytes:.{1 if gigabytes < 100 else 0}f} GB" in peaks
        assert curve["peak_bytes"] < device["capacity_bytes"]


def test_names_stay_text(tab):
    tab.fill("#search", "</script>")
    assert tab.inner_text("#found-count") == "1 found"
    assert tab.text_content(".found .op") == f"model/layer_0/{HOSTILE}"
    assert HOSTILE in tab.text_content("#apply")
    assert tab.locator("img").count() == 0


def test_hover_shows_the_op_under_the_pointer(tab, page):
    view = page.sections[0].plan
    assert view is not None
    on_first = [i for i in range(len(view.ops["leaf"])) if view.ops["device"][i] == 0]
    op = max(on_first, key=lambda i: view.ops["duration_ns"][i])
    middle_ns = int(view.ops["start_ns"][op] + view.ops["duration_ns"][op] // 2)
    assert not tab.is_visible(".tip")
    tab.locator("#timeline").scroll_into_view_if_needed()
    tab.mouse.move(*tab.evaluate(_PLACE_OF, [middle_ns, _FIRST_LANE]))
    tip = tab.inner_text(".tip")
    assert tip.startswith(view.scopes[view.ops["scope"][op]] + view.ops["leaf"][op])
    assert "GPU:0" in tip and f"{view.ops['duration_ns'][op] / 1e3:.1f} µs" in tip
    tab.mouse.move(5, 5)
    assert not tab.is_visible(".tip")


def test_search_marks_an_op_and_zooms_to_it(tab, page):
    before = tab.locator("#timeline canvas").screenshot()
    tab.fill("#search", "OP_123")
    assert tab.inner_text("#found-count") == "1 found"
    marked = tab.locator("#timeline canvas").screenshot()
    assert marked != before
    tab.press("#search", "Enter")
    assert "model/layer_6/op_123" in tab.inner_text(".tip")
    view = page.sections[0].plan
    assert view is not None
    zoom = tab.evaluate(f"() => {_CHART}.getOption().dataZoom[0]")
    assert zoom["startValue"] <= view.ops["start_ns"][123]
    assert view.ops["start_ns"][123] + view.ops["duration_ns"][123] <= zoom["endValue"] < view.step_ns
    tab.click("text=Whole step")
    assert tab.evaluate(f"() => {_CHART}.getOption().dataZoom[0].startValue") == 0


def test_the_wheel_zooms_and_scrolls_where_there_is_nothing_to_zoom_out_of(tab):
    tab.locator("#timeline").scroll_into_view_if_needed()
    tab.mouse.move(*tab.evaluate(_PLACE_OF, [100_000, _FIRST_LANE]))
    end_ns = f"() => {_CHART}.getOption().dataZoom[0].endValue"
    whole = tab.evaluate(end_ns)
    tab.mouse.wheel(0, -200)
    until(lambda: tab.evaluate(end_ns) < whole)
    tab.click("text=Whole step")
    tab.mouse.move(*tab.evaluate(_PLACE_OF, [100_000, _FIRST_LANE]))
    at = tab.evaluate("scrollY")
    tab.mouse.wheel(0, 200)
    until(lambda: tab.evaluate("scrollY") > at)
    assert tab.evaluate(end_ns) == whole


def until(condition: Callable[[], bool]) -> None:
    """Waits for what the browser does after an event; the page's policy lets Playwright's own waiting run no code."""
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)


def test_the_critical_path_can_be_hidden(tab):
    with_path = tab.locator("#timeline canvas").screenshot()
    tab.uncheck("#critical-path")
    assert tab.locator("#timeline canvas").screenshot() != with_path


def test_dark_mode_changes_page_and_charts_at_once(opened):
    tab = opened()
    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(paper), tab.locator("#step-times canvas").screenshot()
    tab.emulate_media(color_scheme="dark")
    dark = tab.evaluate(paper), tab.locator("#step-times canvas").screenshot()
    assert light[0] == "rgb(255, 255, 255)" and dark[0] != light[0] and dark[1] != light[1]
    chart = "echarts.getInstanceByDom(document.querySelector('#step-times .chart'))"
    assert tab.evaluate(f"() => {chart}.getOption().series[1].itemStyle.color") == tab.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--rival').trim()"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_no_sideways_scroll(opened, scheme):
    tab = opened(width=360, height=740, scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == 360


def test_tables_scroll_on_a_phone_and_nothing_is_cut(opened):
    tab = opened(width=390, height=844)
    tab.click("text=All lower bounds")
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    cut = tab.evaluate(
        """() => [...document.querySelectorAll("table")].filter((table) => {
          const around = table.closest(".scroll");
          if (!around || getComputedStyle(around).overflowX !== "auto") return true;
          around.scrollLeft = 9999;
          const last = table.rows[0].cells[table.rows[0].cells.length - 1].getBoundingClientRect();
          return last.right > around.getBoundingClientRect().right + 1;
        }).map((table) => table.innerText)"""
    )
    assert cut == []
    assert tab.evaluate("document.querySelector('#step-times > .scroll').scrollLeft") > 0, "it has to scroll"


def test_names_and_bounds_are_explained_where_they_stand(tab, page):
    [section] = page.sections
    assert "No plan can be faster than" in tab.inner_text("#step-times > .soft")
    for bound in section.bounds:
        assert bound["about"] and bound["about"] in tab.text_content("#step-times details")
    assert "What the plan is." in tab.inner_text("#step-times > .scroll tbody tr")


@pytest.mark.parametrize("width", [390, 1280])
def test_numbers_have_three_digits_that_count(opened, width):
    tab = opened(width=width)
    texts = [tab.inner_text("body"), tab.text_content("#step-times details"), *tab.evaluate(_TEXTS)]
    found = re.findall(r"(\d[\d,]*(?:\.\d+)?)\s?(ms|µs|ns|GB|MB|kB|%)", "\n".join(texts))
    assert len(found) > 30
    long = [number for number, _ in found if len(number.replace(".", "").strip("0").replace(",", "")) > 3]
    assert long == []


def test_the_critical_path_crosses_no_label(opened, tmp_path):
    few = tmp_path / "few.html"
    problem = layered_problem(40)
    crossing = Placement(problem, (np.arange(problem.num_units) // 3 % 3).astype(np.int32))
    few.write_text(page_html(page_of(problem, crossing)), encoding="utf8")
    links, labels = opened(few).evaluate(_LINKS_AND_LABELS)
    assert links and len(labels) >= 3
    for x, top, width, height in links:
        for left, above, wide, high in labels:
            beside = x + width <= left or x >= left + wide
            assert beside or top + height <= above + 1 or top >= above + high - 1, (x, top, height, above)
    assert any(x < left + wide for x, *_ in links for left, _, wide, _ in labels), "below a label's end"


def test_memory_has_a_scale_that_shows_it(tab, page):
    view = page.sections[0].plan
    assert view is not None
    for d, (curve, device) in enumerate(zip(view.memory, view.devices, strict=True)):
        option = tab.evaluate(
            f"""() => {{
              const place = document.querySelectorAll("#memory .chart")[{d}];
              const {{ yAxis, series }} = echarts.getInstanceByDom(place).getOption();
              return [yAxis[0].max, series[0].markLine.data.length];
            }}"""
        )
        is_small = 0 < curve["peak_bytes"] < device["capacity_bytes"] / 4
        assert is_small or not curve["peak_bytes"]
        assert option == [
            pytest.approx(1.2 * curve["peak_bytes"] if is_small else 1.06 * device["capacity_bytes"]),
            0 if is_small else 1,
        ]


def test_memory_of_a_device_that_is_full_is_held_against_what_it_has(opened, page, tmp_path):
    [section] = page.sections
    assert section.plan is not None
    devices = tuple(
        {**device, "capacity_bytes": 2 * curve["peak_bytes"]}
        for device, curve in zip(section.plan.devices, section.plan.memory, strict=True)
    )
    full = dataclasses.replace(section, plan=dataclasses.replace(section.plan, devices=devices))
    file = tmp_path / "full.html"
    file.write_text(page_html(Page("full", (full,))), encoding="utf8")
    chart = "echarts.getInstanceByDom(document.querySelector('#memory .chart'))"
    top, lines = opened(file).evaluate(
        f"() => [{chart}.getOption().yAxis[0].max, {chart}.getOption().series[0].markLine.data.length]"
    )
    assert top == pytest.approx(1.06 * devices[0]["capacity_bytes"]) and lines == 1


def test_layers_open_when_asked(tab):
    rows = tab.locator("#layers .row")
    closed = rows.count()
    tab.click("#layers [aria-label='Open layer_3']")
    assert rows.count() == closed + 20
    assert "op_60" in tab.inner_text("#layers")
    tab.click("#layers [aria-label='Open layer_3']")
    assert "op_60" not in tab.inner_text("#layers")


def test_several_programs_are_shown_one_at_a_time(opened, page, tmp_path):
    other = page_of(layered_problem(60)).sections[0]
    both = tmp_path / "both.html"
    both.write_text(page_html(Page("two", (page.sections[0], other))), encoding="utf8")
    tab = opened(both)
    assert "400 ops" in tab.inner_text("#timeline")
    tab.select_option("#chooser", "1")
    assert "60 ops" in tab.inner_text("#timeline")


@pytest.mark.alone
def test_twelve_thousand_ops_are_smooth(opened, tmp_path):
    large = tmp_path / "large.html"
    large.write_text(page_html(page_of(layered_problem(12_000))), encoding="utf8")
    redraws_ms = opened(large).evaluate(_REDRAWS)
    assert statistics.median(redraws_ms) < 100, redraws_ms
