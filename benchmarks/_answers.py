"""Runs the extraction of one version of schedmate on labelled jobs, for `fit_fields.py`.

    python -P benchmarks/_answers.py CODE JOBS REPOS OUT

CODE is a folder with that version's `schedmate`, any since candidates have data, origin, score and
note. OUT gets a JSON line a job: its evidence, every candidate that was made with the function that
made it, and what was seen of the program.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

CODE, JOBS, REPOS, OUT = sys.argv[1:5]
sys.path.insert(0, CODE)

from schedmate.agent import static  # noqa: E402
from schedmate.agent.fields import candidates, words  # noqa: E402
from schedmate.errors import SchedmateError  # noqa: E402
from schedmate.jobs import LaunchConfig  # noqa: E402

MOST = 60
"""Candidates of a field that are written down."""
HELPERS = {"counted", "_candidate", "_number", "replace", "<genexpr>", "<listcomp>", "<lambda>"}
made: list[tuple[Any, str, str]] = []
seen: dict[str, Any] = {}
_init = candidates.Candidate.__init__
_assemble = static.assemble


def tracked(self: Any, *args: Any, **kwargs: Any) -> None:
    """Note which function of `fields/` makes a candidate."""
    _init(self, *args, **kwargs)
    frame = inspect.currentframe()
    frame = frame and frame.f_back
    while frame is not None:
        code = frame.f_code
        if "agent/fields/" in code.co_filename and code.co_name not in HELPERS:
            made.append((self, code.co_filename.split("agent/fields/")[1], code.co_name))
            return
        frame = frame.f_back


def watched(trace: Any, plan: Any, *args: Any, **kwargs: Any) -> Any:
    """Note what was seen of the program."""
    made.clear()
    found = _assemble(trace, plan, *args, **kwargs)
    optimizer = re.compile(candidates.rules("calls")["optimizer"])
    seen.clear()
    seen.update(
        entry=plan.entry,
        words=[str(value.data)[:200] for value in plan.argv[:200]],
        calls=len(trace.calls),
        own_classes=sum(event.cls is not None for event in trace.calls),
        optimizer=any(optimizer.match(event.path) for event in trace.calls),
        backward=any(loop.has_backward for loop in trace.loops),
        complete=getattr(trace, "complete", True),
        files=sorted({group.name for group in trace.settings if group.kind == "config"})[:20],
    )
    return found


def plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """What extraction says about a job, and why."""
    made.clear()
    seen.clear()
    root = Path(REPOS) / job["repo"].replace("/", "+")
    launch = LaunchConfig(**job.get("launch", {}))
    metadata = static.extract(root, job["command"], launch, budget_s=30).metadata
    rows: dict[str, list[list[Any]]] = {}
    for candidate, file, function in made:
        origin = candidate.origin
        row = [
            plain(candidate.data),
            origin.source if origin else "code",
            origin.file if origin else None,
            origin.line if origin else None,
            round(candidate.score, 2),
            function,
            candidate.note,
        ]
        group = rows.setdefault(re.split(r"[/.]", file)[0], [])
        if row not in group and len(group) < MOST:
            group.append(row)
    evidence = {
        field: [plain(e.value), e.source, e.file, e.line, e.confidence, e.note]
        for field, e in metadata.evidence.items()
    }
    names = {str(row[0]) for group in rows.values() for row in group}
    names |= {str(row[0]) for row in evidence.values()}
    known = {
        table: sorted(name for name in names if len(name) < 200 and words.is_known(name, table))
        for table in ("models", "datasets")
    }
    return {"evidence": evidence, "candidates": rows, "seen": dict(seen), "known": known}


def main() -> None:
    candidates.Candidate.__init__ = tracked  # type: ignore[method-assign]
    static.assemble = watched
    with Path(JOBS).open() as jobs, Path(OUT).open("w") as out:
        for line in jobs:
            job = json.loads(line)
            try:
                found = answer(job)
            except SchedmateError as error:
                found = {"error": str(error)[:200]}
            out.write(json.dumps({"id": job["id"], **found}) + "\n")


main()
