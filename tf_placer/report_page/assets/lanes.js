// The step as lanes: one for each device and for each channel of links that carries something. A lane has as many rows as
// boxes lie side by side in it. Boxes of a row are in order, so those in a window are found by halving.

const LABEL_HEIGHT = 19;
const LANE_GAP = 9;
const ROW_HEIGHTS = [24, 13, 10]; // of lanes with one row, two, or more

/** All lanes of a plan, from top to bottom, with their places in pixels. */
function lanesOf(plan) {
  const works = joined(plan.ops, plan.chores);
  const { device, measured_start_ns, measured_duration_ns } = plan.ops;
  const measured = { start_ns: measured_start_ns, duration_ns: measured_duration_ns };
  const lanes = plan.devices.flatMap(({ label }, d) => {
    const lane = { kind: "device", label, device: d, ...rowsOf(works, (i) => works.device[i] === d) };
    const run = { kind: "device", label: `${label}, measured`, device: d, ...rowsOf(measured, (i) => device[i] === d) };
    return run.boxes ? [lane, run] : [lane];
  });
  plan.measured_ns = measured_start_ns.reduce((end, start, i) => Math.max(end, start + measured_duration_ns[i]), 0);
  plan.shown_ns = Math.max(plan.step_ns, plan.measured_ns);
  plan.channels.forEach((label, c) => {
    const rows = rowsOf(plan.transfers, (i) => plan.transfers.channel[i] === c);
    if (rows.boxes) lanes.push({ kind: "channel", label, channel: c, ...rows });
  });
  let top = 0;
  for (const lane of lanes) {
    lane.rowHeight = ROW_HEIGHTS[Math.min(lane.rows.length, ROW_HEIGHTS.length) - 1];
    lane.top = top + LABEL_HEIGHT;
    lane.height = lane.rows.length * lane.rowHeight;
    top = lane.top + lane.height + LANE_GAP;
    lane.share = busyNs(lane) / (lane.label.endsWith(", measured") ? plan.measured_ns : plan.step_ns);
  }
  return { lanes, height: top };
}

/** What devices do: their ops, and behind these what they do for transfers. */
function joined(ops, chores) {
  return Object.fromEntries(["device", "start_ns", "duration_ns"].map((name) => [name, [...ops[name], ...chores[name]]]));
}

/** The boxes of a lane in rows: of those that take time, each in the first row that is free. */
function rowsOf(table, isIn) {
  const ids = [];
  for (let i = 0; i < table.start_ns.length; i++) if (isIn(i) && table.duration_ns[i] > 0) ids.push(i);
  ids.sort((a, b) => table.start_ns[a] - table.start_ns[b] || a - b);
  const rows = [];
  for (const id of ids) {
    const start = table.start_ns[id];
    let row = rows.find((other) => other.end.at(-1) <= start);
    if (!row) rows.push((row = { id: [], start: [], end: [] }));
    row.id.push(id);
    row.start.push(start);
    row.end.push(start + table.duration_ns[id]);
  }
  return { boxes: ids.length, rows: rows.length ? rows : [{ id: [], start: [], end: [] }] };
}

/** Time in which at least one box of the lane runs. */
function busyNs(lane) {
  const spans = lane.rows.flatMap((row) => row.start.map((start, i) => [start, row.end[i]])).sort((a, b) => a[0] - b[0]);
  let busy = 0;
  let until = 0;
  for (const [start, end] of spans) {
    busy += Math.max(0, end - Math.max(start, until));
    until = Math.max(until, end);
  }
  return busy;
}

/** Position of the first box of a row that ends after a time. */
function firstAfter(row, ns) {
  let low = 0;
  let high = row.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.end[middle] > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The lane and the box of it at a time and a height; of boxes closer than `reach` the one that is there longest. */
function boxAt(lanes, ns, y, reach) {
  const lane = lanes.find((one) => y >= one.top && y < one.top + one.height);
  if (!lane) return null;
  const row = lane.rows[Math.floor((y - lane.top) / lane.rowHeight)];
  let found = null;
  let longest = 0;
  for (let i = firstAfter(row, ns - reach); i < row.id.length && row.start[i] <= ns + reach; i++) {
    const overlap = Math.min(row.end[i], ns + reach) - Math.max(row.start[i], ns - reach);
    if (overlap > longest) [longest, found] = [overlap, { lane, row, i, id: row.id[i] }];
  }
  return found;
}

/**
 * What is to be drawn of a row between two times: boxes of a pixel and more one by one, all others as how much of each
 * column of pixels they fill, so that idle time between boxes that are too small to see stays visible.
 */
function visible(row, from, to, width, isBright) {
  const scale = width / (to - from);
  const wide = [];
  const filled = { bright: new Float32Array(width + 1), dim: new Float32Array(width + 1) };
  for (let i = firstAfter(row, from); i < row.id.length && row.start[i] < to; i++) {
    const x = (Math.max(row.start[i], from) - from) * scale;
    const end = (Math.min(row.end[i], to) - from) * scale;
    const bright = isBright(row.id[i]);
    if (end - x >= 1) wide.push({ id: row.id[i], x, width: end - x, bright });
    else addColumn(bright ? filled.bright : filled.dim, x, end);
  }
  return { wide, filled };
}

function addColumn(columns, x, end) {
  const first = Math.floor(x);
  const last = Math.min(Math.floor(end), columns.length - 1);
  if (first === last) columns[first] += end - x;
  else {
    columns[first] += first + 1 - x;
    columns[last] += end - last;
  }
}
