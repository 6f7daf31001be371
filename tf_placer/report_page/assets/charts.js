// Charts that follow the width of the page and the colours of its theme.

const DARK = matchMedia("(prefers-color-scheme: dark)");
const DEVICE_COLORS = 9;
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

let drawn = []; // of the section that is shown
let awaiting = []; // what is done when its charts are there

/** The value of a CSS variable of the page, such as "--ink". */
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The name of a device's colour; it is the same everywhere. */
function deviceVariable(device) {
  return `--device-${device % DEVICE_COLORS}`;
}

/** The device with its colour, as an element. */
function chip(devices, device) {
  return element("span", { className: "chip", "--of-device": `var(${deviceVariable(device)})` }, devices[device].label);
}

/**
 * Keeps a chart in a place: `options()` is asked again when the theme changes.
 * Returns a function that gives the chart, which is there once the place is on the page.
 */
function keepChart(place, options) {
  drawn.push({ place, options, chart: null });
  const entry = drawn.at(-1);
  return () => entry.chart;
}

/** Draws what was kept since the last `forgetCharts`; call it when the places are on the page. */
function drawCharts() {
  for (const entry of drawn) {
    entry.chart = echarts.init(entry.place, null, { renderer: "canvas" });
    entry.chart.setOption(entry.options());
    new ResizeObserver(() => entry.chart.isDisposed() || entry.chart.resize()).observe(entry.place);
  }
  awaiting.splice(0).forEach((work) => work());
}

function onceDrawn(work) {
  awaiting.push(work);
}

function forgetCharts() {
  for (const { chart } of drawn) chart.dispose();
  drawn = [];
}

DARK.addEventListener("change", () => {
  for (const { chart, options } of drawn) chart.setOption(options());
});

/** What all charts have: no motion, the page's letters and colours. */
function basics() {
  return { animation: false, backgroundColor: "transparent", textStyle: { fontFamily: FONT, color: color("--ink") } };
}

/** An axis in the page's colours, with more settings. */
function axis(more) {
  const { axisLabel = {}, ...rest } = more;
  return {
    axisLine: { lineStyle: { color: color("--line") } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: color("--line") } },
    axisLabel: { color: color("--soft"), fontSize: 12, hideOverlap: true, ...axisLabel },
    nameTextStyle: { color: color("--soft"), fontSize: 12 },
    ...rest,
  };
}

/** A tip of ECharts in the page's colours; `content` gives an element, so no name is read as HTML. */
function chartTip(content, more = {}) {
  return {
    confine: true,
    backgroundColor: color("--paper"),
    borderColor: color("--line"),
    textStyle: { color: color("--ink"), fontSize: 13 },
    formatter: content,
    ...more,
  };
}
