"""benchmarks/public_benchmark.py: jobs to answer for, and answers scored."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from cli_runner import Cli, Output
from hypothesis import given
from hypothesis import strategies as st

from schedmate.jobs.diagnosis import ErrorType, FaultyComponent

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from _record import recorded  # noqa: E402
from public_benchmark import FAILURE_FIELDS, main, share_interval  # noqa: E402

DEV, HELDOUT, UNSEEN, FAILURES = (
    ROOT / "benchmarks" / "labels" / name
    for name in ("dev.jsonl", "heldout.jsonl", "unseen.jsonl", "failures.jsonl")
)
LABELS = [
    {
        "id": "a-1",
        "repo": "o/a",
        "commit": "0" * 40,
        "command": "python a.py",
        "launch": {"gpus": 1},
        "expected": {"model_name": ["ResNet-50"], "iters": 90, "train": "CIFAR-10", "valid": None},
        "also": {"lr": 0.1},
    },
    {
        "id": "a-2",
        "repo": "o/a",
        "commit": "0" * 40,
        "command": "python a.py -e 3",
        "expected": {"iters": [3, 1200]},
    },
    {
        "id": "b-1",
        "repo": "o/b",
        "commit": "1" * 40,
        "command": "python b.py",
        "expected": {"iters": 5, "valid": None},
    },
]


def lines(path: Path, *documents: Any) -> str:
    path.write_text("\n".join(json.dumps(one) for one in documents) + "\n")
    return str(path)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The script in this process, errors and exit codes included."""

    def run(*arguments: str) -> Output:
        monkeypatch.setattr(sys, "argv", ["public_benchmark.py", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return Output(int(end.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def labels(tmp_path: Path) -> str:
    return lines(tmp_path / "labels.jsonl", *LABELS)


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (ROOT / "docs" / "schemas" / f"{name}-v1.schema.json").read_text()
    )
    return found


@pytest.mark.parametrize(("path", "jobs"), [(DEV, 1266), (HELDOUT, 33), (UNSEEN, 24)])
def test_jobs_say_what_is_asked_and_not_what_is_right(bench: Cli, path: Path, jobs: int) -> None:
    told = [json.loads(line) for line in bench("jobs", "--labels", str(path)).out.splitlines()]
    assert len({one["id"] for one in told}) == jobs
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    keys = ("id", "repo", "commit", "command", "launch")
    assert [[one[key] for key in keys] for one in told] == [
        [row[key] for key in keys] for row in rows
    ]
    check = jsonschema.Draft202012Validator(schema("bench-job"))
    for one in told:
        assert set(one) == {"schema", *keys}
        check.validate(one)


def test_what_the_labels_accept_is_all_right(bench: Cli, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in DEV.read_text().splitlines()]
    check = jsonschema.Draft202012Validator(schema("bench-answer"))
    answers = []
    for row in rows:
        said = {
            field: accepted[0] if isinstance(accepted, list) else accepted
            for field, accepted in (row["expected"] | row.get("also", {})).items()
        }
        answers.append({"id": row["id"], "answers": said})
        check.validate(answers[-1])
    file = lines(tmp_path / "answers.jsonl", *answers)
    made = json.loads(bench("score", file, "--labels", str(DEV), "--json").out)
    jsonschema.validate(made, schema("bench-score"))
    labelled = sum(len(row["expected"]) for row in rows)
    assert (made["fields"][-1]["right"], made["fields"][-1]["of"]) == (labelled, labelled)
    assert made["fields"][-1]["accuracy"] == made["further"][-1]["accuracy"] == 1
    assert made["unanswered"] == 0


def test_each_kind_of_answer_is_counted(bench: Cli, tmp_path: Path, labels: str) -> None:
    said = {"model_name": "zoo/resnet50", "iters": 30, "train": None, "valid": "x", "lr": 1e-1}
    second = {"schema": "schedmate.bench-answer/v1", "id": "a-2", "answers": {"iters": 1200.0}}
    file = lines(tmp_path / "answers.jsonl", {"id": "a-1", "answers": said}, second)

    def counts(*options: str) -> dict[str, list[int]]:
        made = json.loads(bench("score", file, "--labels", labels, "--json", *options).out)
        verdicts = ("right", "wrong", "missing", "spurious")
        return {row["field"]: [row[name] for name in verdicts] for row in made["fields"]} | {
            "lr": [made["further"][0][name] for name in verdicts]
        }

    assert counts() == {
        "model_name": [1, 0, 0, 0],
        "iters": [1, 1, 1, 0],
        "train": [0, 0, 1, 0],
        "valid": [1, 0, 0, 1],
        "all": [3, 1, 2, 1],
        "lr": [1, 0, 0, 0],
    }
    assert counts("--answered")["all"] == [2, 1, 1, 1]
    shown = bench("score", file, "--labels", labels, "--cases").out
    assert "a-1: iters wrong: got 30, expected 90\n" in shown
    assert "1 labelled job without a line in answers.jsonl, counted as all null" in shown
    assert "3 jobs of 2 repositories" in shown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a-9", "answers": {}}', "no label 'a-9'; `public_benchmark.py jobs`"),
        ('{"id": "a-1", "answers": {"itres": 3}}', "no key answers.itres; did you mean iters?"),
        ('{"id": "a-1", "answers": {"iters": [3]}}', "answers.iters: has to be text, a number"),
        ('{"id": "a-1", "answers": {"iters": true}}', "answers.iters: has to be text, a number"),
        ('{"id": "a-1", "answers": {"iters": NaN}}', "answers.iters: has to be a number of"),
        ('{"id": "a-1", "answers": {"train": "%s"}}' % ("a/" * 5000), "at most 300 characters"),
        ('{"id": "a-1", "answers": {"iters": 1%s}}' % ("0" * 350), "number of at most 64 bits"),
        ('{"id": "a-1"}', "answers is missing"),
        ("iters: 3", "is no JSON"),
        ('{"id": "a-2", "answers": {}}', "'a-2' is answered twice"),
    ],
)
def test_a_line_that_does_not_fit_is_named(
    bench: Cli, tmp_path: Path, labels: str, line: str, message: str
) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text('{"id": "a-2", "answers": {}}\n\n' + line + "\n")
    done = bench("score", str(file), "--labels", labels)
    assert (done.code, done.out) == (3, "")
    assert message in done.err
    assert "answers.jsonl, line 3: " in done.err


def test_files_that_hold_no_labels_are_named(bench: Cli, tmp_path: Path, labels: str) -> None:
    gone = bench("jobs", "--labels", str(tmp_path / "label.jsonl"))
    assert gone.code == 3
    assert "did you mean" in gone.err
    assert "labels.jsonl?" in gone.err
    empty = lines(tmp_path / "empty.jsonl", *[])
    assert "has no labels" in bench("jobs", "--labels", empty).err
    twice = lines(tmp_path / "twice.jsonl", LABELS[0], LABELS[0])
    assert "two labels 'a-1'" in bench("jobs", "--labels", twice).err
    answers = lines(tmp_path / "answers.jsonl", {"id": "a-1", "answers": {}})
    done = bench("score", labels, "--labels", answers)
    assert (done.code, done.err.count("\n")) == (3, 1)


LOG = "step 1\nTraceback (most recent call last):\nKeyError: 'x'\n"
QUOTED = "CUDA error: out of memory\n"


def log_label(name: str, text: str, **expected: Any) -> dict[str, Any]:
    checksum = hashlib.sha256(text.encode()).hexdigest()
    source = f"https://example.org/{name}"
    return {"id": name, "repo": name, "source": source, "sha256": checksum, "expected": expected}


LOGS = [
    log_label("key", LOG, error_type=["script"], error_name=["Key Error"], line=[2, 3]),
    log_label("quoted", QUOTED, error_type=["framework"], line=[1], faulty_component=None),
    log_label("well", "done\n", error_type=["none"], faulty_component=["gpu", None]),
    log_label("away", "nowhere", error_type=["infrastructure"]),
]


def test_logs_say_where_they_are_and_not_what_is_right(bench: Cli) -> None:
    printed = bench("logs", "--labels", str(FAILURES)).out.splitlines()
    check = jsonschema.Draft202012Validator(schema("bench-log"))
    rows = [json.loads(line) for line in FAILURES.read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) == len(printed)
    for line, row in zip(printed, rows, strict=True):
        document = json.loads(line)
        check.validate(document)
        assert document == {"schema": "schedmate.bench-log/v1"} | {
            key: row[key] for key in ("id", "repo", "source", "sha256")
        }


def test_logs_are_found_by_their_checksums(bench: Cli, tmp_path: Path) -> None:
    labels = lines(tmp_path / "labels.jsonl", *LOGS)
    saved = tmp_path / "saved"
    (saved / "deep").mkdir(parents=True)
    (saved / "deep" / "job.out").write_text(LOG)
    (saved / "page.md").write_text(f"It fails:\r\n```\r\n{QUOTED}```\r\nWhy?\n")
    cell = {"outputs": [{"text": ["epoch 1\n", "done\n"]}]}
    (saved / "notebook.ipynb").write_text(json.dumps({"cells": [cell]}))
    (saved / "broken.json").write_text("{")
    (saved / "half.json").write_text(r'{"body": "caf\ud800"}')
    out = tmp_path / "logs"
    done = bench("logs", "--labels", labels, "--from", str(saved), "--out", str(out))
    assert done.code == 0
    assert "3 of 4 logs found" in done.err
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == ["key", "quoted", "well"]
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "key.log": LOG,
        "quoted.log": QUOTED,
        "well.log": "done\n",
    }
    half = bench("logs", "--labels", labels, "--from", str(saved))
    assert (half.code, half.err.count("\n")) == (2, 1)
    gone = bench("logs", "--labels", labels, "--from", labels, "--out", str(out))
    assert (gone.code, "is no directory" in gone.err) == (3, True)


def test_answers_about_logs_are_counted(bench: Cli, tmp_path: Path) -> None:
    labels = lines(tmp_path / "labels.jsonl", *LOGS)
    said = {"error_type": "script", "error_name": "Type Error", "line": 3}
    second = {"error_type": "framework", "faulty_component": "gpu"}
    file = lines(
        tmp_path / "answers.jsonl",
        {"id": "key", "answers": said},
        {"id": "quoted", "answers": second},
        {"id": "well", "answers": {"error_type": "none", "faulty_component": None}},
    )
    made = json.loads(bench("score", file, "--labels", labels, "--json").out)
    jsonschema.validate(made, schema("bench-score"))
    verdicts = ("right", "wrong", "missing", "spurious")
    assert {row["field"]: [row[name] for name in verdicts] for row in made["fields"]} == {
        "error_type": [3, 0, 1, 0],
        "error_name": [0, 1, 0, 0],
        "line": [1, 0, 1, 0],
        "faulty_component": [1, 0, 0, 1],
        "all": [5, 1, 2, 1],
    }
    shown = bench("score", file, "--labels", labels).out
    assert "4 logs of 4 repositories; 1 labelled log without a line" in shown
    wrong = lines(tmp_path / "wrong.jsonl", {"id": "key", "answers": {"iters": 3}})
    done = bench("score", wrong, "--labels", labels)
    assert (done.code, "logs have no field 'iters'" in done.err) == (3, True)
    jobs = bench("jobs", "--labels", labels)
    assert (jobs.code, "list them by `public_benchmark.py logs`" in jobs.err) == (3, True)


def test_what_the_labels_of_logs_accept_is_what_a_diagnosis_can_say() -> None:
    types, components = set(get_args(ErrorType)), {None, *get_args(FaultyComponent)}
    for line in FAILURES.read_text().splitlines():
        expected = json.loads(line)["expected"]
        assert expected.keys() <= FAILURE_FIELDS.keys()
        assert set(expected.get("error_type", ())) <= types
        assert set(expected.get("faulty_component") or ()) <= components
        assert all(isinstance(number, int | None) for number in expected.get("line") or ())


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(2, 5))
def test_more_answers_of_the_same_repositories_make_no_narrower_interval(
    rights: list[bool], times: int
) -> None:
    single = [(f"repository {number}", right) for number, right in enumerate(rights)]
    low, high = share_interval(single)
    assert low is not None
    assert high is not None
    assert low - 1e-3 <= sum(rights) / len(rights) <= high + 1e-3
    assert share_interval(single * times) == (low, high)
    apart = [(f"{repo}, {copy}", right) for repo, right in single for copy in range(times)]
    near, far = share_interval(apart)
    assert near is not None
    assert far is not None
    assert far - near < high - low


def test_an_interval_of_independent_answers_is_the_one_of_wilson() -> None:
    assert share_interval((str(number), number < 8) for number in range(10)) == (0.49, 0.943)
    assert share_interval([]) == (None, None)


def test_the_page_shows_the_recorded_baselines() -> None:
    page = (ROOT / "docs" / "benchmark.md").read_text()
    rows = recorded("baselines")["rows"]
    fields = ("model_name", "task_type", "iters", "iter_type", "train", "valid", "all")
    for row in rows:
        shares = (f"{row[field]:.3f}" for field in fields)
        cells = (row["labels"], row["method"], row["jobs"], *shares, row["95 %"])
        assert f"| {' | '.join(cells)} |" in page


def test_the_page_shows_the_recorded_baselines_of_logs() -> None:
    page = (ROOT / "docs" / "benchmark.md").read_text()
    rows = recorded("log_baselines")["rows"]
    assert any(row["method"].startswith("model") for row in rows)
    for row in rows:
        shares = (row[field] for field in FAILURE_FIELDS)
        cells = (row["method"], str(row["logs"]), *shares, f"{row['accuracy']:.3f}", row["95 %"])
        assert f"| {' | '.join(cells)} |" in page


def test_an_interval_drawn_from_repositories_is_wider_where_they_are_alike() -> None:
    bootstrap = importlib.import_module("_bootstrap").bootstrap

    def width(outcomes: list[tuple[str, bool]]) -> float:
        low, high = map(float, bootstrap(outcomes).split(" to "))
        assert 0 <= low <= 0.5 <= high <= 1
        return high - low

    alike = [(str(number // 10), number < 50) for number in range(100)]
    apart = [(str(number), number < 50) for number in range(100)]
    assert width(alike) > 2 * width(apart) > 0.2
    assert bootstrap([("a", True)] * 3) == "1.000 to 1.000"
    assert bootstrap([]) == "-"


def test_the_page_counts_the_labels_as_they_are() -> None:
    page = (ROOT / "docs" / "benchmark.md").read_text()
    for path in (HELDOUT, UNSEEN, DEV, FAILURES):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        values = [value for row in rows for value in row["expected"].values()]
        counts = (len(rows), len({row["repo"] for row in rows}), len(values), values.count(None))
        cells = " | ".join(f"{count:,}" for count in counts)
        assert f"| `benchmarks/labels/{path.name}` | {cells} |" in page
