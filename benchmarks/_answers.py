"""Runs the extraction of one version of schedmate on labelled jobs, for `fit_fields.py`.

    python -P benchmarks/_answers.py CODE JOBS REPOS OUT

CODE is a folder with that version's `schedmate`, any since candidates have data, origin, score and
note. OUT gets a JSON line a job: its evidence, every candidate that was made with the function that
made it, and what was seen of the program. What lines stand in, today's `fields/confidence.py` and
`_flows.py` say.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CODE, JOBS, REPOS, OUT = sys.argv[1:5]
HERE = Path(__file__).parent
sys.path.insert(0, CODE)
sys.path.append(str(HERE))

import _flows as flow  # noqa: E402

from schedmate.agent import static  # noqa: E402
from schedmate.agent.fields import candidates  # noqa: E402
from schedmate.base.errors import SchedmateError  # noqa: E402
from schedmate.jobs import LaunchConfig  # noqa: E402

MOST = 60
"""Candidates of a field that are written down."""
HELPERS = {
    "counted", "length_of", "_candidate", "_number", "replace", "doubted", "<genexpr>",
    "<listcomp>", "<lambda>",
}  # fmt: skip
OF = {
    "_optimizer": "optimizer", "_own_optimizer": "optimizer", "_compiled": "optimizer",
    "_of_section": "optimizer", "_precision": "precision", "_cast": "precision",
    "_with_others": "optimizer", "_computed": "lr",
}  # fmt: skip
"""The field of what a function makes, where no variable of it says so."""
made: list[tuple[Any, str, str]] = []
seen: dict[str, Any] = {}
_assemble = static.assemble


def tracking(init: Callable[..., None]) -> Callable[..., None]:
    """The constructor of a kind of candidates, noting which function of `fields/` calls it."""

    def tracked(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        note(self)

    return tracked


def note(candidate: Any) -> None:
    """Note which function of `fields/` makes a candidate."""
    frame = inspect.currentframe()
    frame = frame and frame.f_back and frame.f_back.f_back
    field = None
    while frame is not None:
        code = frame.f_code
        if "agent/fields/" in code.co_filename:
            field = field or frame.f_locals.get("field")
            if code.co_name not in HELPERS:
                file = code.co_filename.split("agent/fields/")[1]
                group = re.split(r"[/.]", file)[0]
                if group in ("extras", "called", "optimizers", "precision"):
                    field = field if isinstance(field, str) else OF.get(code.co_name)
                    group = f"extras: {field}"
                elif group == "devices":
                    read = getattr(frame.f_locals.get("read"), "__name__", "")
                    group = f"extras: {'num_nodes' if read == '_whole' else 'num_gpus'}"
                made.append((candidate, group, code.co_name))
                return
        frame = frame.f_back


def watched(trace: Any, plan: Any, *args: Any, **kwargs: Any) -> Any:
    """Note what was seen of the program."""
    made.clear()
    found = _assemble(trace, plan, *args, **kwargs)
    optimizer = re.compile(candidates.rules("calls")["optimizer"])
    seen.clear()
    seen["flows"] = flow.Flows(trace, plan.entry)
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


class Lines(dict[str, list[str]]):
    """The lines of a repository's files."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def __missing__(self, file: str) -> list[str]:
        path = self.root / file
        text = path.read_text(errors="replace") if path.is_file() else ""
        self[file] = text.splitlines()
        return self[file]


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """What extraction says about a job, and why."""
    made.clear()
    seen.clear()
    root = Path(REPOS) / job["repo"].replace("/", "+")
    launch = LaunchConfig(**job.get("launch", {}))
    metadata = static.extract(root, job["command"], launch, budget_s=30).metadata
    rows: dict[str, list[list[Any]]] = {}
    flows, lines = seen.pop("flows", None), Lines(root)
    origins: dict[tuple[Any, ...], dict[str, float]] = {}

    def flowing(origin: Any, data: Any) -> dict[str, float]:
        return flow.facts(flows, origin, data, lines.__getitem__) if flows is not None else {}

    for candidate, group, function in made:
        origin = candidate.origin
        row = [
            plain(candidate.data),
            origin.source if origin else "code",
            origin.file if origin else None,
            origin.line if origin else None,
            round(candidate.score, 2),
            function,
            candidate.note,
            flowing(origin, candidate.data),
        ]
        kept = rows.setdefault(group, [])
        origins.setdefault((plain(candidate.data), row[2], row[3]), row[7])
        if row not in kept and len(kept) < MOST:
            kept.append(row)
    evidence = {
        field: [
            plain(e.value),
            e.source,
            e.file,
            e.line,
            e.confidence,
            e.note,
            origins.get((plain(e.value), e.file, e.line), {}),
        ]
        for field, e in metadata.evidence.items()
    }
    names = {str(row[0]) for group in rows.values() for row in group}
    names |= {str(row[0]) for row in evidence.values()}
    known = {
        table: sorted(
            name for name in names if len(name) < 200 and candidates.is_known(name, table)
        )
        for table in ("models", "datasets")
    }
    return {"evidence": evidence, "candidates": rows, "seen": dict(seen), "known": known}


def main() -> None:
    for kind in (candidates.Candidate, *candidates.Candidate.__subclasses__()):
        kind.__init__ = tracking(kind.__init__)  # type: ignore[misc]
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
