"use strict";
// Shows the controls, and hides what they do not select.  Without this script everything is shown.
for (const box of document.querySelectorAll("[data-filter]")) {
  const rows = [...document.querySelectorAll(box.dataset.filter)];
  const text = box.querySelector("input[type=search]");
  const kinds = [...box.querySelectorAll("input[type=checkbox]")];
  const count = box.querySelector("output");
  const apply = () => {
    const wanted = text ? text.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    const chosen = new Set(kinds.filter((kind) => kind.checked).map((kind) => kind.value));
    let shown = 0;
    for (const row of rows) {
      const words = row.textContent.toLowerCase();
      const keep = (!kinds.length || chosen.has(row.dataset.kind)) && wanted.every((word) =>
        word.startsWith("#") ? (row.dataset.tags || "").split(" ").includes(word.slice(1)) : words.includes(word));
      row.hidden = !keep;
      shown += keep;
    }
    for (const group of document.querySelectorAll("[data-group]")) {
      group.hidden = !group.querySelector(`${box.dataset.filter}:not([hidden])`);
    }
    if (count) count.textContent = `${shown} of ${rows.length}`;
  };
  box.addEventListener("input", apply);
  box.hidden = false;
  apply();
  for (const link of document.querySelectorAll(`[data-search]`)) {
    link.addEventListener("click", () => { text.value = link.dataset.search; apply(); });
  }
}
