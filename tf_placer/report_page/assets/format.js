// How numbers are written, and how elements are made. Text always goes in as text: names of ops may hold any character.

const UNKNOWN = "-";

/** "413 ms", "4.82 ms": as tables on the terminal write a time in seconds. */
function milliseconds(seconds) {
  return seconds === null ? UNKNOWN : `${threeDigits(1e3 * seconds)} ms`;
}

/** Three digits that count, and three after the point at most; the data has all of them. */
function threeDigits(number) {
  const rounded = +(+number.toPrecision(3)).toFixed(3);
  const size = rounded ? Math.floor(Math.log10(Math.abs(rounded))) : 2;
  return rounded.toFixed(Math.min(Math.max(2 - size, 0), 3));
}

/** A time in nanoseconds in the unit that suits it: "1.25 ms", "830 µs". */
function duration(ns) {
  if (ns === 0) return "0";
  if (ns >= 1e9) return `${trimmed(ns / 1e9)} s`;
  if (ns >= 1e6) return `${trimmed(ns / 1e6)} ms`;
  return ns >= 1e3 ? `${trimmed(ns / 1e3)} µs` : `${Math.round(ns)} ns`;
}

function bytes(count) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count >= size) return `${trimmed(count / size)} ${unit}`;
  }
  return `${count} B`;
}

function percent(share) {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)}%`;
}

function trimmed(number) {
  return number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2);
}

/** An element with properties, CSS variables (--name) and children, which are elements or text. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("--")) made.style.setProperty(name, value);
    else if (name.startsWith("aria-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

/** A heading, a line below it, and a place for what follows. */
function section(id, title, line, ...children) {
  const about = line ? [element("p", { className: "soft" }, line)] : [];
  return element("section", { id }, element("h2", {}, title), ...about, ...children);
}

/** A table that scrolls sideways where the page is narrower, with pointer, finger and keys. */
function scrolling(table, name) {
  return element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": name }, table);
}

/** Pairs of words and values, as in tips. */
function pairs(rows) {
  return element("dl", {}, ...rows.flatMap(([word, value]) => [element("dt", {}, word), element("dd", {}, value)]));
}
