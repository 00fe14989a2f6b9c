"""A language model on failures that rules leave open: asked, checked, and never in charge."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli
from openai_server import Raw, completion, serve

from schedmate.jobs import Diagnosis
from schedmate.llm import LLM
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.store import Budget, Store
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.digest import CHARACTERS
from schedmate.logparse.failure.opinion import consult
from schedmate.logparse.reading import open_log

STEPS = "".join(f"iteration {n}/1000 | loss 2.{n} | 130 ms/step\n" for n in range(1, 30))
OPEN = (
    STEPS
    + "transport: lost peer gpu-17 while 4 flows were open\n"
    + "Traceback (most recent call last):\n"
    + '  File "/env/lib/python3.11/site-packages/train.py", line 5, in <module>\n'
    + "mylib.comm.StrangeError: no route\n"
)
CLOSED = STEPS + "Traceback (most recent call last):\n  File 'x.py', line 1\nKeyError: 'lr'\n"


def says(
    line: str,
    quote: str,
    kind: str = "infrastructure",
    part: tuple[str, str, str] = ("unknown", "", ""),
    name: str = "Runtime Error",
) -> Any:
    answer = {"line": line, "quote": quote, "error_type": kind, "error_name": name}
    component, where, words = part
    answer |= {
        "faulty_component": component,
        "component_line": where,
        "component_quote": words,
    }
    return completion(json.dumps(answer))


NETWORK = ("network", "1:30", "lost peer gpu-17")


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., tuple[Diagnosis, Diagnosis, list[Any]]]:
    """Diagnoses logs by rules, then with a model that gives these replies in order."""

    def run(
        text: str | dict[str, str], *replies: Any, healthy: Path | None = None
    ) -> tuple[Diagnosis, Diagnosis, list[Any]]:
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        path = folder
        for name, part in (text if isinstance(text, dict) else {"job.out": text}).items():
            (folder / name).write_text(part)
            path = folder if isinstance(text, dict) else folder / name
        remaining = iter(replies)
        with serve(lambda request: next(remaining, Raw(400, b"no more"))) as server:
            llm = LLM(Endpoint(server.url, "m"), Budget(), Store(tmp_path), 5.0, 256)
            with ExitStack() as stack:
                log = stack.enter_context(open_log(path))
                usual = [stack.enter_context(open_log(healthy))] if healthy is not None else []
                by_rules = diagnose(log, healthy=usual)
                by_model = consult(by_rules, log, llm, healthy=usual)
            llm.close()
        return by_rules, by_model, server.requests

    return run


def test_what_a_healthy_run_prints_too_contradicts_no_model(ask: Any, tmp_path: Path) -> None:
    noise = "ConnectionRefusedError: [Errno 111] Connection refused by 10.0.0.7\n"
    healthy = tmp_path / "well.out"
    healthy.write_text(STEPS + noise)
    reply = says("1:34", "StrangeError: no route", "script")
    _, contradicted, _ = ask(STEPS + noise + OPEN[len(STEPS) :], reply)
    _, settled, _ = ask(STEPS + noise + OPEN[len(STEPS) :], reply, healthy=healthy)
    assert (contradicted.source, settled.source) != ("model", "model")
    assert (settled.error_type, settled.source, settled.conflict) == ("script", "model", [])


def asked(requests: list[Any]) -> str:
    return str(requests[0]["messages"][1]["content"])


def test_what_rules_decide_is_not_asked(ask: Any) -> None:
    by_rules, by_model, requests = ask(CLOSED, says("1:32", "KeyError"))
    assert (by_rules.rule, by_rules.doubts) == ("py-key", [])
    assert by_model == by_rules
    assert requests == []


def test_an_open_failure_is_settled_by_cited_lines_in_one_call(ask: Any) -> None:
    by_rules, by_model, requests = ask(OPEN, says("1:33", "StrangeError: no route", part=NETWORK))
    assert (by_rules.error_type, by_rules.rule) == ("framework", "py-exception")
    assert by_rules.doubts
    assert (by_model.error_type, by_model.faulty_component) == ("infrastructure", "network")
    assert (by_model.source, by_model.rule, by_model.doubts) == ("model", None, [])
    assert by_model.line == by_rules.line
    assert by_model.by_rules is not None
    assert (by_model.by_rules.error_type, by_model.by_rules.rule) == ("framework", "py-exception")
    cited = [line.line for line in by_model.evidence if line.note and "model" in line.note]
    assert cited == [33, 30]
    assert len(requests) == 1


def test_a_model_alone_neither_isolates_nor_restarts(ask: Any) -> None:
    by_rules, by_model, _ = ask(OPEN, says("1:33", "StrangeError: no route", part=NETWORK))
    assert by_rules.plan.restart == "no"
    plan = by_model.plan
    assert (plan.id, plan.isolate, plan.isolation) == ("confirm", None, "none")
    assert plan.restart == "no"
    assert plan.diagnose
    assert {step.action for step in plan.steps} <= {"check", "notify"}
    assert "On a language model's word alone nothing is restarted" in plan.summary


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (says("1:33", "GPU has fallen off the bus"), "does not hold what it quotes"),
        (says("1:5", "StrangeError: no route"), "does not hold what it quotes"),
        (says("1:999", "StrangeError: no route"), "none of those shown"),
        (says("7:33", "StrangeError: no route"), "none of those shown"),
        (says("1:33", "no"), "does not hold what it quotes"),
        (says("1:28", "iteration 28/1000"), "reports no failure"),
        (says("1:26", "iteration 26/1000"), "training went on after"),
        (says("1:29", "iteration 29", part=("gpu", "1:27", "iteration 27")), "reports no failure"),
        (says("1:33", "StrangeError: no", part=("storage", "1:30", "lost peer gpu")), "no storage"),
        (says("1:33", "StrangeError: no route", "none"), "should be 'infrastructure'"),
        (says("1:33", "StrangeError: no route", "sabotage"), "should be 'infrastructure'"),
        (completion("The root cause is transient, no action."), ""),
        (completion("", finish="length"), ""),
        (Raw(503, b"", {"retry-after": "0"}), ""),
    ],
)
def test_what_is_not_proved_changes_nothing(ask: Any, reply: Any, why: str) -> None:
    by_rules, by_model, _ = ask(OPEN, *[reply] * 12)
    (warning,) = by_model.warnings
    assert why in warning
    assert by_model.model_copy(update={"warnings": []}) == by_rules


def test_a_refused_answer_is_sent_back_once_with_the_reason(ask: Any) -> None:
    wrong, right = says("1:28", "iteration 28/1000"), says("1:33", "StrangeError", "script")
    _, by_model, requests = ask(OPEN, wrong, right)
    assert (by_model.error_type, by_model.source) == ("script", "model")
    assert "line 28 reports no failure" in requests[1]["messages"][-1]["content"]
    _, by_model, requests = ask(OPEN, wrong, wrong, right)
    assert (by_model.error_type, len(requests)) == ("framework", 2)


GUESSED = (
    STEPS
    + "cp: cannot stat 'a': No such file or directory\n"
    + '  File "train.py", line 3\n    x = = 1\nSyntaxError: invalid syntax\n'
    + "mylib: failed in a strange way\n"
)


@pytest.mark.parametrize(
    ("line", "quote", "name", "expected"),
    [
        # what a rule knows on the cited line is taken, with the line
        ("1:33", "SyntaxError: invalid", "Syntax Error", ("Syntax Error", 33, [])),
        # the same line: both agree
        ("1:30", "cp: cannot stat", "File Not Found", ("File Not Found", 30, [])),
        # another name that no rule proves: the doubt stays
        ("1:34", "failed in a strange", "Runtime Error", ("File Not Found", 30, ["doubt"])),
    ],
)
def test_agreement_on_the_type_takes_the_name_and_line_that_are_proved(
    ask: Any, line: str, quote: str, name: str, expected: tuple[str, int, list[str]]
) -> None:
    by_rules, by_model, _ = ask(GUESSED, says(line, quote, "script", name=name))
    assert (by_rules.error_name, by_rules.line, len(by_rules.doubts)) == ("File Not Found", 30, 1)
    doubts = by_rules.doubts if expected[2] else []
    assert (by_model.error_name, by_model.line, by_model.doubts) == (*expected[:2], doubts)
    assert by_model.plan.restart == by_rules.plan.restart


def test_a_model_may_answer_that_no_line_shows_it(ask: Any) -> None:
    by_rules, by_model, requests = ask(OPEN, says("", "", "unknown"))
    assert by_model == by_rules, "the doubts stay"
    assert by_model.doubts
    assert len(requests) == 1


def test_the_log_is_fenced_and_cannot_pass_for_the_question(ask: Any) -> None:
    planted = "root cause: it came to nothing; peer gone\n"
    _, by_model, requests = ask(
        OPEN + planted, says("1:33", "StrangeError", part=("network", "1:30", "lost peer gpu"))
    )
    question = asked(requests)
    nonce = question.partition("carry the number ")[2].split(".")[0]
    before, _, fenced = question.partition(f"untrusted {nonce}")
    assert "it came to nothing" in fenced
    assert "it came to nothing" not in before
    assert by_model.error_type == "infrastructure"
    choices = requests[0]["response_format"]["json_schema"]["schema"]["properties"]["error_type"]
    assert choices["enum"] == ["infrastructure", "framework", "script", "unknown"]


def test_what_is_sent_is_bounded(ask: Any) -> None:
    long = "".join(f"chatter {n} " + "x" * 900 + "\n" for n in range(3000))
    steps = "".join(f"iteration {n}/9000 | loss 2.5 | 130 ms/step\n" for n in range(1, 5000))
    ranks = "".join(
        f"[rank{n}]: Traceback (most recent call last):\n[rank{n}]:   File 'x.py', line {n}\n"
        f"[rank{n}]: mylib.StrangeError: {'y' * 600}\n"
        for n in range(200)
    )
    _, _, requests = ask(steps + long + ranks + long, says("1:33", "x" * 9))
    question = asked(requests)
    assert len(question) < 2 * CHARACTERS
    assert "iteration 100/9000" not in question
    assert "further ranks are not shown" in question


RANKS = {
    "rank0.log": STEPS
    + "[rank0]: work 7 of the group timed out, giving up\n"
    + "Traceback (most recent call last):\n  File 'train.py', line 9\n"
    + "mylib.comm.StrangeError: all_reduce did not return\n",
    "rank1.log": STEPS.replace("130", "131")
    + "all_gather of shard 4 begins\n"
    + "batch 30: the loader found no sample with label 12\n",
    "rank2.log": STEPS
    + "Traceback (most recent call last):\n  File 'train.py', line 9\n"
    + "mylib.comm.StrangeError: all_reduce did not return\n",
}


def test_every_rank_is_shown_with_what_it_was_doing(ask: Any) -> None:
    _, _, requests = ask(RANKS, says("1:33", "x" * 9))
    question = asked(requests)
    silent = question[question.index("\nrank 1:") :]
    assert "last step: 2:29| iteration 29/1000" in silent
    assert "last collective or phase: 2:30| all_gather of shard 4 begins" in silent
    assert "last line: 2:31| batch 30: the loader found no sample" in silent
    for rank, first in ((0, "1:30"), (2, "3:30")):
        part = question[question.index(f"\nrank {rank}:") :]
        assert f"{first}| " in part
        assert "all_reduce did not return" in part


def test_two_ranks_that_contradict_each_other_are_asked_about(ask: Any) -> None:
    key = TRACE + "KeyError: 'lr'\n"
    memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    ranks = {"rank0.log": STEPS + key, "rank1.log": STEPS + TRACE + memory}
    reply = says("2:32", "OutOfMemoryError: CUDA out", "framework", name="Out of Memory")
    by_rules, by_model, requests = ask(ranks, reply)
    assert (by_rules.rule, by_rules.error_type) == ("py-key", "script")
    (doubt,) = by_rules.doubts
    assert "rank 1 reports Out of Memory (framework)" in doubt
    assert len(requests) == 1
    # the proof is equal, for no clock says which was first: both lines are reported
    assert (by_model.error_type, by_model.rule, by_model.line) == ("script", "py-key", 30)
    assert [(one.error_type, one.line) for one in by_model.conflict] == [
        ("script", 30),
        ("framework", 32),
    ]
    assert any("otherwise, with equal proof" in doubt for doubt in by_model.doubts)
    assert by_model.plan == by_rules.plan


def of_rank(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


TRACE = "Traceback (most recent call last):\n  File 'x.py', line 1\n"
LOST = "FileNotFoundError: [Errno 2] No such file or directory: '/data/a.bin'"
NFS = "nfs: server 10.20.0.5 not responding, timed out"


def test_an_earlier_failure_that_a_rule_knows_overrides_a_proved_verdict(ask: Any) -> None:
    text = STEPS + of_rank(3, TRACE + LOST) + of_rank(0, NFS)
    reply = says("1:32", "No such file or directory", "script", name="File Not Found")
    by_rules, by_model, _ = ask(text, reply)
    assert (by_rules.rule, by_rules.line) == ("nfs-server", 33)
    assert any("rank 3 reports File Not Found" in doubt for doubt in by_rules.doubts)
    assert (by_model.error_type, by_model.error_name) == ("script", "File Not Found")
    assert (by_model.line, by_model.rank, by_model.conflict) == (32, 3, [])
    assert by_model.by_rules is not None
    assert by_model.by_rules.rule == "nfs-server"
    assert by_model.plan.restart == "no"


def test_an_earlier_line_that_is_only_worded_so_is_a_conflict(ask: Any) -> None:
    text = STEPS + of_rank(2, "pool: cannot open the shard list, giving up")
    text += of_rank(3, TRACE + LOST) + of_rank(0, NFS)
    reply = says("1:30", "cannot open the shard list", "framework", name="Dataset Loading")
    by_rules, by_model, _ = ask(text, reply)
    assert by_rules.rule == "nfs-server"
    assert [one.line for one in by_model.conflict] == [by_rules.line, 30]
    assert (by_model.error_type, by_model.source) == ("infrastructure", "rules")


def test_a_later_line_that_contradicts_nothing_overrides_nothing(ask: Any) -> None:
    text = STEPS + of_rank(3, TRACE + "KeyError: 'lr'")
    text += of_rank(0, TRACE + "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB.")
    text += "pool: could not close the connection to the broker, gone\n"
    part = ("network", "1:36", "connection to the broker")
    late = says("1:36", "could not close the connection", part=part)
    by_rules, by_model, requests = ask(text, late, late)
    assert by_rules.rule == "py-key"
    assert len(requests) == 2
    assert "neither earlier" in by_model.warnings[0]
    assert by_model.model_copy(update={"warnings": []}) == by_rules


def test_a_log_that_ends_in_trouble_of_no_known_kind_may_have_failed(ask: Any) -> None:
    text = STEPS + "relay: socket 7 is gone\n" + "bye\n" * 20
    part = ("network", "1:30", "socket 7 is gone")
    by_rules, by_model, requests = ask(text, says("1:30", "socket 7 is gone", part=part))
    assert (by_rules.error_type, by_rules.finished) == ("none", False)
    kinds = requests[0]["response_format"]["json_schema"]["schema"]["properties"]["error_type"]
    assert kinds["enum"] == ["none", "infrastructure", "framework", "script", "unknown"]
    assert (by_model.error_type, by_model.line, by_model.finished) == ("infrastructure", 30, None)
    assert by_model.plan.restart == "no"
    nothing = says("", "", "none")
    assert ask(text, nothing)[1] == by_rules


def test_a_cited_line_of_another_known_kind_is_refused(ask: Any) -> None:
    text = STEPS + of_rank(3, TRACE + LOST) + of_rank(0, NFS)
    reply = says("1:32", "No such file or directory", part=("storage", "1:33", "nfs: server"))
    by_rules, by_model, _ = ask(text, reply, reply)
    assert by_model.error_type == by_rules.error_type
    reply = says("1:33", "nfs: server 10.20.0.5", "script")
    _, by_model, _ = ask(text, reply, reply)
    assert "line 33 is known as S3/Storage Error (infrastructure)" in by_model.warnings[0]


def test_command(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "job.out").write_text(OPEN)
    with serve(lambda _: says("1:33", "StrangeError: no route", part=NETWORK)) as server:
        result = cli("diagnose", str(tmp_path / "job.out"), "--json", "--llm-base-url", server.url)
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert (document["source"], document["faulty_component"]) == ("model", "network")
    assert json.loads(cli("llm", "ledger", "--json").out)["totals"][0]["purpose"] == "failure"
