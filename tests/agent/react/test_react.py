"""A whole reading, from `SchedMate.analyze` through the loop to metadata, with scripted models."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_runner import Cli
from honest_findings import HONEST, finding
from openai_server import Raw, Request, completion, serve
from processes import LONG_S

from schedmate.agent import Extraction
from schedmate.agent.react import trajectory
from schedmate.agent.react.citations import Citations, Finding
from schedmate.agent.react.extractor import (
    CONFLICT_CONFIDENCE,
    DOUBTFUL_BELOW,
    combine,
    fields_to_ask,
)
from schedmate.base.errors import InputError, ModelError
from schedmate.jobs import Evidence, JobSpec, LaunchConfig, ModelUse, WorkloadMetadata
from schedmate.mate import SchedMate
from schedmate.tools import RepoFiles

COMMAND = "python train.py"
TREE = {"tool_calls": [{"name": "file_tree", "args": {}}]}
READ = {"tool_calls": [{"name": "file_read", "args": {"path": "train.py"}}]}
DONE = {"content": "I have seen enough."}


def report(*findings: dict[str, object]) -> dict[str, Any]:
    return {"content": json.dumps({"findings": list(findings)})}


def spec_of(repo: Path) -> JobSpec:
    return JobSpec(job_id="j1", repo=str(repo), command=COMMAND)


def test_hybrid_fills_what_static_analysis_left_open(
    repo: Path, script: Callable[..., str], open_mate: Callable[..., SchedMate]
) -> None:
    static = open_mate(mode="static").analyze(spec_of(repo))
    missing = static.metadata.missing()
    assert missing, "the repository must leave something open"
    mate = open_mate(llm_model=script(TREE, READ, report(*HONEST)))
    analysis = mate.analyze(spec_of(repo))
    assert analysis.metadata.missing() == []
    assert analysis.source == "hybrid"
    assert analysis.model is not None
    assert analysis.model.outcome == "ok"
    asked = set(analysis.model.asked)
    assert set(analysis.model.filled) == asked - {"training_config.batch_size"}
    assert asked == set(analysis.model.reasons)
    assert analysis.model.calls == 3, "the reply that ends the reading holds the findings"
    for field in analysis.model.filled:
        proof = analysis.metadata.evidence[field]
        assert (proof.source, proof.value) == ("model", analysis.metadata.get(field))
    valid = analysis.metadata.evidence["dataset_config.valid"]
    assert (valid.file, valid.line) == ("train.py", 9)


def test_agent_mode_is_given_claims_and_answers_alone(
    repo: Path, script: Callable[..., str], open_mate: Callable[..., SchedMate]
) -> None:
    (repo / "train.py").write_text("lr = 0.25\n" + (repo / "train.py").read_text())
    findings = [{**one, "line": 11 if one["file"] == "train.py" else 1} for one in HONEST[:1]]
    mate = open_mate(mode="agent", llm_model=script(DONE, report(*findings)))
    prompt = mate.prompt(spec_of(repo))
    assert prompt is not None
    first = prompt["messages"][1]["content"]
    assert "claims of static analysis, to be checked" in first
    assert "1| lr = 0.25" in first, "what the command runs is shown at once"
    analysis = mate.analyze(spec_of(repo))
    assert analysis.source == "agent"
    assert analysis.metadata.get("model_config.model_name") == "conformer-large"
    # what static analysis would have said has no place in the model's own answer
    assert analysis.metadata.get("dataset_config.train") is None
    assert set(analysis.metadata.evidence) == {"model_config.model_name"}


TRANSCRIPTS = yaml.safe_load((Path(__file__).parent / "transcripts.yaml").read_text())


@pytest.mark.parametrize("case", TRANSCRIPTS, ids=lambda case: case["name"])
def test_answers_good_bad_lazy_and_adversarial(
    repo: Path,
    script: Callable[..., str],
    open_mate: Callable[..., SchedMate],
    case: dict[str, Any],
) -> None:
    replies = []
    for one in case["replies"]:
        reply = {key: value for key, value in one.items() if key == "tool_calls"}
        if "findings" in one:
            answer = json.dumps({"findings": one["findings"]})
            reply["content"] = one.get("text", "{}").replace("{}", answer)
        elif "text" in one:
            reply["content"] = one["text"]
        replies.append(reply)
    static = open_mate(mode="static").analyze(spec_of(repo)).metadata
    analysis = open_mate(llm_model=script(*replies)).analyze(spec_of(repo))
    use, found = analysis.model, analysis.metadata
    assert use is not None
    assert {field: found.get(field) for field in case.get("right", {})} == case.get("right", {})
    for field, value in case.get("never", {}).items():
        assert found.get(field) != value
    for reason in case.get("refused", ()):
        assert any(reason in one for one in use.dropped), use.dropped
    changed = {field for field in found.evidence if found.get(field) != static.get(field)}
    assert changed <= set(use.asked), "only what was asked changes"
    if "right" not in case:
        assert not use.filled


def test_a_job_that_static_analysis_cannot_follow_is_read_by_the_model(
    repo: Path, script: Callable[..., str], open_mate: Callable[..., SchedMate]
) -> None:
    """Its job file is made at run time; a model that proves nothing leaves the error."""
    spec = JobSpec(repo=str(repo), command="sbatch made_at_run_time.sbatch train.py")
    with pytest.raises(InputError, match="made_at_run_time"):
        open_mate(mode="static").analyze(spec)
    analysis = open_mate(llm_model=script(READ, report(HONEST[0]))).analyze(spec)
    assert analysis.metadata.get("model_config.model_name") == "conformer-large"
    assert any("made_at_run_time" in one for one in analysis.warnings)
    with pytest.raises(ModelError, match=r"made_at_run_time.*nothing that it proved"):
        open_mate(llm_model=script(READ, report())).analyze(spec)


def test_without_tools_one_request_is_answered_from_the_opening(
    repo: Path, open_mate: Callable[..., SchedMate]
) -> None:
    reply = json.dumps({"findings": HONEST})
    with serve(lambda request: completion(reply)) as server:
        mate = open_mate(mode="opening", llm_base_url=server.url, llm_model="test-3B")
        analysis = mate.analyze(spec_of(repo))
    assert analysis.metadata.get("model_config.model_name") == "conformer-large"
    assert analysis.source == "opening"
    [first] = server.requests[:1]
    assert "tools" not in first
    assert "file_read(" not in first["messages"][0]["content"]
    schema = first["response_format"]["json_schema"]
    finding_schema = schema["schema"]["$defs"]["Finding"]
    assert schema["strict"] is True
    assert set(finding_schema["required"]) == set(finding_schema["properties"])
    prompt = mate.prompt(spec_of(repo))
    assert prompt is not None
    assert prompt["tools"] == []


def test_a_correction_may_look_again_and_is_told_of_the_nearest_line(
    repo: Path, open_mate: Callable[..., SchedMate]
) -> None:
    wrong = {**HONEST[0], "line": 1, "quote": None}
    replies = [
        completion(json.dumps({"findings": [wrong]})),
        completion(None, [("file_read", {"path": "train.py"})]),
        completion(json.dumps({"findings": HONEST})),
    ]
    with serve(answers(replies)) as server:
        mate = open_mate(llm_base_url=server.url, llm_model="test-7B")
        analysis = mate.analyze(spec_of(repo))
    assert analysis.metadata.get("model_config.model_name") == "conformer-large"
    asked_again = server.requests[1]
    assert "train.py:10 does" in asked_again["messages"][-1]["content"]
    assert [one["function"]["name"] for one in asked_again["tools"]][1] == "file_read"


def test_effort_and_room_of_a_reasoning_model(
    repo: Path, open_mate: Callable[..., SchedMate]
) -> None:
    with serve(lambda request: completion('<think>{"a": 1}</think>{"findings": []}')) as server:
        open_mate(
            llm_base_url=server.url, llm_model="t", llm_max_tokens=100,
            llm_reasoning_tokens=5000, llm_reasoning_effort="low",
        ).analyze(spec_of(repo))  # fmt: skip
    assert server.requests[0]["reasoning_effort"] == "low"
    assert server.requests[0]["max_tokens"] == 5100


def test_no_question_means_no_call(
    tmp_path: Path, script: Callable[..., str], open_mate: Callable[..., SchedMate]
) -> None:
    repo = Path(__file__).parents[3] / "examples" / "train_repo"
    spec = JobSpec(repo=str(repo), command="python train.py model=vit_small data=imagenet")
    settings = {"llm_model": script(), "agent_ask_below": 0.1}
    analysis = open_mate(**settings, agent_ask_names=False).analyze(spec)
    assert analysis.model is not None
    assert (analysis.model.outcome, analysis.model.calls) == ("not needed", 0)
    assert analysis.source == "static"
    always = open_mate(**settings).analyze(spec).model
    assert always is not None
    assert always.asked == [
        "model_config.model_name", "dataset_config.train", "dataset_config.valid"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (finding("dataset_config.train", "planted_dataset", "README.md", 1), "neither code"),
        (finding("dataset_config.train", "planted_dataset", "unrelated.py", 1), "not lead"),
        (finding("dataset_config.train", "imagenet21k", "train.py", 1), "no code"),
        (finding("dataset_config.train", "cifar10", "train.py", 6), "does not hold"),
        (finding("dataset_config.train", "gpt-9", "train.py", 999), "no code"),
        (finding("dataset_config.train", "gpt-9", "../outside.py", 1), "no such file"),
        (finding("dataset_config.train", "gpt-9", "/etc/passwd.py", 1), "no such file"),
        (finding("model_config.task_type", "Cooking", "train.py", 8), "not one this field"),
        (finding("model_config.task_type", "CV", "train.py", 8), "names Audio"),
    ],
)
def test_what_cannot_be_proved_is_dropped_with_a_reason(
    repo: Path,
    script: Callable[..., str],
    open_mate: Callable[..., SchedMate],
    lie: dict[str, object],
    why: str,
) -> None:
    honest = [one for one in HONEST if one["field"] != lie["field"]]
    # asked to correct itself, the model insists
    model = script(DONE, report(lie, *honest), report(lie))
    analysis = open_mate(llm_model=model).analyze(spec_of(repo))
    assert analysis.model is not None
    assert analysis.metadata.get(str(lie["field"])) != lie["value"]
    assert any(why in reason for reason in analysis.model.dropped)
    assert analysis.metadata.get("model_config.model_name") == "conformer-large"


def test_a_correction_is_asked_for_once_and_taken(
    repo: Path, script: Callable[..., str], open_mate: Callable[..., SchedMate]
) -> None:
    wrong = finding("dataset_config.train", "imagenet21k", "train.py", 1)
    model = script(DONE, report(wrong), report(HONEST[4]))
    analysis = open_mate(llm_model=model).analyze(spec_of(repo))
    assert analysis.metadata.get("dataset_config.train") == "speech_commands_v2"


def test_a_line_counted_a_little_wrong_is_found(
    repo: Path, script: Callable[..., str], open_mate: Callable[..., SchedMate]
) -> None:
    near = {**HONEST[0], "line": 12}
    far = {**HONEST[4], "line": 12}
    analysis = open_mate(llm_model=script(DONE, report(near, far))).analyze(spec_of(repo))
    assert analysis.metadata.evidence["model_config.model_name"].line == 10
    assert analysis.metadata.get("dataset_config.train") is None


OPTIONS = """\
import argparse
import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument('--epochs', type=int, default=7)
parser.add_argument('--dataset', default='x')
args = parser.parse_args()
other = 'resnet152'
use(other)
model = torchvision.models.resnet18()
data = torchvision.datasets.__dict__[args.dataset]('data', train=True)
loader = torch.utils.data.DataLoader(data, batch_size=4)
optim = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(args.epochs):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optim.step()
"""


def test_sure_facts_of_static_analysis_are_never_overridden(
    repo: Path, script: Callable[..., str], open_mate: Callable[..., SchedMate]
) -> None:
    (repo / "train.py").write_text(OPTIONS)
    spec = JobSpec(repo=str(repo), command="python train.py --dataset CIFAR10 --epochs 7")
    before = open_mate(mode="static").analyze(spec).metadata
    sure = {k for k, v in before.evidence.items() if v.confidence >= DOUBTFUL_BELOW}
    assert {"dataset_config.train", "training_config.iters"} <= sure
    lies = report(
        finding("dataset_config.train", "resnet152", "train.py", 9),
        finding("training_config.iters", 4, "train.py", 13),
    )
    analysis = open_mate(llm_model=script(lies, report())).analyze(spec)
    after = analysis.metadata
    assert {field: after.get(field) for field in sure} == {f: before.get(f) for f in sure}
    assert analysis.model is not None
    assert any("resnet152" in one for one in analysis.model.conflicts), "but both are reported"
    assert after.evidence["dataset_config.train"].confidence == CONFLICT_CONFIDENCE


def test_what_the_command_states_beats_what_static_analysis_is_sure_of(repo: Path) -> None:
    """The user's own word, under an option of that field; a word under another option does not."""
    train = "dataset_config.train"
    known = WorkloadMetadata.model_validate(
        {
            "dataset_config": {"train": "c4"},
            "evidence": {train: {"value": "c4", "source": "code", "confidence": 0.84}},
        }
    )
    for command, expected in (("t.py --dataset pile", "pile"), ("t.py --tag pile", "c4")):
        citations = Citations(RepoFiles(repo), set(), command)
        found = citations.check(Finding(field=train, value="pile", file="command", line=1))
        assert isinstance(found, Evidence)
        assert combine(known, {train: found}, [train]).metadata.get(train) == expected


@pytest.mark.parametrize(
    ("values", "confidence", "contradicted", "asked"),
    [
        ({"training_config.lr": 0.1}, 0.79, {}, []),
        ({"dataset_config.train": "c4"}, 0.79, {}, ["dataset_config.train"]),
        ({"dataset_config.train": "c4"}, 0.8, {}, []),
        ({"model_config.d_model": 8}, 0.9, {}, ["model_config.d_model"]),
        (
            {"model_config.d_model": 100, "model_config.n_head": 12},
            0.9,
            {},
            ["model_config.d_model"],
        ),
        (
            {"training_config.image_size": 224},
            0.9,
            {"training_config.image_size": "resolution=512"},
            ["training_config.image_size"],
        ),
        (
            {"model_config.model_name": "gpt2"},
            0.9,
            {"model_config.model_name": "model=opt"},
            ["model_config.model_name"],
        ),
    ],
)
def test_what_is_doubtful_contradicted_or_impossible_is_asked(
    values: dict[str, Any], confidence: float, contradicted: dict[str, str], asked: list[str]
) -> None:
    given = dict.fromkeys(WorkloadMetadata.MANDATORY, "x") | {
        "model_config.task_type": "NLP",
        "training_config.iters": 9,
        "training_config.iter_type": "step",
        "training_config.batch_size": 4,
    }
    sections: dict[str, Any] = {}
    for path, value in (given | values).items():
        section, _, key = path.partition(".")
        sections.setdefault(section, {})[key] = value
    evidence = {
        path: {"value": v, "source": "code", "confidence": 0.95} for path, v in given.items()
    }
    evidence |= {
        p: {"value": v, "source": "code", "confidence": confidence} for p, v in values.items()
    }
    metadata = WorkloadMetadata.model_validate({**sections, "evidence": evidence})
    static = Extraction(metadata, LaunchConfig(), contradicted=contradicted)
    assert list(fields_to_ask(static, names=False)) == asked


@pytest.mark.parametrize(("confidence", "left"), [(0.74, None), (0.75, "c4")])
def test_none_that_no_line_can_show_replaces_a_guess(
    repo: Path, confidence: float, left: str | None
) -> None:
    valid = "dataset_config.valid"
    known = WorkloadMetadata.model_validate(
        {
            "dataset_config": {"valid": "c4"},
            "evidence": {valid: {"value": "c4", "source": "code", "confidence": confidence}},
        }
    )
    citations = Citations(RepoFiles(repo), set(), "t.py")
    none = Finding(field=valid, value=None, file="", line=0, none_found=True)
    found = citations.check(none)
    assert isinstance(found, Evidence)
    combined = combine(known, {valid: found}, [valid])
    assert combined.metadata.get(valid) == left
    assert combined.absent == [f"{valid}: the model found none"]
    other = none.model_copy(update={"field": "dataset_config.train"})
    assert "every training has one" in citations.check(other).reason  # type: ignore[union-attr]


def answers(replies: list[Any]) -> Callable[[Request], Any]:
    remaining = iter(replies)
    return lambda request: next(remaining, Raw(410, b"{}"))


FAILURES: dict[str, Any] = {
    "refused": [Raw(400, b'{"error": {"message": "no tools here"}}')],
    "gone": [Raw(503, b"", {"retry-after": "0"})] * 3,
    "garbage": [Raw(200, b"\x00\xff not json")],
    "huge": [Raw(200, b"x" * 6_000_000)] * 3,
    "cut off": [completion("Once upon a", finish="length")],
    "never answers": [completion("I shall.")] * 40,
    "echo": [completion("ok")]
    + [completion(json.dumps(WorkloadMetadata.model_json_schema()))] * 20,
    "broken tool call": [completion(None, [("file_read", "{not json")])] + [completion("hm")] * 20,
    "unknown tool": [completion(None, [("rm_rf", {"path": "/"})])] * 40,
    "wrong arguments": [completion(None, [("file_read", {"file": 7})])] * 40,
    "same call for ever": [completion(None, [("file_tree", {})])] * 100,
}


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("mode", ["hybrid", "agent"])
def test_every_failure_leaves_the_static_answer(
    repo: Path, open_mate: Callable[..., SchedMate], kind: str, mode: str
) -> None:
    static = open_mate(mode="static").analyze(spec_of(repo))
    with serve(answers(FAILURES[kind])) as server:
        analysis = open_mate(
            mode=mode, llm_base_url=server.url, llm_model="test-7B", llm_timeout_s=LONG_S
        ).analyze(spec_of(repo))
    assert analysis.source == "static"
    assert analysis.metadata == static.metadata
    assert analysis.model is not None
    assert analysis.model.outcome not in ("ok", "not needed")
    assert analysis.model.reason
    assert len(server.requests) < 40


def test_the_prefix_of_requests_is_the_same_for_every_job(
    repo: Path, tmp_path: Path, open_mate: Callable[..., SchedMate]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "main.py").write_text("import x\nx.go('a')\n")
    with serve(lambda request: completion('{"findings": []}')) as server:
        mate = open_mate(llm_base_url=server.url)
        mate.analyze(spec_of(repo))
        mate.analyze(JobSpec(repo=str(other), command="python main.py --x 1"))
    first = [one for one in server.requests if one.get("tool_choice") == "auto"]
    assert len(first) >= 2
    prefixes = {json.dumps([one["messages"][0], one["tools"]], ensure_ascii=False) for one in first}
    assert len(prefixes) == 1
    questions = {one["messages"][1]["content"] for one in first}
    assert len(questions) >= 2


def test_tool_results_are_fenced_and_bounded(
    repo: Path, open_mate: Callable[..., SchedMate]
) -> None:
    (repo / "big.py").write_text("x = 1  # filler filler filler filler\n" * 5000)
    calls = [
        completion(None, [("file_read", {"path": "big.py", "start_line": 1 + 200 * i})])
        for i in range(9)
    ]
    with serve(answers([*calls, completion('{"findings": []}')])) as server:
        open_mate(llm_base_url=server.url, llm_model="test-7B", llm_context_tokens=4096).analyze(
            spec_of(repo)
        )
    last = max(server.requests, key=lambda one: len(one["messages"]))
    shown = [one["content"] for one in last["messages"] if one["role"] == "tool"]
    nonce = last["messages"][1]["content"].partition("carry the number ")[2].split(".")[0]
    assert last["messages"][1]["content"].count(nonce) == 3
    assert all(text.count(nonce) == 2 for text in shown)
    assert sum(map(len, shown)) < 4096 * 3
    assert "no more material" in shown[-1]


def test_record_of_a_reading_is_private_and_can_be_replayed(
    repo: Path, script: Callable[..., str], open_mate: Callable[..., SchedMate], cli: Cli
) -> None:
    mate = open_mate(llm_model=script(TREE, READ, DONE, report(*HONEST)))
    analysis = mate.analyze(spec_of(repo))
    assert analysis.model is not None
    assert analysis.model.trajectory is not None
    record = Path(analysis.model.trajectory)
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    again = cli("analyze", str(repo), "-c", COMMAND, "--replay", str(record), "--json")
    assert again.code == 0, again.err
    document = json.loads(again.out)
    assert document["metadata"] == analysis.document()["metadata"]
    assert document["model"]["filled"] == analysis.model.filled


def test_only_old_records_make_room_for_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory, "MAX_RECORDS", 2)
    theirs = ["2024-01-results.json", "20240101-000000-notahexx.json", "a-b-c.json"]
    ours = ["20240101-000000-0123abcd.json", "20240102-000000-0123abcd.json"]
    for name in (*theirs, *ours):
        (tmp_path / name).write_text("{}")
    use = ModelUse(mode="agent", model="m", endpoint="scripted", outcome="ok")
    new = trajectory.Recorder().save(tmp_path, JobSpec(), use, str)
    assert {one.name for one in tmp_path.iterdir()} == {*theirs, ours[1], new.name}


def test_replay_of_something_else_is_refused(repo: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "x.json").write_text('{"schema": "other"}')
    for name in ("x.json", "missing.json"):
        result = cli("analyze", str(repo), "-c", COMMAND, "--replay", str(tmp_path / name))
        assert result.code == 3
        assert name in result.err


def test_show_prompt_sends_nothing(repo: Path, cli: Cli) -> None:
    with serve(lambda request: completion("")) as server:
        shown = cli(
            "analyze", str(repo), "-c", COMMAND, "--llm-base-url", server.url, "--show-prompt"
        )
    assert server.requests == []
    request = json.loads(shown.out)
    assert COMMAND in request["messages"][1]["content"]
    assert [one["function"]["name"] for one in request["tools"]] == [
        "file_tree", "file_read", "file_search"
    ]  # fmt: skip


def test_the_command_line_says_when_the_model_failed(repo: Path, cli: Cli) -> None:
    with serve(lambda request: Raw(400, b"no")) as server:
        result = cli("analyze", str(repo), "-c", COMMAND, "--llm-base-url", server.url, "--json")
    assert result.code == 0
    assert json.loads(result.out)["source"] == "static"
    assert "static analysis" in result.err
    assert "400" in result.err


def test_a_mode_that_needs_a_model_says_so(repo: Path, cli: Cli) -> None:
    result = cli("analyze", str(repo), "-c", COMMAND, "--mode", "agent")
    assert result.code == 2
    assert "--llm-base-url" in result.err


def test_submit_hook_never_asks_a_model(repo: Path, open_mate: Callable[..., SchedMate]) -> None:
    with serve(lambda request: completion("")) as server:
        open_mate(llm_base_url=server.url).on_submit(spec_of(repo))
    assert server.requests == []


SECRETS = {
    "aws": "AKIA" + "Q3EGRIZ7HPLMNOPQ",
    "github": "ghp_" + "Zx8Kq2Lw9Rt4Yv6Bn1Mc3Dd5Ff7Gg0Hh2Jj4",
    "huggingface": "hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi",
    "password": "corr3ct-h0rse-battery",
}


def test_no_secret_is_in_any_request(repo: Path, open_mate: Callable[..., SchedMate]) -> None:
    key = "\n".join(
        [
            "-----BEGIN RSA PRIVATE KEY-----",  # gitleaks:allow - made up
            *("MIIEpAIBAAKCAQEA7bq" + "x9Zk3" * 9 for _ in range(12)),
            "-----END RSA PRIVATE KEY-----",
        ]
    )
    (repo / "settings.py").write_text(
        f"AWS_ACCESS_KEY_ID = '{SECRETS['aws']}'\nGITHUB_TOKEN = '{SECRETS['github']}'\n"
        f"hub_token = '{SECRETS['huggingface']}'\n"
        f"db = 'postgres://trainer:{SECRETS['password']}@db.internal/runs'\n"
        f'KEY = """{key}"""\n' + "LENGTH = 5\n"
    )
    (repo / ".env").write_text(f"TOKEN={SECRETS['github']}\n")
    reads = [
        ("file_read", {"path": "settings.py"}),
        ("file_read", {"path": "settings.py", "start_line": 8, "max_lines": 3}),
        ("file_read", {"path": ".env"}),
        ("file_tree", {}),
    ]
    replies = [completion(None, [one]) for one in reads]
    with serve(answers([*replies, completion('{"findings": []}')])) as server:
        mate = open_mate(llm_base_url=server.url, llm_model="test-7B")
        analysis = mate.analyze(
            JobSpec(repo=str(repo), command=f"HF_TOKEN={SECRETS['huggingface']} python train.py")
        )
    sent = json.dumps(server.requests)
    assert "postgres://trainer" in sent, "the file was to be read"
    leaked = [name for name, secret in SECRETS.items() if secret in sent]
    assert leaked == []
    assert "x9Zk3x9Zk3" not in sent
    assert ".env" not in server.requests[-1]["messages"][-1]["content"]
    assert analysis.model is not None
    assert analysis.model.trajectory is not None
    kept = Path(analysis.model.trajectory).read_text()
    assert [name for name, secret in SECRETS.items() if secret in kept] == []


def test_leaving_this_machine_is_announced(repo: Path, cli: Cli) -> None:
    away = cli(
        "analyze", str(repo), "-c", COMMAND, "--llm-base-url", "https://models.invalid/v1",
        "--model", "m", "--json",
    )  # fmt: skip
    assert away.code == 0
    assert "go to https://models.invalid/v1" in away.err
    with serve(lambda request: completion('{"findings": []}')) as server:
        here = cli("analyze", str(repo), "-c", COMMAND, "--llm-base-url", server.url)
    assert "go to" not in here.err
