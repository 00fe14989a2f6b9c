"""A short, seeded run of every fuzz target, and every input that was ever found to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_run import failure_of, fuzz
from fuzz_targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_is_answered(path: Path, tmp_path: Path) -> None:
    failure = failure_of(path.parent.name, path.read_bytes(), tmp_path / "case")
    assert failure is None, failure[1]


def test_the_corpus_is_of_targets() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(TARGETS)


# in halves, so that two cores share the work
@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_every_target_answers_whatever_it_is_given(half: int, tmp_path: Path) -> None:
    names = list(TARGETS)[half::2]
    found, inputs = fuzz(names, seed=1, runs=None, seconds=120, failures=tmp_path)
    assert found == []
    assert inputs == {name: TARGETS[name].short for name in names}
