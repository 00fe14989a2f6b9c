"use strict";
// The page shows what is new every few seconds: what is open, sorted or being typed stays as it is.
const PERIOD_MS = 10000;
const live = document.getElementById("live");

function busy() {
  const at = document.activeElement;
  return document.hidden || at?.matches("input:not([type=search])") || !getSelection().isCollapsed || [...document.querySelectorAll("form input:not([type=hidden]):not([type=search])")].some((one) => one.value);
}

// What has the focus in what is renewed, to be found again by its place and words.
function focused() {
  const at = document.activeElement;
  if (!at || !at.closest("main, nav")) return null;
  const words = (one) => `${one.tagName} ${one.getAttribute("href") || one.id} ${one.textContent}`;
  const key = words(at);
  const alike = (root) => [...root.querySelectorAll("main :is(a, button, summary, [tabindex]), nav a")].filter((one) => words(one) === key);
  const place = alike(document).indexOf(at);
  return () => { const found = alike(document); (found[place] || found[0])?.focus({ preventScroll: true }); };
}

function opened() {
  return new Map([...document.querySelectorAll("details")].map((one) => [one.dataset.key || one.querySelector("summary").textContent, one.open]));
}

function sorted() {
  return new Map([...document.querySelectorAll("table.sortable")].map((table) => {
    const heads = [...table.tHead.rows[0].cells];
    const at = heads.findIndex((head) => head.hasAttribute("aria-sort"));
    return [table.closest("section").id, at < 0 ? null : [at, heads[at].getAttribute("aria-sort")]];
  }));
}

function sort(table, column, direction) {
  const numeric = "number" in table.tHead.rows[0].cells[column].dataset || [...table.tBodies[0].rows].some((row) => "v" in (row.cells[column]?.dataset || {}));
  const key = (row) => {
    const cell = row.cells[Math.min(column, row.cells.length - 1)];
    const number = parseFloat("v" in cell.dataset ? cell.dataset.v : cell.textContent.replaceAll(",", ""));
    return numeric ? (Number.isNaN(number) ? -Infinity : number) : cell.textContent;
  };
  const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => (numeric ? (a < b ? -1 : a > b ? 1 : 0) : a.localeCompare(b)) * (direction === "descending" ? -1 : 1));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", direction);
}

function prepare() {
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => sort(table, column, head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending"));
    });
  }
}

async function renew() {
  if (busy()) return;
  try {
    const reply = await fetch("/", { credentials: "same-origin", redirect: "manual" });
    if (reply.type === "opaqueredirect") {
      live.innerHTML = '· not up to date: <a href="/login">sign in again</a>';
      live.className = "stale";
      return;
    }
    if (!reply.ok) throw new Error(reply.statusText);
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    if (busy()) return;
    const [open, order, refocus] = [opened(), sorted(), focused()];
    for (const name of ["main", "nav", ".headline", "time"]) document.querySelector(name).replaceWith(page.querySelector(name));
    prepare();
    for (const one of document.querySelectorAll("details")) {
      const was = open.get(one.dataset.key || one.querySelector("summary").textContent);
      if (was !== undefined) one.open = was;
    }
    for (const table of document.querySelectorAll("table.sortable")) {
      const was = order.get(table.closest("section").id);
      if (was) sort(table, ...was);
    }
    refocus?.();
    live.textContent = "";
    live.className = "";
  } catch {
    live.textContent = "· not up to date: the service does not answer";
    live.className = "stale";
  }
}

prepare();
setInterval(renew, PERIOD_MS);
