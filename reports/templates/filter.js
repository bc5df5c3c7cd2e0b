"use strict";
// Shows the controls, and hides what they do not select.  Without this script everything is shown.
for (const box of document.querySelectorAll("[data-filter]")) {
  const rows = [...document.querySelectorAll(box.dataset.filter)];
  const text = box.querySelector("input[type=search]");
  const kinds = [...box.querySelectorAll("input[type=checkbox]")];
  const count = box.querySelector("output");
  const links = [...document.querySelectorAll("[data-search]")];
  const names = new Map(links.map((link) =>
    [link.dataset.search, document.getElementById(link.getAttribute("aria-describedby"))?.textContent]));
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
    const told = wanted.map((word) => names.get(word)).filter(Boolean);
    if (count) count.textContent = [`${shown} of ${rows.length}`, ...told].join(": ");
  };
  box.addEventListener("input", apply);
  box.addEventListener("submit", (event) => event.preventDefault());
  box.hidden = false;
  apply();
  for (const link of links) {
    link.hidden = false;
    link.addEventListener("click", () => {
      text.value = link.dataset.search;
      apply();
      count.focus({ preventScroll: true });
      box.scrollIntoView();
    });
  }
}
// Headings that sort their table; what is no number comes after the numbers, and what is missing last.
for (const table of document.querySelectorAll("table[data-sort]")) {
  const body = table.tBodies[0];
  const words = new Intl.Collator(undefined, { numeric: true });
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const missing = (cell) => cell === "–";
      const cells = [...body.rows].map((row) => [row.cells[heading.cellIndex].textContent, row]);
      cells.sort(([a], [b]) => missing(a) - missing(b) || sign * (a - b || words.compare(a, b)));
      for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      body.append(...cells.map(([, row]) => row));
    });
  }
}
