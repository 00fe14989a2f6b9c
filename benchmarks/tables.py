"""Recorded results: show them as tables, and keep their folder in order.

    python benchmarks/tables.py startup sia_charge    # print a subject's tables, or one table
    python benchmarks/tables.py --tidy                # after results were added or merged

Tidying may be repeated. It removes lists of single cases and results on halves that something was
developed on, unless a document names them; and marks results of commits that the history does not
have, as the branch that they were made on was rewritten.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess

from _record import RESULTS, file_of, show, write

ROOT = RESULTS.parent.parent
WORKING = re.compile(r"_(cases|wrong|development|first_half)(_|$)")
"""Names of what is for who works on the thing measured."""
REWRITTEN = "its commit is not in this history: the branch was rewritten when it was merged"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="results to print")
    parser.add_argument("--tidy", action="store_true")
    options = parser.parse_args()
    if options.tidy:
        tidy()
    for name in options.names:
        tables = json.loads(file_of(name).read_text())
        for one in [name] if name in tables and name != file_of(name).stem else tables:
            show(one, tables[one])


def tidy() -> None:
    _check_history()
    listed = _git("ls-files", "--", "*.md", "schedmate/*.yaml", ":(exclude)tests").stdout
    pages = [ROOT / name for name in listed.splitlines() if name != "CHANGELOG.md"]
    cited = "\n".join(page.read_text() for page in pages if page.exists())
    for path in sorted(RESULTS.glob("*.json")):
        tables = json.loads(path.read_text())
        for name, document in list(tables.items()):
            if WORKING.search(name) and not re.search(rf"\b{name}\b", cited):
                print(f"removed: {name}")
                del tables[name]
            elif "commit" in document and not _is_in_history(document["commit"].rstrip("+")):
                tables[name] = {**document, "history": REWRITTEN, "rows": document["rows"]}
        if tables:
            write(path, tables)
        else:
            path.unlink()


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


def _is_in_history(commit: str) -> bool:
    return _git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    main()
