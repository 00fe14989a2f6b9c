"""What the tracker names: the epoch under its clearer name, counters without a loss, NaN values."""

from __future__ import annotations

import pytest

from schedmate.jobs import Progress
from schedmate.logparse.progress.tracker import track
from schedmate.logparse.reading import LogFile
from schedmate.logparse.reading.storage import Memory


def progress_of(lines: list[str]) -> Progress:
    return track(LogFile("log", Memory(("\n".join(lines) + "\n").encode())))


@pytest.mark.parametrize("place", ["ep:{ep} epch:{at}", "epch:{at} ep:{ep}", "ep {ep} epoch {at}"])
def test_of_two_names_of_the_epoch_the_one_written_out_counts(place: str) -> None:
    lines = [
        f"INFO 2024-08-14 11:05:{i:02d} ts/train.py:192 step:{200 * i} smpl:{i}K "
        f"{place.format(ep=4 * i, at=i / 100)} loss:0.1 grdn:2.3 lr:1e-5 updt_s:0.1 data_s:0.02"
        for i in range(10, 40)
    ]

    assert progress_of(lines).epoch == pytest.approx(0.39)


def test_an_epoch_that_is_only_abbreviated_is_one() -> None:
    assert progress_of([f"ep {i} step {100 * i} loss 0.5" for i in range(1, 9)]).epoch == 8
