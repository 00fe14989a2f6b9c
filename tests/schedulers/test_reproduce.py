"""`schedmate reproduce`: the published trace is checked, run, and set beside what was published."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli

from schedmate.demo import write_trace


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a study of one small trace."""
    trace = tmp_path / "data" / "trace.csv"
    trace.parent.mkdir()
    write_trace(trace)
    numbers = {"avg_jct_h": 1.25, "makespan_h": 30}
    study = {
        "what": "a small trace",
        "from": {"repository": "https://example.org/a", "folder": "data", "licence": "none"},
        "layout": ["trace.csv"],
        "recorded_in": "small",
        "published_by": "its authors",
        "options": ["--cluster", "4x8"],
        "runs": [
            {
                "file": "trace.csv",
                "sha256": sha256(trace.read_bytes()).hexdigest(),
                "rows": {
                    "fifo": {"published": numbers, "recorded": numbers},
                    "sjf": {"recorded": numbers},
                },
            }
        ],
    }
    monkeypatch.setattr("schedmate.commands.reproduce.load", lambda _: {"small": study})
    return trace.parent


def test_a_study_is_run_beside_its_numbers(data: Path, cli: Cli) -> None:
    rows = json.loads(cli("reproduce", "small", "--data", str(data), "--json").out)["rows"]
    assert [row["policy"] for row in rows] == ["fifo", "sjf"]
    assert rows[0]["here"]["avg_jct_h"] >= rows[1]["here"]["avg_jct_h"] > 0
    assert rows[1]["published"] is None
    text = cli("reproduce").out
    assert "schedmate reproduce small --data data" in text
    assert "mean JCT h, published" in text
    assert "here" not in text.splitlines()[-3]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("smal",), 2, "did you mean small?"),
        (("--data", "{}"), 2, "name the study"),
        (("small", "--data", "{}/none"), 3, "has no trace.csv; name a copy of data of https://"),
    ],
)
def test_what_is_wrong_is_said(
    words: tuple[str, ...], code: int, told: str, data: Path, cli: Cli
) -> None:
    found = cli("reproduce", *(word.format(data) for word in words))
    assert (found.code, told in found.err) == (code, True)


def test_another_file_is_not_the_published_one(data: Path, cli: Cli) -> None:
    with (data / "trace.csv").open("a") as stream:
        stream.write("\n")
    assert "is not the published file" in cli("reproduce", "small", "--data", str(data)).err


def test_the_bundled_studies_are_described(cli: Cli) -> None:
    studies: dict[str, Any] = json.loads(cli("reproduce", "--json").out)["studies"]
    assert {"sia", "philly", "openb"} <= set(studies)
    recorded = Path(__file__).parents[2] / "benchmarks" / "results"
    for one in studies.values():
        name = one["recorded_in"]
        assert name in json.loads((recorded / f"{name.partition('_')[0]}.json").read_text())
