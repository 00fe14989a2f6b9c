"""How far simple methods come on the labelled logs of the public benchmark (docs/benchmark.md).

    python benchmarks/log_baselines.py LOGS [--answers DIR] [--model-url URL --sample N]

LOGS holds ID.log for labels/failures.jsonl, as `public_benchmark.py logs --from` writes them; logs
that are not there are left out, and the result says how many there were. `schedmate` is the Failure
Handler without a language model; `keywords`, `patterns` and `last error` are of log_baselines.yaml
and of one expression: the last line that says error, exception or fatal, with the name of the
exception class on it. `nothing` says of every log that nothing failed. With `--model-url`, a
language model is shown the first 10 and the last lines of N logs, drawn by seed, with their
numbers, up to 6,000 characters, and answers once under a schema; the others are scored on that
sample as well. Intervals are a bootstrap over repositories. The package was worked on with every
log of batch 1 and `wild 1` at hand, so that its row there is no estimate for other logs;
results/fresh_failures.json has its first sights. `--answers` keeps answers as `public_benchmark.py
score` reads them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import yaml
from _bootstrap import bootstrap
from _model import SHOWN, Model, choice, number
from _record import record
from public_benchmark import FAILURE_FIELDS, LogLabel, judge, log_labels, score

from schedmate.jobs.diagnosis import ErrorType, FaultyComponent
from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import open_log

HERE = Path(__file__).parent
WORDS = yaml.safe_load((HERE / "log_baselines.yaml").read_text())
LAST = re.compile(r"(?i)\b(\w*?)(?:Error|Exception)\b|\berror\b|\bfatal\b")
NAMES = {str(row[2]) for row in WORDS["patterns"]}
SEED = 0
TASK = """The log of a training job on a GPU cluster follows, each line with its number. Answer in \
JSON: error_type: infrastructure (hardware, network, storage), framework (the training stack), \
script (the job's own code) or none (nothing failed); error_name; line: the number of the first \
line of the failure, or null; faulty_component, or null."""
NOTHING = {"error_type": "none", "error_name": None, "line": None, "faulty_component": None}


def schedmate(path: Path) -> dict[str, Any]:
    """What the Failure Handler says."""
    with open_log(path) as log:
        found = diagnose(log)
    return {name: getattr(found, name) for name in FAILURE_FIELDS} | {"error_type": found.leaning}


def keywords(path: Path) -> dict[str, Any]:
    """The first keyword of the list that the log holds."""
    lines = [line.lower() for line in read(path)]
    for word, *said in WORDS["keywords"]:
        for at, line in enumerate(lines, 1):
            if word in line:
                return answer(said, at)
    return NOTHING


def patterns(path: Path) -> dict[str, Any]:
    """The first line that an expression fits."""
    for at, line in enumerate(read(path), 1):
        for expression, *said in WORDS["patterns"]:
            if re.search(expression, line):
                return answer(said, at)
    return NOTHING


def last_error(path: Path) -> dict[str, Any]:
    """The last line that says that something is an error."""
    lines = read(path)
    for at in range(len(lines), 0, -1):
        match = LAST.search(lines[at - 1])
        if match is not None:
            words = " ".join(re.findall(r"[A-Z][a-z]+|[A-Z]+", match[1] or ""))
            name = f"{words} Error"
            kinds = [row[1] for row in WORDS["patterns"] if row[2] == name]
            return answer([kinds[0] if kinds else "script", name if kinds else None, None], at)
    return NOTHING


def nothing(_path: Path) -> dict[str, Any]:
    """That nothing failed."""
    return NOTHING


def asked(model: Model, path: Path) -> dict[str, Any]:
    """What a language model says of the ends of the log."""
    numbered = [f"{at}: {line[:200]}" for at, line in enumerate(read(path), 1)]
    first, rest = numbered[:10], numbered[10:]
    room = SHOWN - sum(len(line) + 1 for line in first)
    shown: list[str] = []
    for line in reversed(rest):
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    fields = {
        "error_type": choice(*(one for one in get_args(ErrorType) if one != "unknown")),
        "error_name": choice(*sorted(NAMES), null=True),
        "line": number(),
        "faulty_component": choice(*get_args(FaultyComponent), null=True),
    }
    return model.answer(TASK, "\n".join([*first, *reversed(shown)]), fields)


def read(path: Path) -> list[str]:
    """The lines of a log, as its labels count them."""
    return path.read_text(errors="replace").split("\n")


def answer(said: list[Any], line: int) -> dict[str, Any]:
    kind, name, component = said
    return {"error_type": kind, "error_name": name, "line": line, "faulty_component": component}


Method = Callable[[Path], dict[str, Any]]


def row(
    method: str, run: Method, labels: dict[str, LogLabel], logs: Path, keep: Path | None
) -> dict[str, Any]:
    """The score of a method on these logs."""
    started = time.process_time()
    answers = {name: run(logs / f"{name}.log") for name in labels}
    spent = time.process_time() - started
    if keep is not None:
        lines = [json.dumps({"id": name, "answers": said}) for name, said in answers.items()]
        (keep / f"{method.replace(' ', '_')}.jsonl").write_text("\n".join(lines) + "\n")
    scored = score(labels, answers, names=("failures.jsonl", method))
    outcomes = [
        (repo, case["verdict"] == "right") for repo, case in judge(labels.values(), answers)
    ]
    total = scored["fields"][-1]
    return {
        "method": method,
        "logs": len(labels),
        "repositories": scored["repositories"],
        **{one["field"]: f"{one['right']}/{one['of']}" for one in scored["fields"]},
        "accuracy": total["accuracy"],
        "95 %": bootstrap(outcomes),
        **{key: total[key] for key in ("wrong", "missing", "spurious")},
        "CPU s a log": round(spent / max(1, len(labels)), 3),
    }


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, help="directory of ID.log files")
    parser.add_argument("--answers", type=Path, help="folder to keep the answers in")
    parser.add_argument("--model-url", help="OpenAI-compatible server of a language model")
    parser.add_argument("--sample", type=int, default=20, help="logs that the model is asked about")
    options = parser.parse_args()
    known = log_labels(HERE / "labels" / "failures.jsonl")
    here = {name: one for name, one in known.items() if (options.logs / f"{name}.log").exists()}
    if not here:
        sys.exit(f"{options.logs} holds no ID.log of labels/failures.jsonl; nothing was measured")
    methods: dict[str, Method] = {
        "schedmate": schedmate,
        "patterns": patterns,
        "keywords": keywords,
        "last error": last_error,
        "nothing": nothing,
    }
    rows = [row(name, run, here, options.logs, options.answers) for name, run in methods.items()]
    meta: dict[str, Any] = {}
    if options.model_url:
        model = Model(options.model_url)
        drawn = random.Random(SEED).sample(sorted(here), min(options.sample, len(here)))
        few = {name: here[name] for name in drawn}
        named = f"model {model.name}"
        started = time.monotonic()
        rows.append(row(named, lambda path: asked(model, path), few, options.logs, options.answers))
        meta["model wall s"] = round(time.monotonic() - started)
        if len(few) < len(here):
            rows += [row(name, run, few, options.logs, None) for name, run in methods.items()]
    record("log_baselines", rows, of=len(known), seed=SEED, **meta)


if __name__ == "__main__":
    main()
