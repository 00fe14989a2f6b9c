// Tables are filtered by words and kinds; what is chosen stands in the address, as #jobs?jobs=oom.
const anchor = () => decodeURIComponent(location.hash.slice(1).split("?")[0]);
const chosen = () => new URLSearchParams(location.hash.split("?")[1] || "");
const filters = [...document.querySelectorAll("[data-filter]")].map((place) => {
  const name = place.dataset.filter;
  const tables = place.dataset.table.split(" ").map((id) => document.getElementById(id));
  const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const words = place.querySelector("input[type=search]");
  const boxes = [...place.querySelectorAll("input[type=checkbox]")];
  // where none of the kinds that are shown at first occurs, all are
  if (!boxes.some((box) => box.defaultChecked)) boxes.forEach((box) => { box.defaultChecked = box.checked = true; });
  const first = boxes.filter((box) => box.defaultChecked).map((box) => box.value).join();
  const kinds = () => boxes.filter((box) => box.checked).map((box) => box.value);
  // of a long list the first rows, and the others when asked for
  let most = Number(place.dataset.most) || Infinity;
  const more = document.createElement("button");
  more.type = "button";
  more.className = "do more";
  more.addEventListener("click", () => { most = Infinity; apply(); });
  tables[0].after(more);
  function apply(unfold) {
    const parts = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(kinds());
    let shown = 0;
    rows.forEach((row, i) => {
      const fits = (!boxes.length || !row.dataset.kind || wanted.has(row.dataset.kind)) && parts.every((part) => texts[i].includes(part));
      const show = fits && shown < most;
      if (row.hidden === show) row.hidden = !show;
      shown += fits;
      const fold = show && unfold && parts.length ? row.closest("details.fold") : null;
      if (fold) fold.open = true;
    });
    more.hidden = shown <= most;
    more.textContent = `Show all ${shown.toLocaleString("en")}`;
    place.querySelector("output").textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
  }
  function keep() {
    const state = chosen();
    state.delete(name);
    state.delete(`${name}-kinds`);
    if (words.value) state.set(name, words.value);
    if (kinds().join() !== first) state.set(`${name}-kinds`, kinds().join());
    history.replaceState(null, "", String(state) ? `#${place.closest("section").id}?${state}` : `#${place.closest("section").id}`);
  }
  function restore() {
    const state = chosen();
    if (![...state.keys()].length) return false;
    words.value = state.get(name) || "";
    const some = (state.get(`${name}-kinds`) ?? first).split(",");
    boxes.forEach((box) => { box.checked = some.includes(box.value); });
    return true;
  }
  for (const one of [words, ...boxes]) one.addEventListener("input", () => { apply(true); keep(); });
  place.hidden = false;
  return () => apply(restore());
});

// A link to a card opens it.
function open() {
  filters.forEach((again) => again());
  const target = document.getElementById(anchor());
  for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  if (target && location.hash.includes("?")) target.scrollIntoView();
}
addEventListener("hashchange", open);
open();
