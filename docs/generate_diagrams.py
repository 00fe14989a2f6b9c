"""Draw the diagrams of docs/images from diagrams.yaml. With --check, fail when one is stale."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
MARGIN, GAP, HEIGHT = 16, 44, 56
KINDS = {  # fill, border
    "input": ("#f1f5f9", "#64748b"),
    "module": ("#dbeafe", "#1f5fbf"),
    "answer": ("#dcfce7", "#15803d"),
    "user": ("#ffedd5", "#c2410c"),
}
STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1e293b;"
    "text-anchor:middle}.title{font-size:14px;font-weight:600}.line{font-size:12px;fill:#475569}"
    ".arrow{fill:none;stroke:#475569;stroke-width:1.6;marker-end:url(#head)}"
)
HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z" fill="#475569"/></marker></defs>'
)


class Grid:
    """Where boxes are: columns of given widths, rows of one height [px]."""

    def __init__(self, widths: list[int], row: int) -> None:
        self.widths, self.row = widths, row

    def box(self, at: list[int]) -> tuple[int, int, int]:
        """Left edge, top edge and width of a box."""
        column, row = at
        left = MARGIN + sum(self.widths[:column]) + GAP * column
        return left, MARGIN + self.row * row, self.widths[column]

    def arrow(self, start: list[int], end: list[int]) -> str:
        """The path from box to box: sideways where columns differ, else down or up."""
        x1, y1, w1 = self.box(start)
        x2, y2, w2 = self.box(end)
        middle1, middle2 = y1 + HEIGHT // 2, y2 + HEIGHT // 2
        if start[0] == end[0]:
            down = end[1] > start[1]
            x = x1 + w1 // 2
            return f"M{x} {y1 + HEIGHT if down else y1}V{y2 - 2 if down else y2 + HEIGHT + 2}"
        right = end[0] > start[0]
        far = abs(end[0] - start[0]) > 1
        begin, stop = (x1 + w1, x2 - 2) if right else (x1, x2 + w2 + 2)
        if start[1] == end[1]:
            return f"M{begin} {middle1}H{stop}"
        if far:  # below its own row, then into the other box from above
            between = y1 + HEIGHT + (self.row - HEIGHT) // 2
            x = x2 + w2 // 2
            return f"M{x1 + w1 // 2} {y1 + HEIGHT}V{between}H{x}V{y2 - 2}"
        bend = begin + (GAP // 2 if right else -GAP // 2)
        return f"M{begin} {middle1}H{bend}V{middle2}H{stop}"


def drawn(diagram: dict[str, Any]) -> str:
    """A diagram as SVG."""
    grid = Grid(diagram["column"], diagram["row"])
    boxes = diagram["boxes"]
    width = 2 * MARGIN + sum(grid.widths) + GAP * (len(grid.widths) - 1)
    rows = 1 + max(box["at"][1] for box in boxes.values())
    height = 2 * MARGIN + grid.row * (rows - 1) + HEIGHT
    parts = [
        f'<path class="arrow" d="{grid.arrow(boxes[start]["at"], boxes[end]["at"])}"/>'
        for start, end in diagram["arrows"]
    ]
    for box in boxes.values():
        left, top, wide = grid.box(box["at"])
        fill, border = KINDS[box["kind"]]
        parts.append(
            f'<rect x="{left}" y="{top}" width="{wide}" height="{HEIGHT}" rx="8" fill="{fill}" '
            f'stroke="{border}" stroke-width="1.4"/>'
        )
        lines = [("title", box["title"]), *(("line", one) for one in box.get("lines", ()))]
        first = top + HEIGHT / 2 + 5 - 9 * (len(lines) - 1)
        parts += [
            f'<text class="{kind}" x="{left + wide / 2:g}" y="{first + 18 * at:g}">'
            f"{escape(words)}</text>"
            for at, (kind, words) in enumerate(lines)
        ]
    title = escape(diagram["title"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="img" aria-label="{title}"><title>{title}</title><style>{STYLE}</style>{HEAD}'
        f'<rect width="{width}" height="{height}" rx="10" fill="#fff"/>'
        + "".join(parts)
        + "</svg>\n"
    )


def main() -> None:
    """Write the diagrams, or compare them when called with --check."""
    for name, diagram in yaml.safe_load((DOCS / "diagrams.yaml").read_text()).items():
        path, text = IMAGES / f"{name}.svg", drawn(diagram)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"docs/images/{name}.svg is stale: run `make docs` and commit it.")


if __name__ == "__main__":
    main()
