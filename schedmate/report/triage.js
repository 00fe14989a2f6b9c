// The table of jobs can be filtered.
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

// A link to a card opens it.
function open() {
  const card = document.getElementById(location.hash.slice(1));
  if (card && card.tagName === "DETAILS") card.open = true;
}
addEventListener("hashchange", open);
open();
