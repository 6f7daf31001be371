// How to apply the plan: a sentence and what to type, each with a button that copies it.

function apply(data) {
  const steps = data.apply.flatMap(({ text, code }) => {
    const line = element("div", { className: "step" }, element("span", {}, text), ...(code ? copyButton(code) : []));
    return code ? [line, element("pre", {}, code)] : [line];
  });
  return section("apply", "How to apply the plan", "", ...steps);
}

/** None where the browser lends no clipboard. */
function copyButton(code) {
  if (!navigator.clipboard) return [];
  const copy = element("button", { type: "button", className: "link" }, "copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code);
    copy.textContent = "copied";
  });
  return [copy];
}
