// Texts with a contrast below 4.5 to 1 (WCAG 2.2, 1.4.3).
const parsed = (colour) => {
  const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
  return [r, g, b, a];
};
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (one) => {
  for (let at = one; at; at = at.parentElement) {
    const [r, g, b, a] = parsed(getComputedStyle(at).backgroundColor);
    if (a > 0.99) return [r, g, b];
  }
  return parsed(getComputedStyle(document.documentElement).backgroundColor)[3] ? [255, 255, 255] : [255, 255, 255];
};
const wrong = new Set();
for (const one of document.body.querySelectorAll("*")) {
  const has = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!has || !one.checkVisibility() || one.closest(".sr, script, style")) continue;
  const style = getComputedStyle(one);
  const ink = luminance(parsed(one.closest("svg") ? style.fill : style.color).slice(0, 3));
  const paper = luminance(behind(one.closest("svg") || one));
  const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  if (contrast < 4.5) wrong.add(`${one.tagName} ${one.getAttribute("class") || ""} ${contrast.toFixed(2)}`);
}
return [...wrong];
