// The best step so far of every search, against seconds.

const DASHES = ["solid", "dashed", "dotted"];
const SYMBOLS = ["circle", "rect", "triangle", "diamond", "emptyCircle", "emptyRect", "emptyTriangle", "emptyDiamond"];

function progress(data) {
  const curves = data.curves.filter((curve) => curve.best_s.length);
  if (!curves.length) return section("progress", "Progress of the search", "Nothing was searched: the plan was given, or was kept.");
  const place = element("div", { className: "chart" });
  place.style.height = "340px";
  keepChart(place, () => progressOptions(data, curves));
  return section("progress", "Progress of the search", "The best step so far in the simulator; seconds are on a logarithmic axis.", place);
}

function progressOptions(data, curves) {
  const best = data.bounds.find((bound) => bound.is_tightest);
  const series = curves.map(curveSeries);
  if (best) {
    series[0].markLine = {
      symbol: "none", silent: true, data: [{ yAxis: 1e3 * best.bound_s }], lineStyle: { color: color("--mark"), type: "dashed", width: 1.5 },
      label: { formatter: "lower bound", position: "insideEndTop", color: color("--mark"), fontSize: 12 },
    };
  }
  return {
    ...basics(),
    grid: { left: 62, right: 16, top: 44, bottom: 44 },
    legend: { type: "scroll", top: 0, left: 0, textStyle: { color: color("--ink") }, pageTextStyle: { color: color("--soft") } },
    tooltip: chartTip(({ seriesName, value }) => element("div", {}, element("b", {}, seriesName), pairs([["after", `${trimmed(value[0])} s`], ["best", `${threeDigits(value[1])} ms`]]))),
    xAxis: axis({ type: "log", name: "seconds", nameLocation: "middle", nameGap: 26, splitLine: { show: false }, axisLabel: { formatter: (s) => `${+s.toPrecision(3)}` } }),
    yAxis: axis({
      type: "value", min: ({ min }) => 0.95 * Math.min(min, 1e3 * (best?.bound_s ?? Infinity)), axisLabel: { formatter: (ms) => `${+ms.toPrecision(3)} ms`, showMinLabel: false },
    }),
    series,
  };
}

/** A stair: what was found holds until something better is. Colours are of devices, so methods differ in symbols and dashes. */
function curveSeries(curve, i) {
  const points = curve.elapsed_s.map((s, k) => [Math.max(s, 1e-3), 1e3 * curve.best_s[k]]);
  const hue = color(curve.is_written ? "--accent" : "--soft");
  return {
    name: curve.name, type: "line", step: "end", data: points, symbol: SYMBOLS[i % SYMBOLS.length], symbolSize: points.length > 1 ? 5 : 8,
    lineStyle: { color: hue, type: curve.is_written ? "solid" : DASHES[i % DASHES.length], width: curve.is_written ? 2.5 : 1.5 },
    itemStyle: { color: hue }, emphasis: { focus: "series" }, z: curve.is_written ? 4 : 2,
  };
}
