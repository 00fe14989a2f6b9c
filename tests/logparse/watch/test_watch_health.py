"""What is found about a running job by its log at one moment."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schedmate.jobs.health import Health
from schedmate.logparse.reading import open_log
from schedmate.logparse.watch.health import WatchLimits, watch_log

START = 1_790_000_000.0
NO_LEAST = WatchLimits(least_s=0.0)


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(START + seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def step_line(seconds: float, step: int, loss: float | str = 2.0, rest: str = "") -> str:
    return f"{stamp(seconds)} INFO step {step}/9000 loss {loss} lr 0.0001{rest}\n"


def steady(count: int, every: float = 2.0) -> list[str]:
    return [step_line(n * every, n, f"{4.0 - n / 1000:.3f}") for n in range(1, count + 1)]


def health_of(
    path: Path,
    lines: Iterable[str],
    *,
    now: float,
    written: float | None = None,
    limits: WatchLimits = NO_LEAST,
    before: Health | None = None,
) -> Health:
    """The health by a log, with times in seconds after its start."""
    path.write_text("".join(lines))
    with open_log(path) as log:
        return watch_log(
            log,
            START + now,
            START + (now if written is None else written),
            limits=limits,
            before=before,
        )


def kinds(health: Health) -> list[str]:
    return [condition.kind for condition in health.conditions]


def test_a_job_that_goes_on_has_no_condition(tmp_path: Path) -> None:
    health = health_of(tmp_path / "log", steady(200), now=401)
    assert kinds(health) == []
    assert health.usual_s == 2.0
    assert health.progress_at == START + 401


@pytest.mark.parametrize(
    "broken",
    [
        step_line(401, 201, "nan") + step_line(403, 202, "nan") + "Killed\n",
        "FloatingPointError: Minimum loss scale reached (0.0001)\n",
        "RuntimeError: something else\n",
    ],
)
def test_a_run_is_judged_without_those_before_it(tmp_path: Path, broken: str) -> None:
    """Of a job that is started again in one file after it diverged, and is slower at first."""
    again = [step_line(500 + 5 * n, n, f"{400 - n}.0") for n in range(1, 40)]
    health = health_of(tmp_path / "log", [*steady(200), broken, *again], now=696)
    assert kinds(health) == []
    assert health.usual_s == 5.0


def test_a_stall_is_found_within_ten_usual_intervals(tmp_path: Path) -> None:
    quiet = health_of(tmp_path / "log", steady(200), now=400 + 14, written=400)
    assert kinds(quiet) == []
    stalled = health_of(tmp_path / "log", steady(200), now=400 + 20, written=400)
    assert kinds(stalled) == ["stalled"]
    (condition,) = stalled.conditions
    assert condition.since == START + 400
    assert condition.usual_s == 2.0
    assert condition.summary.startswith("last progress 20 s ago; usual interval 2")
    assert stalled.progress.stalled
    assert stalled.progress.eta_s is None


def test_other_lines_are_no_progress(tmp_path: Path) -> None:
    noise = [f"{stamp(400 + n)} INFO heartbeat {n} of the node agent\n" for n in range(60)]
    health = health_of(tmp_path / "log", steady(200) + noise, now=460)
    assert kinds(health) == ["stalled"]
    assert health.progress_at == pytest.approx(START + 400, abs=2)


def test_a_counter_that_does_not_advance_is_no_progress(tmp_path: Path) -> None:
    again = [step_line(400 + n, 200, "3.800") for n in range(1, 60)]
    health = health_of(tmp_path / "log", steady(200) + again, now=460)
    assert kinds(health) == ["stalled"]


def test_attempts_that_do_not_succeed_are_a_loop(tmp_path: Path) -> None:
    attempts = [
        f"{stamp(400 + 5 * n)} WARNING connection refused by 10.0.0.7, retrying ({n})\n"
        for n in range(12)
    ]
    health = health_of(tmp_path / "log", steady(200) + attempts, now=460)
    assert kinds(health) == ["looping"]
    assert "12 times" in health.conditions[0].summary
    assert "connection refused" in (health.conditions[0].last_line or "")


def test_pauses_that_recur_are_expected_where_they_recur(tmp_path: Path) -> None:
    def with_pauses(count: int) -> tuple[list[str], float]:
        at, lines = 0.0, []
        for n in range(1, count + 1):
            at += 90.0 if n > 1 and (n - 1) % 100 == 0 else 2.0
            lines.append(step_line(at, n, f"{4.0 - n / 1000:.3f}"))
        return lines, at

    lines, at = with_pauses(500)  # the next pause is due now
    assert kinds(health_of(tmp_path / "log", lines, now=at + 200, written=at)) == []
    assert kinds(health_of(tmp_path / "log", lines, now=at + 300, written=at)) == ["stalled"]
    lines, at = with_pauses(550)  # none is due for 50 steps
    assert kinds(health_of(tmp_path / "log", lines, now=at + 20, written=at)) == ["stalled"]


def test_a_pause_that_was_survived_is_expected_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = health_of(log, steady(200), now=450, written=400)
    assert kinds(first) == ["stalled"]
    lines = [line.replace(" INFO", "") for line in steady(200)]
    assert lines
    on = [*steady(200), step_line(455, 201, 3.8)]
    second = health_of(log, on, now=456, before=first)
    assert kinds(second) == []
    assert second.progress.longest_silence_s == pytest.approx(50)
    later = health_of(log, on, now=455 + 90, written=455, before=second)
    assert kinds(later) == []


def test_a_log_without_a_clock_is_measured_from_look_to_look(tmp_path: Path) -> None:
    lines = [f"step {n}/9000 loss 2.0 lr 1e-4, 2.0 s/step\n" for n in range(1, 100)]
    log = tmp_path / "log"
    first = health_of(log, lines, now=200)
    assert kinds(first) == []
    noise = ["heartbeat\n"] * 9
    second = health_of(log, lines + noise, now=230, before=first)
    assert kinds(second) == []
    third = health_of(log, lines + 9 * noise, now=260, before=second)
    assert kinds(third) == ["stalled"]
    assert third.progress_at == START + 200


def test_the_rank_that_is_behind_is_named_with_its_last_line(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(4):
        count = 187 if rank == 2 else 200
        lines = steady(count) + (["entering all_to_all of layer 7\n"] if rank == 2 else [])
        (folder / f"rank{rank}.log").write_text("".join(lines))
    with open_log(folder) as log:
        health = watch_log(log, START + 460, START + 400, limits=NO_LEAST)
    (condition,) = health.conditions
    assert condition.kind == "stalled"
    assert "rank2.log is 13 steps behind" in condition.summary
    assert condition.last_line == "entering all_to_all of layer 7"


def test_a_slowdown_has_its_size_its_beginning_and_its_line(tmp_path: Path) -> None:
    draw, at, lines = random.Random(1), 0.0, []
    for n in range(1, 401):
        at += (12.0 if n <= 300 else 18.0) * draw.uniform(0.95, 1.05)
        lines.append(step_line(at, n, f"{4.0 - n / 1000:.3f}"))
    health = health_of(tmp_path / "log", lines, now=at)
    assert kinds(health) == ["slowed"]
    (condition,) = health.conditions
    assert condition.ratio == pytest.approx(1.5, rel=0.05)
    assert condition.iteration is not None
    assert abs(condition.iteration - 301) <= 3
    assert condition.since is not None
    assert health.read_at - condition.since == pytest.approx(100 * 18, rel=0.1)


@pytest.mark.parametrize(("after", "found"), [(0.4, ["slowed"]), (0.2, [])])
def test_stated_times_with_few_digits_must_change_by_more_than_one(
    tmp_path: Path, after: float, found: list[str]
) -> None:
    lines = [
        f"step {n}/9000 loss 2.0 lr 1e-4, {0.1 if n <= 150 else after} s/step\n"
        for n in range(1, 201)
    ]
    assert kinds(health_of(tmp_path / "log", lines, now=50)) == found


@pytest.mark.parametrize(("value", "word"), [("nan", "NaN"), ("inf", "infinite")])
def test_a_loss_that_is_no_number_counts_from_its_first_line(
    tmp_path: Path, value: str, word: str
) -> None:
    lines = steady(100) + [step_line(n * 2, n, value) for n in range(101, 1001)]
    limits = WatchLimits(least_s=0.0, gpus=8)
    health = health_of(tmp_path / "log", lines, now=2000, limits=limits)
    assert kinds(health) == ["diverged"]
    (condition,) = health.conditions
    assert condition.iteration == 101
    assert word in condition.summary
    assert condition.gpu_hours == pytest.approx(1800 * 8 / 3600, rel=0.01)


def test_a_loss_that_jumped_and_stayed(tmp_path: Path) -> None:
    draw = random.Random(5)
    low = [step_line(n * 2, n, f"{2 + draw.gauss(0, 0.1):.3f}") for n in range(1, 200)]
    high = [step_line(n * 2, n, f"{8 + draw.gauss(0, 0.3):.3f}") for n in range(200, 260)]
    health = health_of(tmp_path / "log", low + high, now=520)
    assert kinds(health) == ["diverged"]
    assert health.conditions[0].iteration == 200
    spike = low + high[:6] + [step_line(n * 2, n, 2.1) for n in range(206, 230)]
    assert kinds(health_of(tmp_path / "log", spike, now=460)) == []


def test_a_loss_scale_that_fell_to_its_end(tmp_path: Path) -> None:
    def lines(last: int) -> list[str]:
        scales = [65536.0 / 2 ** max(0, n - 50) for n in range(1, last)]
        return [
            f"{stamp(n * 2)} iteration {n}/ 9000 | lm loss: 2.0E+00 | loss scale: {scale:.1f} | "
            f"number of skipped iterations: {int(n > 50)} |\n"
            for n, scale in enumerate(scales, 1)
        ]

    healthy = health_of(tmp_path / "log", lines(55), now=108)
    assert kinds(healthy) == []
    health = health_of(tmp_path / "log", lines(70), now=138)
    assert kinds(health) == ["diverged"]
    assert "loss scale fell from 65536" in health.conditions[0].summary


def test_steps_that_are_all_skipped(tmp_path: Path) -> None:
    skip = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to "
    lines = steady(100)
    for n in range(101, 131):
        lines += [f"{skip}{2.0 ** (131 - n) * 4:.0f}\n", step_line(n * 2, n, 3.9)]
    health = health_of(tmp_path / "log", lines, now=260)
    assert kinds(health) == ["diverged"]
    assert "30 steps were skipped" in health.conditions[0].summary
    few = [*steady(100), f"{skip}32768\n", *steady(120)[100:]]
    assert kinds(health_of(tmp_path / "log", few, now=240)) == []


def test_a_job_that_will_not_finish_in_time(tmp_path: Path) -> None:
    lines = [*steady(500), "Saving model checkpoint to out/checkpoint-500\n", *steady(502)[500:]]
    left = (9000 - 502) * 2.0
    enough = WatchLimits(least_s=0.0, ends_at=START + 1004 + left + 600)
    assert kinds(health_of(tmp_path / "log", lines, now=1004, limits=enough)) == []
    short = enough._replace(ends_at=START + 1004 + left - 2400)
    health = health_of(tmp_path / "log", lines, now=1004, limits=short)
    assert kinds(health) == ["late"]
    assert health.conditions[0].short_by_s == pytest.approx(2400, abs=10)
    assert "will be killed 40 min" in health.conditions[0].summary
    assert health.checkpoint_line == 501


def test_a_run_that_ended_has_no_condition(tmp_path: Path) -> None:
    lines = [*steady(200), "Training completed.\n"]
    assert kinds(health_of(tmp_path / "log", lines, now=9000, written=400)) == []


def test_a_log_without_progress_has_none_either(tmp_path: Path) -> None:
    health = health_of(tmp_path / "log", ["hello\n"] * 50, now=9000, written=10)
    assert kinds(health) == []
    assert health.progress_at is None
