// What a person does to the timeline: points at a box, zooms, searches for an op.

const MOST_FOUND = 50; // lines of the list

/** Lets the pointer, the wheel and a touch reach the chart; call it when the chart is there. */
function listen(state, place) {
  const canvas = state.chart().getZr();
  state.outline = new echarts.graphic.Rect({ silent: true, invisible: true, z: 100, style: { fill: "none", lineWidth: 2 } });
  canvas.add(state.outline);
  canvas.on("mousemove", (event) => point(state, event.offsetX, event.offsetY));
  canvas.on("click", (event) => point(state, event.offsetX, event.offsetY));
  canvas.on("globalout", () => unpoint(state));
  state.chart().on("datazoom", () => unpoint(state));
  place.addEventListener("wheel", (event) => wheel(state, event), { passive: false, capture: true });
}

/** Zooms around the pointer. Downwards over the whole step the page scrolls: nothing is to be zoomed out of. */
function wheel(state, event) {
  event.stopPropagation(); // ECharts would keep the page from scrolling
  const [from, to] = zoomWindow(state);
  const isWhole = from <= 0 && to >= state.plan.shown_ns;
  if (event.deltaY === 0 || (isWhole && event.deltaY > 0)) return;
  event.preventDefault();
  const at = state.chart().convertFromPixel({ xAxisIndex: 0 }, event.offsetX);
  const factor = Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 240);
  zoomTo(state, at - (at - from) * factor, at + (to - at) * factor);
}

/** The times between which the timeline is shown. */
function zoomWindow(state) {
  const zoom = state.chart().getOption().dataZoom[0];
  return [zoom.startValue, zoom.endValue];
}

function zoomTo(state, from, to) {
  const startValue = Math.max(0, from);
  const endValue = Math.min(state.plan.shown_ns, Math.max(to, startValue + 1));
  state.chart().dispatchAction({ type: "dataZoom", dataZoomIndex: 0, startValue, endValue });
}

function point(state, x, y) {
  const [from, to] = zoomWindow(state);
  const [ns, height] = state.chart().convertFromPixel("grid", [x, y]);
  const box = boxAt(state.lanes, ns, height, (2 * (to - from)) / state.chart().getWidth());
  if (box) showTip(state, box);
  else unpoint(state);
}

function unpoint(state) {
  state.tip.hidden = true;
  state.outline.attr({ invisible: true });
}

/** The tip of a box beside it, and a line around the box. */
function showTip(state, { lane, row, i, id }) {
  const top = lane.top + lane.rows.indexOf(row) * lane.rowHeight + TOP;
  const [x, end] = [row.start[i], row.end[i]].map((ns) => state.chart().convertToPixel({ xAxisIndex: 0 }, ns));
  const shown = [Math.max(0, x), Math.min(state.chart().getWidth(), end)];
  state.outline.attr({
    invisible: false, shape: { x: shown[0], y: top, width: Math.max(2, shown[1] - shown[0]), height: lane.rowHeight - 1 },
    style: { stroke: state.colors.ink },
  });
  state.tip.replaceChildren(...aboutBox(state.plan, lane, id));
  placeTip(state, shown[0], top + lane.rowHeight + 6);
}

function placeTip(state, x, y) {
  state.tip.hidden = false;
  state.tip.style.left = `${Math.max(0, Math.min(x, state.chart().getWidth() - state.tip.offsetWidth - 2))}px`;
  state.tip.style.top = `${y}px`;
}

function aboutBox(plan, lane, id) {
  if (lane.kind === "channel") return aboutTransfer(plan, id);
  const count = plan.ops.leaf.length;
  return id < count ? aboutOp(plan, id) : aboutChore(plan, id - count);
}

/** What a device itself does to send or to receive a tensor. */
function aboutChore(plan, id) {
  const { transfer, device, start_ns, duration_ns } = plan.chores;
  const sends = device[id] === plan.transfers.source[transfer[id]];
  return [
    element("b", {}, `${sends ? "send" : "receive"} ${nameOf(plan, plan.transfers.op[transfer[id]])}`),
    pairs([
      ["sent", way(plan, transfer[id])],
      ["bytes", bytes(plan.transfers.bytes[transfer[id]])],
      ["start", duration(start_ns[id])],
      ["takes", duration(duration_ns[id])],
    ]),
  ];
}

function aboutOp(plan, id) {
  const { ops } = plan;
  return [
    element("b", {}, nameOf(plan, id)),
    pairs([
      ["type", plan.types[ops.type[id]] || UNKNOWN],
      ["layer", layerPath(plan, ops.layer[id]) || UNKNOWN],
      ...(ops.part[id] < 0 ? [] : [["part", `${ops.part[id] + 1} of ${plan.parts}`]]),
      ["device", chip(plan.devices, ops.device[id])],
      ["start", duration(ops.start_ns[id])],
      ["takes", duration(ops.duration_ns[id])],
      ["output", bytes(ops.output_bytes[id])],
    ]),
  ];
}

function aboutTransfer(plan, id) {
  const { transfers } = plan;
  return [
    element("b", {}, nameOf(plan, transfers.op[id])),
    pairs([
      ["sent", way(plan, id)],
      ["bytes", bytes(transfers.bytes[id])],
      ["start", duration(transfers.start_ns[id])],
      ["takes", duration(transfers.duration_ns[id])],
    ]),
  ];
}

function way(plan, id) {
  const { source, target } = plan.transfers;
  return element("span", {}, chip(plan.devices, source[id]), " → ", chip(plan.devices, target[id]));
}

/** The whole name of an op, which the data has in two parts. */
function nameOf(plan, id) {
  return plan.scopes[plan.ops.scope[id]] + plan.ops.leaf[id];
}

function searchBox(state, list) {
  const input = element("input", { type: "search", placeholder: "Search an op by name", id: "search" });
  input.setAttribute("aria-label", "Search an op by name");
  const count = element("span", { className: "soft", id: "found-count" });
  let ids = [];
  input.addEventListener("input", () => {
    ids = search(state, input.value);
    count.textContent = input.value ? `${ids.length.toLocaleString("en")} found` : "";
    list.replaceChildren(...ids.slice(0, MOST_FOUND).map((id) => foundLine(state, id)));
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && ids.length) goTo(state, ids[0]);
  });
  return element("span", { className: "tools" }, input, count);
}

/** The ops whose names hold a text, in any case of letters, the longest first; the timeline marks them and what they send. */
function search(state, text) {
  const { plan } = state;
  const wanted = text.toLowerCase();
  state.names ??= plan.ops.leaf.map((_, id) => nameOf(plan, id).toLowerCase());
  const ids = wanted ? [...state.names.keys()].filter((id) => state.names[id].includes(wanted)) : [];
  ids.sort((a, b) => plan.ops.duration_ns[b] - plan.ops.duration_ns[a] || a - b);
  const device = new Set(ids);
  const channel = new Set([...plan.transfers.op.keys()].filter((id) => device.has(plan.transfers.op[id])));
  state.found = { device, channel };
  redraw(state);
  return ids;
}

function foundLine(state, id) {
  const { plan } = state;
  const button = element(
    "button", { type: "button" }, element("span", { className: "op" }, nameOf(plan, id)), chip(plan.devices, plan.ops.device[id]),
    element("span", { className: "soft" }, duration(plan.ops.duration_ns[id])),
  );
  button.addEventListener("click", () => goTo(state, id));
  return element("li", {}, button);
}

/** Zooms to an op and shows its tip. */
function goTo(state, id) {
  const { start_ns, duration_ns, device } = state.plan.ops;
  goToBox(state, state.lanes[device[id]], id, start_ns[id], duration_ns[id], () => aboutOp(state.plan, id));
}

function goToTransfer(state, id) {
  const { start_ns, duration_ns, channel } = state.plan.transfers;
  const lane = state.lanes.find((one) => one.channel === channel[id]);
  goToBox(state, lane, id, start_ns[id], duration_ns[id], () => aboutTransfer(state.plan, id));
}

function goToBox(state, lane, id, start, takes, about) {
  const around = Math.max(4 * takes, state.plan.shown_ns / 400);
  zoomTo(state, start - around, start + takes + around);
  for (const row of lane.rows) {
    const i = row.id.indexOf(id);
    if (i >= 0) {
      showTip(state, { lane, row, i, id });
      return;
    }
  }
  // What takes no time has no box.
  state.tip.replaceChildren(...about());
  placeTip(state, state.chart().convertToPixel({ xAxisIndex: 0 }, start), lane.top + lane.height + TOP + 6);
}
