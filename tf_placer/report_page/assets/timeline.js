// The timeline: lanes drawn by one custom series, an item for each lane, so that a redraw costs what is visible.

const TOP = 6;
const BELOW = 62; // axis and slider
const SHADES = 4;
const LETTER = 6.4;
const LABEL_LEFT = 2;
const LABEL_SIZE = 12;
const PALEST = 0.4; // how much paler the last part of the batch is
const DARKER = 0.4; // how much darker a cluster is
const MOST_LINKS = 120; // of the critical path that are drawn: more would hide what they link

/** Many rectangles of one colour as one path. */
const Rectangles = echarts.graphic.extendShape({
  shape: { rectangles: [] },
  buildPath(path, shape) {
    for (const [x, y, width, height] of shape.rectangles) path.rect(x, y, width, height);
  },
});
echarts.graphic.registerShape("rectangles", Rectangles);

function timeline(data) {
  const plan = data.plan;
  const state = { plan, ...lanesOf(plan), showsPath: true, found: { device: new Set(), channel: new Set() }, version: 0 };
  const behind = plan.ops.leaf.length; // chores come behind ops
  state.critical = {
    device: new Set([...plan.ops.critical, ...plan.chores.critical.map((i) => behind + i)]), channel: new Set(plan.transfers.critical),
  };
  const place = element("div", { className: "chart" });
  place.style.height = `${state.height + TOP + BELOW}px`;
  const tip = element("div", { className: "tip", hidden: true });
  state.chart = keepChart(place, () => timelineOptions(state));
  state.tip = tip;
  const idle = plan.channels.length - state.lanes.filter((lane) => lane.kind === "channel").length;
  const unused = idle ? ` ${idle} of ${plan.channels.length} links carry nothing and are left out.` : "";
  const line = `One step of ${duration(plan.step_ns)} in the simulator${plan.measured_ns ? ` (${duration(plan.measured_ns)} as traced on the runtime, in the lanes below)` : ""}, ${plan.ops.leaf.length.toLocaleString("en")} ops; `
    + `a device's share is the time in which it runs something.${partsNote(plan)}${fusedNote(plan)}${unused}`;
  const found = element("ul", { className: "found" });
  state.listen = () => listen(state, place);
  return [
    section("timeline", "Timeline", line, tools(state, found), found, element("div", { className: "timeline" }, place, tip)),
    state,
  ];
}

function tools(state, found) {
  const path = element("input", { type: "checkbox", checked: true, id: "critical-path" });
  path.addEventListener("change", () => {
    state.showsPath = path.checked;
    redraw(state);
  });
  const whole = element("button", { type: "button" }, "Whole step");
  whole.addEventListener("click", () => zoomTo(state, 0, state.plan.shown_ns));
  return element(
    "div", { className: "tools" }, searchBox(state, found), element("label", {}, path, "critical path"), whole,
    element("span", { className: "soft note" }, "wheel or slider: zoom; drag: move"),
  );
}

function redraw(state) {
  state.version += 1;
  state.chart().setOption({ series: [{ id: "lanes", data: laneItems(state) }] });
}

function laneItems(state) {
  // The last item has the links of the critical path, above all lanes.
  return [...state.lanes.keys(), state.lanes.length].map((i) => [0, i, state.version]);
}

function timelineOptions(state) {
  const step = state.plan.shown_ns;
  state.colors = Object.fromEntries(["ink", "soft", "lane", "mark", "on-device"].map((name) => [name, color(`--${name}`)]));
  state.colors.devices = state.plan.devices.map((_, d) => color(deviceVariable(d)));
  const zoom = { xAxisIndex: 0, filterMode: "none", minValueSpan: Math.min(1000, step) };
  return {
    ...basics(),
    grid: { left: 0, right: 0, top: TOP, height: state.height },
    xAxis: axis({
      type: "value", min: 0, max: step, splitNumber: 6, splitLine: { show: false }, axisLine: { show: false }, axisLabel: { formatter: (ns) => (ns === step ? duration(step) : axisTime(ns)), alignMinLabel: "left", alignMaxLabel: "right" },
    }),
    yAxis: { type: "value", min: 0, max: state.height, inverse: true, show: false },
    dataZoom: [
      { type: "inside", ...zoom, zoomOnMouseWheel: false, moveOnMouseMove: true, preventDefaultMouseMove: false },
      {
        type: "slider", ...zoom, bottom: 6, left: 8, right: 8, height: 20, showDetail: false, showDataShadow: false, brushSelect: false,
        borderColor: color("--line"), fillerColor: `${color("--accent")}2e`, backgroundColor: color("--lane"),
        handleStyle: { color: color("--paper"), borderColor: color("--soft") }, moveHandleSize: 0,
      },
    ],
    series: [{
      id: "lanes", type: "custom", clip: true, silent: true, dimensions: ["x", "lane", "version"], encode: { x: -1, y: -1 },
      data: laneItems(state), renderItem: (params, api) => drawItem(state, params, api),
    }],
  };
}

function axisTime(ns) {
  return ns >= 1e6 || ns === 0 ? `${+(ns / 1e6).toFixed(6)} ms` : `${+(ns / 1e3).toFixed(3)} µs`;
}

function drawItem(state, params, api) {
  const left = params.coordSys.x;
  const width = Math.max(1, Math.floor(params.coordSys.width));
  const [from, to] = shownWindow(state, api, left, params.coordSys.width);
  const i = params.dataIndex;
  if (i === state.lanes.length) return { type: "group", children: pathLinks(state, from, to, left, width) };
  return { type: "group", children: laneShapes(state, state.lanes[i], from, to, left, width) };
}

/** The times at the left and the right edge. */
function shownWindow(state, api, left, width) {
  const origin = api.coord([0, 0])[0];
  const perNs = (api.coord([state.plan.shown_ns, 0])[0] - origin) / state.plan.shown_ns;
  return [(left - origin) / perNs, (left + width - origin) / perNs];
}

function laneShapes(state, lane, from, to, left, width) {
  const top = lane.top + TOP;
  const shapes = [
    rectangle(left, top, width, lane.height, state.colors.lane),
    letters(laneTitle(lane), left + LABEL_LEFT, top - 5, state.colors.soft, "bottom", LABEL_SIZE),
  ];
  const boxes = new Map(); // "colour opacity" -> rectangles
  const add = (fill, opacity, box) => {
    const key = `${fill} ${opacity}`;
    if (!boxes.has(key)) boxes.set(key, { fill, opacity, rectangles: [] });
    boxes.get(key).rectangles.push(box);
  };
  const texts = [];
  const marks = [];
  const path = state.critical[lane.kind];
  const found = state.found[lane.kind];
  const isBright = (id) => !state.showsPath || path.has(id);
  lane.rows.forEach((row, r) => {
    const y = top + r * lane.rowHeight + 0.5;
    const height = lane.rowHeight - 1;
    const seen = visible(row, from, to, width, isBright);
    for (const box of seen.wide) {
      const gap = box.width > 3 ? 0.5 : 0; // between neighbours
      add(boxColor(state, lane, box.id), box.bright ? 1 : 0.38, [left + box.x, y, box.width - gap, height]);
      if (box.width > 44 && height > 12) texts.push(boxName(state, lane, box, left, y + height / 2));
    }
    for (const [kind, opacity] of [["dim", 0.38], ["bright", 1]]) {
      addColumns(seen.filled[kind], (x, share) => add(laneColor(state, lane), opacity * share, [left + x, y, 1, height]));
    }
    if (found.size) marks.push(...foundBoxes(row, found, from, to, left, width, y, height));
  });
  for (const { fill, opacity, rectangles } of boxes.values()) {
    shapes.push({ type: "rectangles", shape: { rectangles }, style: { fill, opacity } });
  }
  if (marks.length) {
    shapes.push({ type: "rectangles", shape: { rectangles: marks }, style: { fill: "none", stroke: state.colors.mark, lineWidth: 2 } });
  }
  return [...shapes, ...texts];
}

/** Columns of pixels in a few shades, by how much of them is filled. */
function addColumns(columns, add) {
  columns.forEach((share, x) => {
    if (share > 0) add(x, Math.min(1, Math.ceil(SHADES * share) / SHADES));
  });
}

/** A rectangle around each box that was searched for, two pixels wide at least; those at one place are one. */
function foundBoxes(row, found, from, to, left, width, y, height) {
  const scale = width / (to - from);
  const marks = [];
  let last = -9;
  for (let i = firstAfter(row, from); i < row.id.length && row.start[i] < to; i++) {
    if (!found.has(row.id[i])) continue;
    const x = Math.max(0, (row.start[i] - from) * scale);
    const end = Math.min(width, (row.end[i] - from) * scale);
    if (end < last + 1) continue;
    last = Math.max(end, x + 2);
    marks.push([left + x, y, last - x, height]);
  }
  return marks;
}

/** Where the critical path goes from lane to lane. */
function pathLinks(state, from, to, left, width) {
  if (!state.showsPath) return [];
  const scale = width / (to - from);
  const rectangles = [];
  for (const [ns, above, below] of state.plan.path_links) {
    if (ns < from || ns > to) continue;
    const [a, b] = [laneOfPlace(state, above), laneOfPlace(state, below)];
    const [upper, lower] = a.top < b.top ? [a, b] : [b, a];
    const x = left + (ns - from) * scale - 0.5;
    rectangles.push(besideLabels(state.lanes, x, left, upper.top + upper.height, lower.top).map(([y, end]) => [x, TOP + y, 1, end - y]));
  }
  if (rectangles.length > MOST_LINKS) return [];
  return [{ type: "rectangles", shape: { rectangles: rectangles.flat() }, style: { fill: state.colors.ink, opacity: 0.45 } }];
}

/** Parts of a vertical line at x that cross no label of a lane, as [from, to]. */
function besideLabels(lanes, x, left, from, to) {
  const parts = [];
  let start = from;
  for (const lane of lanes) {
    if (lane.top <= from || lane.top > to || x > left + labelEnd(lane)) continue;
    parts.push([start, lane.top - LABEL_HEIGHT]);
    start = lane.top;
  }
  return [...parts, [start, to]].filter(([begin, end]) => end > begin);
}

function laneTitle(lane) {
  return `${lane.label}   ${percent(lane.share)} busy`;
}

/** Pixels from the left edge to the end of a lane's label. */
function labelEnd(lane) {
  lane.labelEnd ??= 2 * LABEL_LEFT + echarts.format.getTextRect(laneTitle(lane), `${LABEL_SIZE}px ${FONT}`).width;
  return lane.labelEnd;
}

/** Places of the critical path are numbers: the devices, then the channels. */
function laneOfPlace(state, place) {
  const devices = state.plan.devices.length;
  return place < devices ? state.lanes[place] : state.lanes.find((lane) => lane.channel === place - devices);
}

/** The colour of boxes that are too small to be told apart. */
function laneColor(state, lane) {
  lane.sender ??= senderOf(state.plan.transfers, lane);
  return lane.sender < 0 ? state.colors.soft : state.colors.devices[lane.sender];
}

/** The device that all boxes of a lane are of; -1 where there are several. */
function senderOf(transfers, lane) {
  if (lane.kind === "device") return lane.device;
  const senders = new Set(lane.rows.flatMap((row) => row.id.map((id) => transfers.source[id])));
  return senders.size === 1 ? [...senders][0] : -1;
}

/** What a device does has its colour, darker for a cluster, paler in later parts of the batch; a transfer its sender's. */
function boxColor(state, lane, id) {
  if (lane.kind !== "device") return state.colors.devices[state.plan.transfers.source[id]];
  const part = state.plan.ops.part[opOfWork(state.plan, id)];
  const device = state.colors.devices[lane.device];
  const own = isFused(state, id) ? echarts.color.lerp(DARKER, [device, "#000000"]) : device;
  return part > 0 ? echarts.color.lift(own, (PALEST * part) / (state.plan.parts - 1)) : own;
}

function isFused(state, id) {
  state.fused ??= new Set(state.plan.ops.fused);
  return state.fused.has(id);
}

function fusedNote(plan) {
  return plan.ops.fused.length ? " Ops that XLA compiles together are one box, darker than others." : "";
}

function partsNote(plan) {
  return plan.parts > 1 ? ` The batch is in ${plan.parts} parts: 1/${plan.parts} on a box is the first, and later ones are paler.` : "";
}

/** "2/4 " before the name of a copy for the second of four parts. */
function partOf(plan, op) {
  return plan.ops.part[op] < 0 ? "" : `${plan.ops.part[op] + 1}/${plan.parts} `;
}

function boxName(state, lane, box, left, middle) {
  const { transfers } = state.plan;
  const op = lane.kind === "device" ? opOfWork(state.plan, box.id) : transfers.op[box.id];
  const fused = lane.kind === "device" && isFused(state, box.id);
  const name = partOf(state.plan, op) + (fused ? state.plan.types[state.plan.ops.type[op]] : shortName(state.plan, op));
  const room = Math.floor((box.width - 8) / LETTER);
  const text = name.length > room ? `${name.slice(0, room - 1)}…` : name;
  return letters(text, left + box.x + 4, middle, box.bright ? state.colors["on-device"] : state.colors.ink, "middle", 11);
}

/** The op of a box in a device's lane: itself, or the one whose tensor is sent or received. */
function opOfWork({ ops, transfers, chores }, id) {
  const count = ops.leaf.length;
  return id < count ? id : transfers.op[chores.transfer[id - count]];
}

/** The last two parts of an op's name. */
function shortName(plan, op) {
  return nameOf(plan, op).split("/").slice(-2).join("/");
}

function rectangle(x, y, width, height, fill) {
  return { type: "rect", shape: { x, y, width, height }, style: { fill } };
}

function letters(text, x, y, fill, verticalAlign, fontSize) {
  return { type: "text", style: { text, x, y, fill, fontSize, fontFamily: FONT, verticalAlign } };
}
