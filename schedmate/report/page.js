"use strict";
// Sorting, copying and saving: without this script everything is there to read.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...[...table.tHead.rows].at(-1).cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.textContent = "";
    head.append(button);
    const numeric = "number" in head.dataset;
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const keyed = [...body.rows].map((row) => [key(row, column, numeric), row]);
      keyed.sort(([a], [b]) => (numeric ? a - b : a.localeCompare(b)) * (descending ? -1 : 1));
      body.append(...keyed.map(([, row]) => row));
    });
  });
}

function key(row, column, numeric) {
  // a cell that spans columns stands for all of them
  let at = 0;
  let text = "";
  for (const cell of row.cells) {
    if (column < at + cell.colSpan) { text = cell.textContent; break; }
    at += cell.colSpan;
  }
  if (!numeric) return text;
  const number = parseFloat(text.replaceAll(",", ""));
  return Number.isNaN(number) ? -Infinity : number;
}

// A table that scrolls by itself can be scrolled with the keyboard.
const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  const scrolls = target.scrollWidth > target.clientWidth;
  target.toggleAttribute("tabindex", scrolls);
  if (scrolls) target.tabIndex = 0;
}));
for (const wide of document.querySelectorAll(".wide")) {
  wide.setAttribute("role", "group");
  wide.setAttribute("aria-label", "Table");
  watch.observe(wide);
}

function button(text, parent, act) {
  const one = document.createElement("button");
  one.type = "button";
  one.className = "do";
  one.textContent = text;
  one.addEventListener("click", () => act(one));
  parent.append(one);
}

function said(one, text) {
  const before = one.textContent;
  one.textContent = text;
  setTimeout(() => { one.textContent = before; }, 1500);
}

// data-copy: a button beside the element copies what it holds (or the lines of a table).
for (const source of document.querySelectorAll("[data-copy]")) {
  const text = () => source.tBodies
    ? [...source.tBodies[0].rows].map((row) => row.querySelector("code").textContent).join("\n")
    : source.textContent;
  const place = document.createElement("span");
  source.after(place);
  button(source.dataset.copy || "Copy", place, async (one) => {
    try {
      await navigator.clipboard.writeText(text());
      said(one, "Copied");
    } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      said(one, document.execCommand("copy") ? "Copied" : "Selected");
    }
  });
}

// data-save: buttons that save what the page holds as files.
for (const place of document.querySelectorAll("[data-save]")) {
  const tables = (place.dataset.table || "").split(" ").map((id) => document.getElementById(id)).filter(Boolean);
  if (tables.length) button("Save as CSV", place, () => save(`${place.dataset.save}.csv`, csv(tables), "text/csv"));
  const data = document.getElementById("data");
  if (data) button("Save as JSON", place, () => save(`${place.dataset.save}.json`, data.textContent, "application/json"));
}

function csv(tables) { // with the same columns
  // a spreadsheet must not take the text of a log for a formula
  const cell = (text) => `"${(/^[=+@\t-]/.test(text) && Number.isNaN(Number(text)) ? "'" + text : text).replaceAll('"', '""')}"`;
  const rows = [[...tables[0].tHead.rows].at(-1), ...tables.flatMap((table) => [...table.tBodies[0].rows])];
  return rows.map((row) => [...row.cells].flatMap((one) =>
    [cell(one.dataset.csv ?? one.textContent.trim().replace(/\s+/g, " ")), ...Array(one.colSpan - 1).fill("")]).join(",")).join("\n") + "\n";
}

function save(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// Printed is what is open, and the first of the cards.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details.card")].slice(0, 25);
  opened = [...new Set([...opened.map((one) => one.closest(".fold")), ...opened])].filter((one) => one && !one.open);
  opened.forEach((one) => { one.open = true; });
});
addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));
