// The page: its data is in the element "data"; a program is shown at a time.

const page = JSON.parse(document.getElementById("data").textContent);
const report = document.getElementById("report");

function show(data) {
  forgetCharts();
  const parts = [heading(data), stepTimes(data)];
  if (data.looked_at) parts.push(element("p", { className: "verdict" }, `The step below is the plan of ${data.looked_at}, not the one written.`));
  let state = null;
  if (data.plan) {
    const [drawnTimeline, made] = timeline(data);
    state = made;
    parts.push(drawnTimeline, memory(data), layers(data), transfers(data, state));
  }
  parts.push(progress(data), apply(data), origin());
  report.replaceChildren(...parts);
  drawCharts();
  state?.listen();
}

function heading(data) {
  const figures = data.figures.flatMap(([word, value]) => [element("div", {}, element("dt", {}, word), element("dd", {}, value))]);
  return element(
    "header", {}, element("h1", {}, data.title), ...(page.sections.length > 1 ? [chooser(data)] : []),
    element("p", { className: "verdict" }, data.headline), element("dl", { className: "figures" }, ...figures),
    ...data.notes.map((text) => element("p", { className: "soft" }, text)),
  );
}

/** Where the page comes from. */
function origin() {
  const rows = page.origin.flatMap(([word, value]) => [element("dt", {}, word), element("dd", {}, value)]);
  return element("footer", {}, element("dl", { className: "origin" }, ...rows));
}

function chooser(chosen) {
  const options = page.sections.map((data, i) => element("option", { value: i, selected: data === chosen }, data.name));
  const select = element("select", { id: "chooser" }, ...options);
  select.addEventListener("change", () => show(page.sections[select.value]));
  return element("label", { className: "chooser" }, `${page.sections.length} programs:`, select);
}

show(page.sections[0]);
