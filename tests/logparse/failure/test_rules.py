"""The rules as data: every one carries its test, says why, and comes with a plan."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
import re2

from schedmate.base.data import load
from schedmate.base.errors import InputError
from schedmate.jobs import Checkpoint, Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.plans import plan_for
from schedmate.logparse.failure.rules import (
    Rule,
    _loose,
    deciding_rule,
    failed_examples,
    load_rules,
    match_text,
    read_rules,
)
from schedmate.logparse.reading import open_log
from schedmate.logparse.signs import signs

TAXONOMY = {
    "infrastructure": "NVLink Error, CUDA Error, Node Failure, ECC Error, Network Error, "
    "Connection Error, S3/Storage Error, NCCL Timeout, NCCL Remote Error",
    "framework": "Dataloader Killed, Attribute Error, Out of Memory, Runtime Error, "
    "Assertion Error, Value Error, Zero Division, Model Loading, Dataset Loading",
    "script": "File Not Found, OS Error, Type Error, Name Error, Permission Error, Import Error, "
    "Key Error, Syntax Error, Argument Error, Called Process Error, Index Error",
    "unknown": "Divergence",
    "none": "Time Limit, Cancelled, Preempted, Interrupted",
}
NAMES = {name for names in TAXONOMY.values() for name in names.split(", ")}


def test_every_rule_knows_its_examples_and_no_counter_example() -> None:
    assert failed_examples(load_rules()) == []


def test_the_rules_cover_the_taxonomy() -> None:
    rules = load_rules().rules
    assert len(rules) >= 200
    assert {rule.name for rule in rules if rule.name} >= NAMES - {"Dataloader"}
    assert {rule.name for rule in rules} <= NAMES | {None}


def test_every_rule_says_why_and_where_that_was_settled() -> None:
    for rule in load_rules().rules:
        assert rule.why.endswith("."), rule.id
        assert rule.source.startswith("https://"), rule.id


@pytest.mark.parametrize(
    "code",
    [13, 31, 43, 45, 48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 154],
)
def test_xid_codes_have_a_rule_of_their_own(code: int) -> None:
    rule = match_text(load_rules(), f"NVRM: Xid (PCI:0000:01:00): {code}, pid=0, something")
    assert rule is not None
    assert rule.id == f"xid-{code}"


def test_an_unlisted_xid_passes_through() -> None:
    rule = match_text(load_rules(), "NVRM: Xid (PCI:0000:01:00): 137, pid=0")
    assert rule is not None
    assert rule.id == "xid-other"


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("RuntimeError: CUDA error: device-side assert triggered", "script", "CUDA Error"),
        ("OSError: [Errno 5] Input/output error", "infrastructure", "S3/Storage Error"),
        ("OSError: [Errno 116] Stale file handle", "infrastructure", "S3/Storage Error"),
        ("OSError: [Errno 28] No space left on device", "infrastructure", "S3/Storage Error"),
        ("OSError: [Errno 22] Invalid argument", "script", "OS Error"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "framework", "Out of Memory"),
        ("SystemExit: 0", None, None),
        ("Epoch 3: loss 0.1", None, None),
    ],
)
def test_the_type_follows_the_cause(text: str, kind: str | None, name: str | None) -> None:
    rule = match_text(load_rules(), text)
    assert ((rule.type, rule.name) if rule else (None, None)) == (kind, name)


def test_a_malformed_rule_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("area: x\nrules: [{id: a, why: b.}]\n")
    with pytest.raises(InputError, match="rule .a.: name is missing"):
        read_rules(path, Rule)


def test_every_failure_has_a_plan_and_none_is_left_over() -> None:
    used: Counter[str] = Counter()
    for rule in load_rules().rules:
        plan = plan_for(
            Diagnosis(
                error_type=rule.type,
                error_name=rule.name,
                faulty_component=rule.component,
                recoverable=rule.recoverable,
                rule=rule.id,
            )
        )
        used[plan.id] += 1
        if rule.type == "infrastructure" and rule.role == "cause" and rule.recoverable:
            assert plan.restart != "no", rule.id
    used[plan_for(Diagnosis(error_type="unknown")).id] += 1
    used[plan_for(Diagnosis(error_type="none")).id] += 1
    used[plan_for(Diagnosis(error_type="none", finished=False)).id] += 1
    used[plan_for(Diagnosis(error_type="infrastructure", source="model")).id] += 1
    for likely in ("infrastructure", "framework"):
        lost = Diagnosis(error_type="unknown", likely=likely, undecided=True)
        used[plan_for(lost).id] += 1
    for work in load("logparse/failure/meanwhile.yaml")["activities"]:
        doing = Diagnosis(error_type=work["type"], meanwhile=work["id"])
        used[plan_for(doing).id] += 1
    rows = {row["id"] for row in load("logparse/failure/plans.yaml")["plans"]}
    assert rows - set(used) <= {"infrastructure"}


@pytest.mark.parametrize("saved", [None, Checkpoint(path="/c/500", step=500, file="x", line=3)])
@pytest.mark.parametrize("node", [None, "gpu-7"])
@pytest.mark.parametrize("source", ["rules", "model"])
def test_every_advice_is_whole_sentences(
    saved: Checkpoint | None, node: str | None, source: Literal["rules", "model"]
) -> None:
    for rule in load_rules().rules:
        plan = plan_for(
            Diagnosis(
                error_type=rule.type,
                error_name=rule.name,
                faulty_component=rule.component,
                recoverable=rule.recoverable,
                rule=rule.id,
                node=node,
                checkpoint=saved,
                source=source,
                undecided=rule.role == "symptom",
            )
        )
        text = plan.summary
        assert text[0].isupper(), text
        assert text.endswith("."), text
        assert not re.search(r"[{}]|  | [.,;]|\(\)|when it is\.|None", text), text
        # what follows the checkpoint would be read as a part of it
        assert re.search(r"no checkpoint is mentioned in the log\)(?![.,;])", text) is None, text
        assert re.search(r"checkpoint of step 500 at /c/500(?![.,;])", text) is None, text


def test_a_disk_quota_is_not_cured_by_waiting(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("step 1/9 | loss 2.1\nOSError: [Errno 122] Disk quota exceeded: 'out.pt'\n")
    with open_log(path) as log:
        plan = diagnose(log).plan
    assert plan is not None
    assert (plan.id, plan.restart, plan.notify) == ("quota", "no", "user")
    assert "have the quota raised; only then submit the job again" in plan.summary


@pytest.mark.parametrize("kind", [*load("logparse/signs.yaml")])
def test_signs_know_their_examples(kind: str) -> None:
    for entry in load("logparse/signs.yaml")[kind]:
        found = signs(kind).sign(entry["example"].encode())
        assert found is not None, entry["example"]
        assert signs(kind).together.search(entry["example"].encode())


@pytest.mark.parametrize(
    ("pattern", "loose"),
    [
        (r"a{1,80}b", "a+b"),
        (r"[^)]{0,9}\)", r"[^\n)]*\)"),
        (r"[^\n]{2,9}", r"[^\n]+"),
        (r"\[^a{3}", r"\[^a{3}"),
        (r"\{1,2\}", r"\{1,2\}"),
    ],
)
def test_what_is_compiled_together_counts_no_repetitions(pattern: str, loose: str) -> None:
    assert _loose(pattern) == loose


def test_a_name_longer_than_any_exception_has_no_rule() -> None:
    assert load_rules().exception("X" * 195 + "Error") is not None
    assert load_rules().exception("X" * 196 + "Error") is None


def test_compiled_together_or_alone_the_rules_are_the_same() -> None:
    rules = load_rules()
    texts = [text for rule in rules.rules for text in (*rule.examples, *rule.counter_examples)]
    patterns = [(re2.compile(rule.pattern), rule) for rule in rules.rules if rule.pattern]
    for text in texts:
        alone = deciding_rule(rule for pattern, rule in patterns if pattern.search(text))
        assert rules.line(text) is alone, text
        if alone is not None and alone.role != "benign":
            assert rules.prefilter.search(text.encode()) is not None, text
