"use strict";
// Sorting and filtering only: without this script everything is there to read.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
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
  return Number.isNaN(number) ? -1 : number;
}

const filter = document.getElementById("filter");
const count = document.getElementById("count");
const rows = [...document.getElementById("all").tBodies[0].rows];
const texts = rows.map((row) => row.textContent.toLowerCase());
function apply() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, i) => {
    row.hidden = !words.every((word) => texts[i].includes(word));
    shown += !row.hidden;
  });
  count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} jobs`;
}
filter.addEventListener("input", apply);
document.querySelector(".controls").hidden = false;
apply();

// A link to a card opens it; printing opens all.
function open() {
  const card = document.getElementById(location.hash.slice(1));
  if (card && card.tagName === "DETAILS") card.open = true;
}
addEventListener("hashchange", open);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
open();
