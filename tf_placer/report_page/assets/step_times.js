// The step time of every row: bars, with the spread of the last clock's, the lower bound as a line, and a table. A column,
// and a color, is of one clock.

const CLOCKS = { simulated_s: "simulated", measured_s: "alone", raced_s: "raced", called_s: "called" };
const BAR_ROW = 34;
const LABEL_DISTANCE = 7;

function stepTimes(data) {
  const best = data.bounds.find((bound) => bound.is_tightest);
  const timed = (row, clock) => (row[clock] ?? null) !== null;
  const clocks = Object.keys(CLOCKS).filter((clock) => clock === "simulated_s" || data.step_times.some((row) => timed(row, clock)));
  const measured = clocks.length > 1 ? clocks.at(-1) : "";
  const rows = data.step_times.filter((row) => timed(row, "simulated_s") || (measured && timed(row, measured)));
  const place = element("div", { className: "chart" });
  place.style.height = `${rows.length * BAR_ROW * (measured ? 1.35 : 1) + (measured ? 76 : 50)}px`;
  const chart = keepChart(place, () => stepTimeOptions(rows, best, measured, place.clientWidth));
  onceDrawn(() => chart().on("click", ({ dataIndex }) => look(data, rows[dataIndex])));
  const line = best ? `No plan can be faster than ${milliseconds(best.bound_s)} in the simulator. The dark bar is the plan written.` : "";
  return section("step-times", "Step time of every candidate", line, place, stepTimeTable(data, clocks), boundTable(data));
}

function words(name) {
  return name.replaceAll("_", " ");
}

function stepTimeOptions(rows, best, measured, width) {
  const names = rows.map((row) => row.name);
  const left = Math.min(190, Math.max(70, 7.3 * Math.max(...names.map((name) => name.length))), 0.36 * width);
  const series = [bars("simulated", rows, "simulated_s", measured ? "--bar" : "--rival", true)];
  if (measured) series.push(bars(CLOCKS[measured], rows, measured, "--rival", false), spreads(rows, measured));
  if (best) series[0].markLine = boundLine(best);
  return {
    ...basics(),
    grid: { left: left + 10, right: 84, top: measured ? 50 : 24, bottom: 26 },
    legend: measured ? { top: 0, right: 0, data: ["simulated", CLOCKS[measured]], textStyle: { color: color("--soft") } } : { show: false },
    xAxis: axis({ type: "value", min: 0, axisLabel: { formatter: (ms) => `${+ms.toPrecision(6)} ms` } }),
    yAxis: axis({
      type: "category", inverse: true, data: names, splitLine: { show: false },
      axisLabel: {
        width: left, overflow: "truncate", interval: 0, color: color("--ink"),
        formatter: (name, i) => (rows[i].is_written ? `{written|${name}}` : name), rich: { written: { fontWeight: 700 } },
      },
    }),
    series,
  };
}

function bars(name, rows, key, fill, labelled) {
  return {
    name, type: "bar", barMaxWidth: 16, barGap: "12%", itemStyle: { color: color(fill), borderRadius: [0, 2, 2, 0] },
    data: rows.map((row) => ((row[key] ?? null) === null ? null : { value: 1e3 * row[key], itemStyle: chosen(row, fill) })),
    label: { show: labelled, position: "right", distance: LABEL_DISTANCE, color: color("--ink"), formatter: ({ value }) => barLabel(value) },
    emphasis: { disabled: true },
  };
}

/** The plan written has a color of its own among its rivals. */
function chosen(row, fill) {
  return row.is_written && fill === "--rival" ? { color: color("--accent") } : {};
}

function barLabel(ms) {
  return `${threeDigits(ms)} ms`;
}

/** Labels of the last clock's bars, on the lower half of each row, and whiskers between the quartiles of its times. */
function spreads(rows, clock) {
  const data = rows.flatMap((row, i) => {
    if ((row[clock] ?? null) === null) return [];
    return [[row[clock], i, ...(row.spread_s ?? [row[clock], row[clock]])].map((value, k) => (k === 1 ? value : 1e3 * value))];
  });
  return {
    type: "custom", silent: true, z: 5, data, encode: { x: [0, 2, 3], y: 1 },
    renderItem(params, api) {
      const [end, y] = api.coord([api.value(0), api.value(1)]);
      const [from, to] = [2, 3].map((k) => api.coord([api.value(k), api.value(1)])[0]);
      const middle = y + Math.min(9, api.size([0, 1])[1] / 4);
      const style = { text: barLabel(api.value(0)), x: Math.max(end, to) + LABEL_DISTANCE, y: middle, fill: color("--ink"), fontSize: 12, fontFamily: FONT, verticalAlign: "middle" };
      return { type: "group", children: [{ type: "text", style }, ...(to > from ? whisker(from, to, middle) : [])] };
    },
  };
}

function whisker(from, to, y) {
  const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: color("--ink"), lineWidth: 1.5 } });
  return [line(from, y, to, y), line(from, y - 4, from, y + 4), line(to, y - 4, to, y + 4)];
}

function boundLine(best) {
  return {
    symbol: "none", silent: true, data: [{ xAxis: 1e3 * best.bound_s }],
    lineStyle: { color: color("--mark"), type: "dashed", width: 1.5 },
    label: { formatter: "lower bound", position: "start", color: color("--mark"), fontSize: 12 },
  };
}

function stepTimeTable(data, clocks) {
  const { clock = "simulated_s", single_s: single = null } = data.compared;
  const timed = clocks.flatMap((one) => (one === clock ? [CLOCKS[one], "vs single"] : [CLOCKS[one]]));
  const columns = ["step time of", ...timed, ...(clocks.length > 1 ? ["spread"] : []), "tried", "peak"];
  const head = columns.map((name, i) => element("th", { className: i ? "number" : "", scope: "col" }, name));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)));
  const body = element("tbody");
  for (const row of data.step_times) {
    const name = element("td", { className: "name" }, row.name);
    if (row.is_written) name.append(element("div", { className: "note" }, "the plan written"));
    if (row.plan || (row.is_written && data.written)) name.append(looker(data, row));
    if (row.about) name.append(element("div", { className: "note" }, row.about));
    if (row.note) name.append(element("div", { className: "note" }, row.note));
    const spread = row.spread_s ? row.spread_s.map((seconds) => threeDigits(1e3 * seconds)).join(" – ") + " ms" : "";
    const numbers = [
      ...clocks.flatMap((one) => (one === clock ? [milliseconds(row[one]), versus(row[one], single)] : [milliseconds(row[one])])),
      ...(clocks.length > 1 ? [spread] : []),
      row.evaluations === null ? "" : row.evaluations.toLocaleString("en"), row.peak_bytes === null ? "" : bytes(row.peak_bytes),
    ];
    body.append(tableRow(row.is_written ? "written" : "", name, numbers));
  }
  table.append(body);
  return scrolling(table, "Step times");
}

function boundTable(data) {
  const rows = data.bounds.map((bound) => {
    const name = element("td", { className: "name" }, words(bound.name) + (bound.is_tightest ? ", the tightest" : ""));
    name.append(element("div", { className: "note" }, bound.about));
    return tableRow("bound", name, [milliseconds(bound.bound_s)]);
  });
  return element("details", {}, element("summary", {}, "All lower bounds"), scrolling(element("table", { className: "narrow" }, element("tbody", {}, ...rows)), "Lower bounds"));
}

function tableRow(kind, name, numbers) {
  return element("tr", { className: kind }, name, ...numbers.map((text) => element("td", { className: "number" }, text)));
}

/** Shows a rival's plan below in place of the one written, or that one again. */
function look(data, row) {
  const written = data.written ?? data.plan;
  if (row.is_written) show({ ...data, plan: written, written: null, looked_at: null });
  else if (row.plan) show({ ...data, plan: row.plan, written, looked_at: row.name });
}

function looker(data, row) {
  if (row.name === data.looked_at) return element("div", { className: "note" }, "the plan below");
  const button = element("button", { type: "button" }, "show this plan below");
  button.addEventListener("click", () => look(data, row));
  return element("div", {}, button);
}

/** "-16.3%": how much longer than the best single device. */
function versus(seconds, single) {
  if ((seconds ?? null) === null || !single) return UNKNOWN;
  const share = (100 * (seconds / single - 1)).toFixed(1);
  return `${share > 0 || share === "0.0" ? "+" : ""}${share === "-0.0" ? "+0.0" : share}%`;
}
