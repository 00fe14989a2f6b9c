"""What could a language model win on failed jobs, whom is it asked about, what is refused?

    python benchmarks/opinions.py --logs LOGS [--half development] [--rounds 2]

Two scripted models answer whatever they are asked: one has the label (type, name and first failing
line; the component where the rules of that line know it) and cites its line, the other one gives
another type than the label's with the same line, always. The first shows what asking could win at
most, not what a real model wins: what is not asked or not proved stays as rules have it. The second
shows what a model that is always wrong could do at worst with a line that is really there.

The logs are those of `failure.py` (real ones, programs that really fail, published lines put into
real logs) and of `cascades.py`; `two ranks` puts two faults of different types into one log, on two
ranks, the first of which is the label: there the rules contradict each other. Rules are nearly
always right on these logs, for they were written with most of them in view. So that there is
something to miss, `their rules left out` reads the published lines once more without the rule that
decided: as a wording that no rule knows, like a failure of a new kind, and still not the same.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from _record import record
from cascades import EXCEPTIONS, compose, faults
from failure import Case, in_half, inserted, provoked, real, share

from schedmate.base.errors import ModelError
from schedmate.jobs import Diagnosis
from schedmate.llm import LLM
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.scripted import Reply, Script, ScriptedChat
from schedmate.llm.store import Budget, Store
from schedmate.logparse.failure import diagnose, load_rules
from schedmate.logparse.failure.opinion import RefusedError, is_open, settle
from schedmate.logparse.failure.rules import RuleSet, named_subsystems
from schedmate.logparse.reading import Log, open_log

KINDS = ("infrastructure", "framework", "script")
MODELS = ("knows the label", "always wrong")


def healthy(logs: Path, half: str) -> list[list[str]]:
    """The lines of real logs in which nothing failed."""
    import csv

    with (logs / "index.csv").open() as file:
        hosts = [
            logs / row["file"]
            for row in csv.DictReader(file)
            if row["failure_label"] == "none"
            and not row["failing_component"]
            and in_half(row["file"], half)
            and (logs / row["file"]).exists()
        ]
    found = [path.read_text(errors="replace").splitlines()[:20_000] for path in hosts]
    return [lines for lines in found if len(lines) > 30]


def cascading(logs: Path, half: str, folder: Path, rounds: int, seed: int) -> Iterator[Case]:
    """The logs of `cascades.py`."""
    chance, hosts = random.Random(seed), healthy(logs, half)
    for round_ in range(rounds):
        for number, (_, fault, kind) in enumerate(faults()):
            text, line = compose(chance.choice(hosts), fault, chance)
            path = folder / f"{round_}-{number}.out"
            path.write_text("".join(part + "\n" for part in text))
            yield Case(path.name, path, kind, None, line, any_name=True)


def two_ranks(logs: Path, half: str, folder: Path, rounds: int, seed: int) -> Iterator[Case]:
    """A fault on one rank, then one of another type on another rank."""
    chance, hosts = random.Random(seed), healthy(logs, half)
    for round_ in range(rounds):
        for number, (first, kind) in enumerate(EXCEPTIONS.items()):
            for other, second in ((o, k) for o, k in EXCEPTIONS.items() if k != kind):
                text, line = compose(chance.choice(hosts), ["."], chance)
                text = text[: line - 1]
                for rank, said in ((chance.randrange(4), first), (4, other)):
                    report = ["Traceback (most recent call last):", '  File "a.py", line 5', said]
                    text += [f"[rank{rank}]: {part}" for part in report]
                path = folder / f"{round_}-{number}-{second}-{len(list(folder.iterdir()))}.out"
                path.write_text("".join(part + "\n" for part in text))
                yield Case(path.name, path, kind, None, line, any_name=True)


class Answering(ScriptedChat):
    """A model with one answer; it counts what it is asked."""

    asked: int = 0

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        return super()._generate(*args, **kwargs)


def answer(case: Case, found: Diagnosis, log: Log, model: str) -> str:
    """What a model says of a log."""
    import json

    line = case.line or found.line or 1
    text = next((one.text for one in log.files[0].lines(line, line)), "")
    kind = case.type if case.type in KINDS else "none"
    if model != MODELS[0]:
        kind = next(one for one in KINDS if one != kind)
    rule = load_rules().line(text)
    parts = [rule.component] if rule is not None and rule.type == "infrastructure" else []
    parts += [one.component for one in named_subsystems(text) if one.type == "infrastructure"]
    part = next((one for one in parts if one), None) if kind == "infrastructure" else None
    where, quote = f"1:{line}", text.strip()[:80]
    said = {
        "error_type": kind,
        "error_name": case.name or found.error_name or "Runtime Error",
        "line": where,
        "quote": quote,
        "faulty_component": part or "unknown",
        "component_line": where if part else "",
        "component_quote": quote if part else "",
    }
    return json.dumps(said)


@contextmanager
def left_out(rule: str | None) -> Iterator[None]:
    """All rules but one, as long as the block lasts."""
    rules = load_rules()
    whole = dict(rules.__dict__)
    fewer = RuleSet([one for one in rules.rules if one.id != rule])
    rules.__dict__.clear()
    rules.__dict__.update(fewer.__dict__)
    try:
        yield
    finally:
        rules.__dict__.clear()
        rules.__dict__.update(whole)


def decided(case: Case) -> str | None:
    """The rule that decides on a log."""
    with open_log(case.path) as log:
        return diagnose(log).rule


def measure(
    kind: str, cases: list[Case], model: str, scratch: Path, *, unknown: bool = False
) -> dict[str, Any]:
    """One row: whom a model was asked about, and what came of it."""
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    tokens = 0
    for number, case in enumerate(cases):
        if case.type is None:
            continue
        counts["n"] += 1
        without = left_out(decided(case)) if unknown else nullcontext()
        with without, open_log(case.path) as log:
            before = diagnose(log)
            after = before
            if is_open(before):
                counts["asked"] += 1
                script = Script(
                    schema="schedmate.scripted/v1",
                    replies=[Reply(content=answer(case, before, log, model), repeat=True)],
                )
                chat = Answering(script=script)
                store = Store(scratch / f"{kind}-{model}-{number}".replace(" ", "-"))
                llm = LLM(Endpoint("", "scripted:label"), Budget(), store, 60.0, 1024, client=chat)
                try:
                    after = settle(before, log, llm, job="one")
                except RefusedError as error:
                    refused[error.reason] += 1
                except ModelError as error:
                    refused[error.verdict] += 1
                counts["calls"] += chat.asked
                tokens += store.spent(job="one")[0]
                llm.close()
        was, now = (one.error_type == case.type for one in (before, after))
        counts["before"] += was
        counts["after"] += now
        counts["lost"] += was and not now
        counts["won"] += now and not was
        counts["missed and asked"] += is_open(before) and not was
        counts["conflicts"] += bool(after.conflict)
        counts["rights"] += rights(after) > rights(before)
    n, asked = counts["n"], counts["asked"]
    return {
        "logs": kind,
        "model": model,
        "n": n,
        "asked": share(asked, n),
        "type right before": share(counts["before"], n),
        "after": share(counts["after"], n),
        "won": share(counts["won"], n - counts["before"]),
        "missed and asked": share(counts["missed and asked"], n - counts["before"]),
        "right ones lost": counts["lost"],
        "conflicts": counts["conflicts"],
        "refused": ", ".join(f"{why} {count}" for why, count in refused.most_common()) or "-",
        "plans with more rights": counts["rights"],
        "calls an asked log": round(counts["calls"] / max(1, asked), 2),
        "tokens an asked log": round(tokens / max(1, asked)),
    }


def rights(found: Diagnosis) -> int:
    """How much a plan may do: restarts, and isolates a node."""
    plan = found.plan
    if plan is None:
        return 0
    return (plan.restart != "no") + 2 * any(step.action == "isolate" for step in plan.steps)


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--logs", type=Path, help="folder of real logs with their index.csv")
    parser.add_argument("--half", choices=("development", "report", "both"), default="report")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=13)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folders = {one: scratch / one for one in ("run", "put", "cascades", "ranks", "llm")}
        for folder in folders.values():
            folder.mkdir()
        groups = {"programs that really fail": list(provoked(folders["run"], None))}
        if options.logs:
            given = options.logs, options.half
            more = options.rounds, options.seed
            groups |= {
                "real": list(real(*given)),
                "lines put into real logs": list(inserted(*given, folders["put"], options.seed)),
                "cascades": list(cascading(*given, folders["cascades"], *more)),
                "two ranks": list(two_ranks(*given, folders["ranks"], *more)),
            }
        for kind, cases in groups.items():
            rows += [measure(kind, cases, model, folders["llm"]) for model in MODELS]
        if options.logs:
            cases = [one for one in groups["lines put into real logs"] if one.type in KINDS][::3]
            kind = "lines put into real logs, their rules left out"
            rows += [measure(kind, cases, one, folders["llm"], unknown=True) for one in MODELS]
        suffix = "" if options.half == "report" else f"_{options.half}"
        record(f"opinions{suffix}", rows, seed=options.seed, half=options.half)


if __name__ == "__main__":
    main()
