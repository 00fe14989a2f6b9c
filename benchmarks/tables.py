"""Recorded results: show them as tables, and keep their folder in order.

    python benchmarks/tables.py startup batch    # print them
    python benchmarks/tables.py --tidy           # after results were added or merged

Tidying may be repeated. It turns references to NAME.md into such to NAME.json and removes the
tables in Markdown, which are no more than the JSON's rows; removes lists of single cases and
results on halves that something was developed on, unless a document names them; and marks results
of commits that the history does not have, as the branch that they were made on was rewritten.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path

from _record import RESULTS, show, write

ROOT = RESULTS.parent.parent
WORKING = re.compile(r"_(cases|wrong|development|first_half)(_|$)")
"""Names of what is for who works on the thing measured."""
READERS = ("*.md", "schedmate/*.py", "benchmarks/*.py", ":(exclude)tests")
"""Files of which those that are not results may refer to results."""
REWRITTEN = "its commit is not in this history: the branch was rewritten when it was merged"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="results to print")
    parser.add_argument("--tidy", action="store_true")
    options = parser.parse_args()
    if options.tidy:
        tidy()
    for name in options.names:
        show(json.loads((RESULTS / f"{name}.json").read_text()))


def tidy() -> None:
    _check_history()
    names = {path.stem for path in RESULTS.glob("*.json")}
    texts = {path: path.read_text() for path in _readers()}
    for path, text in texts.items():
        changed = _refer_to_json(text, names)
        if changed != text:
            print(f"refers to JSON: {path.relative_to(ROOT)}")
            texts[path] = changed
            path.write_text(changed)
    cited = "\n".join(text for path, text in texts.items() if path.suffix == ".md")
    for path in sorted(RESULTS.iterdir()):
        uncited = WORKING.search(path.stem) and not re.search(rf"\b{path.stem}\b", cited)
        if (path.suffix == ".md" and path.stem in names) or (path.suffix == ".json" and uncited):
            print(f"removed: {path.name}")
            path.unlink()
    for path in sorted(RESULTS.glob("*.json")):
        document = json.loads(path.read_text())
        if "commit" in document and not _is_in_history(document["commit"].rstrip("+")):
            if document.get("history") != REWRITTEN:
                rows = document.pop("rows")
                write(path, {**document, "history": REWRITTEN, "rows": rows})


def _check_history() -> None:
    """End with a sentence where git cannot tell which commits the history has."""
    shallow = _git("rev-parse", "--is-shallow-repository").stdout.strip()
    if shallow == "true":
        raise SystemExit(
            "error: this clone is shallow, so its history does not show which commits of results "
            "are in it; run `git fetch --unshallow` and try again."
        )
    if shallow != "false":
        raise SystemExit(
            f"error: {ROOT} is not a git repository, whose files and commits are needed; tidy in a "
            "clone."
        )


def _readers() -> list[Path]:
    listed = _git("ls-files", "--", *READERS).stdout.splitlines()
    paths = (ROOT / name for name in listed)
    return [path for path in paths if path.parent != RESULTS and path.name != "CHANGELOG.md"]


def _refer_to_json(text: str, names: set[str]) -> str:
    """The text with `results/NAME.md`, `NAME.md` in backquotes and such with stars as JSON."""
    text = re.sub(r"(benchmarks/results/[\w*]+)\.md\b", r"\1.json", text)
    return re.sub(r"`(\w+)\.md`", lambda m: f"`{m[1]}.json`" if m[1] in names else m[0], text)


def _is_in_history(commit: str) -> bool:
    return _git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    main()
