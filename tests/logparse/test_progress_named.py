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


@pytest.mark.parametrize(
    ("line", "last"),
    [
        ("step={i}.{i}0M fps=20k return=12.{i}", 9_900_000),
        ("step {i} mean_reward {i}.5", 9),
        ("step: {i} | ep_rew_mean: 1{i}.5", 9),
        ("[{i}0]\ttrain-rmse:0.5{i}\teval-rmse:0.6{i}", 90),
        ("[{i}0]\ttraining's rmse: 0.5{i}\tvalid_0's rmse: 0.6{i}", 90),
        ("{i}:\tlearn: 0.5{i}\ttotal: 1{i}.2ms\tremaining: 5ms", 9),
    ],
)
def test_progress_without_a_loss_is_seen(line: str, last: int) -> None:
    progress = progress_of([line.format(i=i) for i in range(1, 10)])

    assert progress.iteration == last
    assert progress.abstained or progress.source != "none"
    assert "shows training progress" not in (progress.reason or "")


@pytest.mark.parametrize(
    "line",
    [
        "step {i}: return code 0",
        "step {i}: copied 4{i} files",
        "[{i}] INFO: 3{i} files",
        "[{i}] gpu-node:3{i}",
    ],
)
def test_what_is_counted_otherwise_is_no_training(line: str) -> None:
    assert progress_of([line.format(i=i) for i in range(1, 10)]).iteration is None


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize("name", ["grad_norm", "grdn", "val_loss", "gnorm"])
def test_a_gradient_or_validation_loss_that_is_no_number_is_named(name: str, value: str) -> None:
    lines = [f"epoch {i} step {10 * i} loss 0.5 {name} 1.5" for i in range(1, 9)]
    assert progress_of(lines).no_numbers == {}

    lines.append(f"epoch 9 step 90 loss 0.5 {name} {value}")
    assert progress_of(lines).no_numbers == {name: value}
    assert progress_of([*lines, lines[0]]).no_numbers == {}
