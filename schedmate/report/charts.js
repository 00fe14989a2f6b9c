// Curves can be read off: with the pointer, or focused with the arrow keys.
const written = {
  duration: (s) => { const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([n]) => s >= n) || [1, "s"]; return `${+(s / size).toPrecision(3)} ${unit}`; },
  count: (n) => (+n.toPrecision(4)).toLocaleString("en"),
  share: (p) => `${(100 * p).toFixed(1)} %`,
  ratio: (r) => `${+r.toPrecision(3)}x`,
  effect: (s) => (s >= 0 ? `x ${Math.exp(s).toFixed(2)}` : `: ${Math.exp(-s).toFixed(2)}`),
  logarithm: (v) => written.duration(Math.expm1(Math.max(v, 0))),
  hours: (h) => `${h.toFixed(2)} h`,
};
const spot = "http://www.w3.org/2000/svg";

for (const chart of document.querySelectorAll("svg.curves")) {
  const [left, right, bottom, top] = chart.dataset.box.split(" ").map(Number);
  const [x0, x1, kind, scale] = chart.dataset.x.split(" ").map((one, i) => (i < 2 ? +one : one));
  const [y0, y1, unit] = chart.dataset.y.split(" ").map((one, i) => (i < 2 ? +one : one));
  const output = chart.closest("figure").querySelector("output.reading");
  if (!output || !written[kind]) continue;
  const curves = [...chart.querySelectorAll("path.line")].map((path) => [path.dataset.name, points(path.getAttribute("d"))]);
  const cursor = document.createElementNS(spot, "path");
  cursor.setAttribute("class", "cursor");
  chart.append(cursor);
  let at = (left + right) / 2;
  const read = (place) => {
    at = Math.min(right, Math.max(left, place));
    cursor.setAttribute("d", `M${at} ${top}V${bottom}`);
    const part = (at - left) / (right - left);
    const x = scale === "log" ? x0 * (x1 / x0) ** part : x0 + (x1 - x0) * part;
    const values = curves.map(([name, list]) => `${name} ${written[unit](y0 + (y1 - y0) * (bottom - height(list, at)) / (bottom - top))}`);
    output.textContent = `${written[kind](x)}: ${values.join(" · ")}`;
  };
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    read((event.clientX - box.left) / box.width * chart.viewBox.baseVal.width);
  });
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -40, PageUp: 40 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    read(at + step * 2);
  });
  chart.addEventListener("focus", () => read(at));
}

function points(path) {
  // M x y, then L x y, or H x V y for steps
  const list = [];
  let y = 0;
  for (const [, command, a, b] of path.matchAll(/([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
    if (command === "H") list.push([+a, y]);
    else if (command === "V") { y = +a; list.push([list.at(-1)[0], y]); }
    else { y = +b; list.push([+a, y]); }
  }
  return list;
}

function height(list, x) {
  let low = 0;
  let high = list.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle][0] <= x) low = middle; else high = middle;
  }
  const [[a, ya], [b, yb]] = [list[low], list[high]];
  return b > a ? ya + (yb - ya) * Math.min(1, Math.max(0, (x - a) / (b - a))) : yb;
}
