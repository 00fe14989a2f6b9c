// What is wrong with the layout of a page, as a list of sentences. `scrolls`: whether wide tables may.
const [scrolls] = arguments;
const wrong = [];
const width = document.documentElement.clientWidth;
const told = (one) => `<${one.tagName.toLowerCase()} class="${one.getAttribute("class") || ""}"> ${one.textContent.trim().slice(0, 40)}`;
const hidden = ".sr, .skip, .stack thead, script, style, title, [hidden]";
const visible = (one) => !one.closest(hidden) && one.checkVisibility();
if (document.documentElement.scrollWidth > width) wrong.push(`the page is ${document.documentElement.scrollWidth} wide of ${width}`);

for (const one of document.body.querySelectorAll("*")) {
  if (!visible(one) || one.closest("svg") !== null && one.tagName !== "svg") continue;
  const box = one.getBoundingClientRect();
  const scroller = scrolls && one.closest(".wide");
  if (!scroller && (box.right > width + 1 || box.left < -1)) wrong.push(`beyond the window: ${told(one)}`);
  const overflow = getComputedStyle(one).overflowX;
  if (overflow !== "visible" && one.scrollWidth > one.clientWidth + 1 && !scroller) wrong.push(`clipped: ${told(one)}`);
}

// No word of ordinary length is broken.
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const range = document.createRange();
let looked = 0;
while (texts.nextNode() && looked < 6000) {
  const node = texts.currentNode;
  if (!visible(node.parentElement) || node.parentElement.closest("svg")) continue;
  for (const found of node.data.matchAll(/\S+/g)) {
    const token = found[0];
    if (token.length > 14 || /[^\p{L}\p{N}]/u.test(token) || /\p{Script=Han}/u.test(token)) continue;
    looked += 1;
    range.setStart(node, found.index);
    range.setEnd(node, found.index + token.length);
    const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
    if (tops.size > 1) wrong.push(`broken: ${token} in ${told(node.parentElement)}`);
  }
}

// The text of charts is large enough, within the window, and ticks do not touch.
for (const chart of document.querySelectorAll("svg.chart")) {
  if (!visible(chart)) continue;
  const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
  let last = -Infinity;
  for (const text of chart.querySelectorAll("text")) {
    const style = getComputedStyle(text);
    if (style.display === "none") continue;
    const size = parseFloat(style.fontSize) * scale;
    if (size < 9.5) wrong.push(`text of ${size.toFixed(1)} pixels: ${told(text)}`);
    const box = text.getBoundingClientRect();
    if (box.left < -1 || box.right > width + 1) wrong.push(`beyond the window: ${told(text)}`);
    if (text.matches(".tick:not(.y)")) {
      if (box.left < last + 2) wrong.push(`ticks touch: ${told(text)} in ${chart.getAttribute("aria-label")}`);
      last = box.right;
    }
  }
}
return wrong.slice(0, 20);
