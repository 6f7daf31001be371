// Memory of every device over the step, against what it has.

const LEAST_SHARE = 0.25; // of what a device has, below which its curve has a scale of its own

function memory(data) {
  const { plan } = data;
  const places = plan.devices.map((device, d) => {
    const place = element("div", { className: "chart" });
    keepChart(place, () => memoryOptions(plan, d));
    const peak = plan.memory[d].peak_bytes;
    const share = device.capacity_bytes ? ` (${percent(peak / device.capacity_bytes)})` : "";
    const line = element("div", {}, chip(plan.devices, d), element("span", { className: "soft" }, `  peak ${bytes(peak)} of ${bytes(device.capacity_bytes)}${share}`));
    return element("div", {}, line, place);
  });
  return section(
    "memory", "Memory over the step", "Variables, outputs that are still needed, and received copies. The dashed line is what the device has; where that is far above the peak, the scale ends before it.",
    element("div", { className: "memories" }, ...places),
  );
}

function memoryOptions(plan, d) {
  const { at_ns, bytes: used, peak_bytes } = plan.memory[d];
  const capacity = plan.devices[d].capacity_bytes;
  const top = memoryTop(capacity, peak_bytes);
  const points = at_ns.map((ns, i) => [ns, used[i]]);
  if (points.length) points.push([plan.step_ns, used.at(-1)]);
  const fill = color(deviceVariable(d));
  return {
    ...basics(),
    grid: { left: 52, right: 8, top: 10, bottom: 22 },
    tooltip: chartTip((items) => memoryTip(items), { trigger: "axis", axisPointer: { lineStyle: { color: color("--faint") } } }),
    xAxis: axis({
      type: "value", min: 0, max: plan.step_ns, splitNumber: 3, splitLine: { show: false },
      axisLabel: { formatter: axisTime, alignMinLabel: "left", alignMaxLabel: "right", showMaxLabel: false },
    }),
    yAxis: axis({ type: "value", min: 0, max: top, splitNumber: 2, axisLabel: { formatter: axisBytes, showMaxLabel: false } }),
    series: [{
      type: "line", step: "end", symbol: "none", data: points, lineStyle: { color: fill, width: 1.5 }, areaStyle: { color: fill, opacity: 0.22 },
      emphasis: { disabled: true },
      markLine: {
        symbol: "none", silent: true, label: { show: false }, data: capacity <= top ? [{ yAxis: capacity }] : [], lineStyle: { color: color("--mark"), type: "dashed", width: 1.2 },
      },
    }],
  };
}

/** Where the scale ends: above what the device has, or, where the curve would lie flat on the ground, above the peak. */
function memoryTop(capacity, peak) {
  return peak >= LEAST_SHARE * capacity || !peak ? 1.06 * Math.max(capacity, peak, 1) : 1.2 * peak;
}

/** "10 GB": ticks are round. */
function axisBytes(count) {
  const [number, unit] = bytes(count).split(" ");
  return `${+number} ${unit}`;
}

function memoryTip([item]) {
  if (!item) return "";
  return pairs([["at", duration(item.value[0])], ["in use", bytes(item.value[1])]]);
}
