// The model as a tree of layers. Rows are made when they are opened: a program has thousands of ops.

const MOST_ROWS = 20; // that are opened at a time
const LIMITS = ["compute", "memory", "launch"]; // as ``limit`` of an op has them

function layers(data) {
  const roots = rootsOf(data.plan);
  const place = element("div", { className: "tree" }, treeHead());
  showLayers(data.plan, roots, place, 0);
  const largest = roots.indexOf(roots.reduce((a, b) => (total(b) > total(a) ? b : a)));
  place.querySelectorAll(".toggle")[largest]?.click(); // most of a model is in one scope: what it is made of is of interest
  const time = "Time is what the devices work for a layer, all of its ops together; variables stay in memory, outputs come and go.";
  const shares = data.plan.bound_by.map(([word, share]) => `${word} ${percent(share)}`).join(", ");
  return section("layers", "Layers", shares ? `${time} The critical path is bound by: ${shares}.` : time, place);
}

/** The outermost layers, each with the sums of all in it and with what is inside. */
function rootsOf(plan) {
  const { ops, layer_parent, layer_name, devices } = plan;
  const nodes = layer_parent.map((parent, l) => ({
    parent, name: layer_name[l], children: [], ops: [], limits: [0, 0, 0], time: new Float64Array(devices.length), resident: 0, output: 0, count: new Int32Array(devices.length),
  }));
  ops.layer.forEach((layer, id) => {
    nodes[layer].ops.push(id);
    for (let l = layer; l >= 0; l = layer_parent[l]) {
      nodes[l].time[ops.device[id]] += ops.duration_ns[id];
      nodes[l].count[ops.device[id]] += 1;
      if (ops.limit) nodes[l].limits[ops.limit[id]] += ops.duration_ns[id];
      nodes[l].resident += ops.resident_bytes[id];
      nodes[l].output += ops.output_bytes[id];
    }
  });
  const roots = [];
  for (const node of nodes) (node.parent < 0 ? roots : nodes[node.parent].children).push(node);
  return roots;
}

function total(node) {
  return node.time.reduce((sum, ns) => sum + ns, 0);
}

/** What bounds most of the time of a layer's ops. */
function mostly(limits) {
  const most = Math.max(...limits);
  return most > 0 ? LIMITS[limits.indexOf(most)] : "";
}

function layerPath(plan, layer) {
  const names = [];
  for (let l = layer; l >= 0; l = plan.layer_parent[l]) names.unshift(plan.layer_name[l]);
  return names.join("/");
}

function treeHead() {
  const number = (text) => element("span", { className: "number" }, text);
  return element(
    "div", { className: "row head" }, element("span", {}, "layer"), element("span", { className: "bars" }, "time on each device"),
    number("bound by"), number("time"), number("variables"), number("outputs"),
  );
}

/** Layers side by side; their bars have one scale. */
function showLayers(plan, nodes, place, depth) {
  const longest = Math.max(1, ...nodes.map(total));
  showSome(nodes, place, (node) => layerRow(plan, node, longest, depth));
}

/** Ops of a layer, the longest first. */
function showOps(plan, ids, place, depth) {
  const takes = plan.ops.duration_ns;
  const ordered = ids.toSorted((a, b) => takes[b] - takes[a]);
  showSome(ordered, place, (id) => [opRow(plan, id, Math.max(1, takes[ordered[0]]), depth)]);
}

/** Rows of the first few, and a button for the next. */
function showSome(items, place, makeRow) {
  let shown = 0;
  const more = element("button", { type: "button", className: "more" });
  const next = () => {
    more.remove();
    place.append(...items.slice(shown, shown + MOST_ROWS).flatMap(makeRow));
    shown += MOST_ROWS;
    more.textContent = `${items.length - shown} more`;
    if (shown < items.length) place.append(more);
  };
  more.addEventListener("click", next);
  next();
}

function layerRow(plan, node, longest, depth) {
  const below = element("div", { hidden: true });
  const toggle = element("button", { type: "button", className: "toggle", "aria-expanded": "false" }, "▸");
  toggle.setAttribute("aria-label", `Open ${node.name}`);
  const numbers = { limit: mostly(node.limits), time: total(node), resident: node.resident, output: node.output };
  const name = element("span", {}, node.name);
  const row = treeRow(plan, depth, [toggle, name], { ...node, longest }, numbers);
  const open = () => {
    if (!below.firstChild) {
      showLayers(plan, node.children, below, depth + 1);
      showOps(plan, node.ops, below, depth + 1);
    }
    below.hidden = !below.hidden;
    toggle.textContent = below.hidden ? "▸" : "▾";
    toggle.setAttribute("aria-expanded", String(!below.hidden));
  };
  toggle.addEventListener("click", open);
  name.addEventListener("click", open);
  return [row, below];
}

function opRow(plan, id, longest, depth) {
  const { ops, devices } = plan;
  const time = new Float64Array(devices.length);
  const count = new Int32Array(devices.length);
  time[ops.device[id]] = ops.duration_ns[id];
  count[ops.device[id]] = 1;
  const what = [element("span", { className: "toggle" }), element("span", {}, ops.leaf[id]), element("span", { className: "type" }, plan.types[ops.type[id]])];
  const numbers = { limit: ops.limit ? LIMITS[ops.limit[id]] : "", time: ops.duration_ns[id], resident: ops.resident_bytes[id], output: ops.output_bytes[id] };
  return treeRow(plan, depth, what, { time, count, longest }, numbers);
}

function treeRow(plan, depth, what, { time, count, longest }, numbers) {
  const bar = element("div", { className: "share" });
  const where = element("div", { className: "where" });
  plan.devices.forEach((_, d) => {
    if (!count[d]) return;
    const part = element("i", { "--of-device": `var(${deviceVariable(d)})` });
    part.style.width = `${(100 * time[d]) / longest}%`;
    bar.append(part);
    where.append(chip(plan.devices, d));
  });
  const number = (text) => element("span", { className: "number" }, text);
  return element(
    "div", { className: "row" }, element("span", { className: "what", "--depth": depth }, ...what), element("div", { className: "bars" }, bar, where),
    number(numbers.limit), number(duration(numbers.time)), number(numbers.resident ? bytes(numbers.resident) : ""), number(numbers.output ? bytes(numbers.output) : ""),
  );
}
