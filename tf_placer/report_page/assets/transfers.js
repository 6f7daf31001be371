// The largest tensors that cross.

const MOST_TRANSFERS = 20;

function transfers(data, state) {
  const { plan } = data;
  const all = plan.transfers;
  const order = [...all.bytes.keys()].sort((a, b) => all.bytes[b] - all.bytes[a] || a - b);
  const sum = all.bytes.reduce((so_far, count) => so_far + count, 0);
  const line = all.bytes.length
    ? `${all.bytes.length.toLocaleString("en")} tensors cross, ${bytes(sum)} a step.`
    : "No tensor crosses from device to device.";
  if (!all.bytes.length) return section("transfers", "Largest transfers", line);
  const head = ["tensor of", "from and to", "bytes", "takes", ""].map((name, i) => element("th", { className: i > 1 ? "number" : "", scope: "col" }, name));
  const body = element("tbody", {}, ...order.slice(0, MOST_TRANSFERS).map((id) => transferRow(plan, state, id)));
  return section("transfers", "Largest transfers", line, scrolling(element("table", {}, element("thead", {}, element("tr", {}, ...head)), body), "Largest transfers"));
}

function transferRow(plan, state, id) {
  const show = element("button", { type: "button", className: "link" }, "show");
  show.addEventListener("click", () => {
    document.getElementById("timeline").scrollIntoView({ block: "start" });
    goToTransfer(state, id);
  });
  const { op, bytes: size, duration_ns } = plan.transfers;
  return element(
    "tr", {}, element("td", { className: "name" }, nameOf(plan, op[id])), element("td", {}, way(plan, id)),
    element("td", { className: "number" }, bytes(size[id])), element("td", { className: "number" }, duration(duration_ns[id])),
    element("td", { className: "number" }, show),
  );
}
