"""Write a page for each benchmark with all of its recorded results, for the documentation site.

python docs/generate_results.py FOLDER
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from generate_benchmarks import RESULTS, ROOT, cell, result, results, shown

SHARED = ("machine", "python", "packages", "rows")
"""What is left out of a table's heading, or told elsewhere."""


def scripts() -> dict[str, str]:
    """The benchmarks with the question that each answers, from benchmarks/README.md."""
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `(\w+)\.py` \| (.*?) \|", page, re.MULTILINE))


def owners() -> dict[str, list[str]]:
    """The results of each benchmark; a result belongs to the longest name that begins its own."""
    found: dict[str, list[str]] = {}
    questions = sorted(scripts(), key=len, reverse=True)
    names = [name for path in RESULTS.glob("*.json") for name in results(path.stem)]
    for name in sorted(names):
        owner = next((one for one in questions if name.startswith(one)), "others")
        found.setdefault(owner, []).append(name)
    return dict(sorted(found.items()))


@cache
def page_of(name: str) -> str:
    """The page that a result is on."""
    return next(owner for owner, names in owners().items() if name in names)


def html(rows: list[dict[str, Any]]) -> str:
    """Rows as a table in HTML: the thousands of cells would take Sphinx a minute in Markdown."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["".join(f"<th>{escape(column)}</th>" for column in columns)]
    lines += ["".join(f"<td>{escape(shown(row.get(key)))}</td>" for key in columns) for row in rows]
    inner = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table class="table">\n{inner}\n</table>'


def page(owner: str, names: list[str], question: str) -> str:
    """The page of a benchmark."""
    parts = [f"# {owner}", question]
    for name in names:
        document = result(name)
        facts = [f"- {key}: {cell(value)}" for key, value in document.items() if key not in SHARED]
        parts += [f"({name})=", f"## {name}", "\n".join(facts), html(document["rows"])]
        parts.append(f"{document.get('machine', '')}; Python {document.get('python', '')}")
    return "\n\n".join(parts) + "\n"


def write(folder: Path) -> None:
    """Write all pages and their index."""
    made = {"index.md": _index()}
    for owner, names in owners().items():
        made[f"{owner}.md"] = page(owner, names, scripts().get(owner, ""))
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _index() -> str:
    questions = scripts()
    lines = ["# All recorded results", "", "One page for each script of `benchmarks/`.", ""]
    lines += ["| benchmark | question | results |", "|---|---|---|"]
    for owner, names in owners().items():
        question = questions.get(owner, "")
        lines.append(f"| [{owner}]({owner}.md) | {question} | {len(names)} |")
    lines += ["", "```{toctree}", ":hidden:", "", *owners(), "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
