"""The Failure Handler on logs of failures that nobody had looked at before they were labelled.

    python benchmarks/fresh_failures.py LOGS [--package DIR --code NAME[:BATCH,..]]...

LOGS holds ID.log for each entry of labels/failures.jsonl with a numbered batch, as far as it is
there, as `public_benchmark.py logs --from` writes them. `source` is the public thread that quotes
the log, or OWNER/REPO@COMMIT:PATH of a file. Each was labelled before the Failure Handler had seen
it: type, name, first failing line and component list what a careful reader accepts, and are left
out where that is open. Batches were collected one after another, each with the code of its day
measured at once: its first sight. Half `look` was then worked on; what that code made of half
`report`, still unread, says what carries over. The last rows are of code for which both were read.
Batch 4 is small and was sought to be hard: quotes of a line or a few, nearly all of infrastructure
that others had little of. `3828b6a` had not seen it, nor had `families`, the rules of whole
subsystems by name.

Batches 5 to 8 were drawn by kinds of failure, not by texts: about half of infrastructure, the rest
failures of frameworks and scripts, and alarming logs of jobs that ended well. `sight-N` is the code
that met batch N first, `look-N` that for which only half `look` of it had been worked on; `3a187c4`
is from before all four. `old-rules` are the rules of `40ee5e7`, written before batches 2 to 4, with
the wording of lines (`subsystems.yaml`) of today, for which half `look` of these had been read.

Batches 9 and 10 are of schedulers, fabrics, storage and services, with a few scripts. `sight-9` met
batch 9 first; what that showed, tracebacks in their wrappings and what is documented of each system
went into `sight-10`, frozen before batch 10 was collected: its rows of batch 10 beside those of
`sight-9` are what carried over. Both halves of both were read afterwards.

Batch 11 came after a census rather than another batch: what `954aee0` made of about 175 quoted
threads, 444 blocks of documentation, 137 notebooks and some 5,000 messages from the sources of
what clusters run on, read for what is plainly wrong, its causes counted and mended in general
form. Twenty subjects were drawn by seed (12 of infrastructure) from 98 before that, and searched
for only when the code was frozen: `sight-11`. What shares a line with an earlier text was left out.

Rows of code that is not measured again are kept as they were recorded.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from _package import read_with
from _record import record, recorded

LABELS = Path(__file__).parent / "labels" / "failures.jsonl"
KEYS = {
    "type": "error_type",
    "name": "error_name",
    "line": "line",
    "component": "faulty_component",
}
READ = """
import json, sys
from pathlib import Path
from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import open_log
for path in sys.argv[1:]:
    with open_log(Path(path)) as log:
        found = diagnose(log)
    kind = getattr(found, "likely", None) or found.error_type
    keys = (kind, found.error_name, found.line, found.faulty_component)
    print(json.dumps([*keys, found.rule, found.source]))
"""


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="?", help="directory of ID.log files")
    parser.add_argument("--package", type=Path, action="append", default=[])
    parser.add_argument("--code", action="append", default=[])
    options = parser.parse_args()
    if options.logs is None:
        print("give a directory of logs; nothing was measured")
        return
    labels = [one for one in labelled() if (options.logs / f"{one['id']}.log").exists()]
    paths = [options.logs / f"{one['id']}.log" for one in labels]
    here = Path(__file__).parent.parent
    rows: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    every = sorted({one["batch"] for one in labels})
    for package, named in [*zip(options.package, options.code, strict=True), (here, "this")]:
        found = read_with(package, READ, paths)
        pairs = list(zip(labels, found, strict=True))
        code, _, chosen = named.partition(":")
        for batch in [int(one) for one in chosen.split(",")] if chosen else every:
            for half in ("look", "report", "both"):
                part = [
                    pair
                    for pair in pairs
                    if pair[0]["batch"] == batch and half in (pair[0]["half"], "both")
                ]
                if part:
                    rows.append({"code": code, "batch": batch, "half": half, **row(part)})
        if code == "this":
            wrong = [case(*pair) for pair in pairs if not all(right(*pair).values())]
    measured = {row["code"] for row in rows}
    rows = [row for row in recorded("fresh_failures")["rows"] if row["code"] not in measured] + rows
    record("fresh_failures", rows, sources=len({one["source"] for one in labels}))
    record(
        "fresh_failures_wrong",
        wrong,
        working=True,
        what="logs of which something differs from the label",
    )


def labelled() -> list[dict[str, Any]]:
    """The labels of the numbered batches: by key a list of what is accepted, or None."""
    rows = (json.loads(line) for line in LABELS.read_text().splitlines())
    return [
        {
            **{key: row[key] for key in ("id", "source", "batch", "half")},
            **{key: accepted(row["expected"], name) for key, name in KEYS.items()},
        }
        for row in rows
        if isinstance(row["batch"], int)
    ]


def accepted(expected: dict[str, Any], name: str) -> list[Any] | None:
    """What a label accepts: a list, which may hold None; None where it says nothing."""
    if name not in expected:
        return None
    return [None] if expected[name] is None else expected[name]


def right(label: dict[str, Any], found: list[Any]) -> dict[str, bool]:
    """Which of the labelled answers are among those accepted."""
    keys = ("type", "name", "line", "component")
    return {
        key: value in label[key]
        for key, value in zip(keys, found[:4], strict=True)
        if label[key] is not None
    }


def row(pairs: list[tuple[dict[str, Any], list[Any]]]) -> dict[str, Any]:
    """Shares that are right, and the confusion of types (that of the label first)."""
    judged = [right(*pair) for pair in pairs]
    confusion: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[bool, bool]] = Counter()
    for label, found in pairs:
        if label["type"] is None:
            continue
        said = found[0] if found[0] in label["type"] else label["type"][0]
        confusion[said, found[0]] += 1
        if "infrastructure" not in label["type"] or len(label["type"]) == 1:
            counts["infrastructure" in label["type"], found[0] == "infrastructure"] += 1
    true, missed, false = counts[True, True], counts[True, False], counts[False, True]
    shares = {
        f"{key} right": f"{sum(one[key] for one in judged if key in one)}"
        f"/{sum(key in one for one in judged)}"
        for key in ("type", "name", "line", "component")
    }
    return {
        "n": len(pairs),
        **shares,
        "infrastructure": true + missed,
        "precision": f"{true / max(1, true + false):.3f}",
        "recall": f"{true / max(1, true + missed):.3f}",
        "F1": f"{2 * true / max(1, 2 * true + missed + false):.3f}",
        "confusion (label>found)": ", ".join(
            f"{a[:5]}>{b[:5]} {count}" for (a, b), count in sorted(confusion.items())
        ),
    }


def case(label: dict[str, Any], found: list[Any]) -> dict[str, Any]:
    """A log with something wrong: what was accepted and what was found."""
    keys = ("type", "name", "line", "component")
    return {
        "batch": label["batch"],
        "half": label["half"],
        "log": label["id"],
        "accepted": " / ".join(
            "any" if label[key] is None else "|".join(map(str, label[key])) for key in keys
        ),
        "found": " / ".join(map(str, found[:4])),
        "rule": found[4],
        "by": found[5],
    }


if __name__ == "__main__":
    main()
