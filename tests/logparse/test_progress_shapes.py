"""The Metric Tracker on logs of every shape: random steps and intervals, the truth known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.jobs import Progress
from schedmate.logparse.progress.collect import find_table
from schedmate.logparse.progress.tracker import track
from schedmate.logparse.reading import LogFile
from schedmate.logparse.reading.storage import Memory

LINES = 60


class Row(NamedTuple):
    """What one line says: a counter, the time of one step, the elapsed time [s] and a loss."""

    i: int
    step: float
    elapsed: float
    loss: float


class Run(NamedTuple):
    """A run whose steps take `step` seconds, give or take, with a line every `every` steps."""

    step: float
    every: int
    seed: int
    total: int

    def rows(self) -> Iterator[Row]:
        noise = random.Random(self.seed)
        elapsed = 20.0
        for number in range(1, LINES + 1):
            step = self.step * noise.uniform(0.99, 1.01)
            elapsed += step * self.every
            yield Row(number * self.every, step, elapsed, noise.uniform(1, 3))

    def lines(self, shape: str) -> list[str]:
        return [shape.format(**self.words(row)) for row in self.rows()]

    def words(self, row: Row) -> dict[str, object]:
        stamp = datetime.fromtimestamp(1.7e9 + row.elapsed, UTC)
        return {
            "i": row.i, "n": self.total, "l": row.loss, "s": row.step, "ms": row.step * 1000,
            "r": 1 / row.step, "e": row.elapsed, "every": self.every,
            "all": row.step * self.every, "tps": 4096 / row.step, "tok": 4096 * row.i,
            "t": stamp.strftime("%Y-%m-%d %H:%M:%S"), "minute": stamp.strftime("%Y-%m-%d %H:%M"),
            "dots": stamp.strftime("I%m%d %H:%M:%S.%f"), "since": 1.7e9 + row.elapsed,
            "half": stamp.strftime("%m/%d/%Y %I:%M:%S %p"),
            "clock": str(timedelta(seconds=int(row.elapsed))),
            "left": str(timedelta(seconds=int((self.total - row.i) * self.step))),
        }  # fmt: skip


def progress_of(lines: list[str]) -> Progress:
    return track(LogFile("log", Memory(("\n".join(lines) + "\n").encode())))


RUNS = st.builds(
    Run,
    st.floats(1.5, 50),
    st.sampled_from([1, 5, 20, 100]),
    st.integers(0, 10_000),
    st.just(123_456),
)

STATED = [
    '{{"step": {i}, "train": {{"loss": {l:.4f}, "lr": 0.1}}, "time": {{"step_ms": {ms:.2f}}}}}',
    '{{"iteration": {i}, "metrics/loss": {l:.4f}, "perf/sec_per_step": {s:.5f}}}',
    '{{"loss": {l:.4f}, "train_speed(iter/s)": {r:.6f}, "global_step/max_steps": "{i}/{n}"}}',
    "step {i} loss {l:.3f} time for last {every} steps: {all:.3f}s",
    "step {i} loss {l:.3f} ({every} iters in {all:.3f} s)",
    "step {i} loss {l:.3f}, {all:.3f} seconds for {every} steps",
    "It took {all:.3f} s to train {every} batches. step {i} loss {l:.3f}",
    "step {i} loss {l:.3f} data {s:.1f}s fwd {s:.2f}s step {s:.5f}s",
    "Iteration {i} took {s:.5f} seconds, loss {l:.3f}",
    "globalStep={i} trainLoss={l:.4f} stepTimeMs={ms:.3f}",
    "第{i}步, 损失: {l:.4f}, 耗时: {s:.5f}秒/步",
    "Schritt {i}/{n}: Verlust {l:.4f}, {s:.5f} s/Schritt",
    "Paso {i} de {n}: pérdida {l:.4f}, {s:.5f} s/paso",
    "[{i}/{n}] loss {l:.3f} ({r:.6f} it/s)",
    "[{t}] Ep. 1 : Up. {i} : Sen. 32,000 : Cost 5.3 : Time {all:.2f}s : 5600.12 words/s",
    "1epoch:train:{i}-{i}batch: iter_time=1.2e-04, loss={l:.3f}, train_time={s:.4f}",
    "epoch: 1 step: {i}, loss is {l:.4f}\nepoch time: 99999.9 ms, per step time: {ms:.3f} ms",
    "iter: {i} / {n}, total loss: {l:.6f}\n >>> rpn_loss_cls: 0.1\nspeed: {s:.4f}s / iter",
    " {i} iter, 1 epoch / 20 epochs\n {r:.6f} iters/sec. Estimated time to finish: {left}.",
]
DERIVED = [
    ('{{"step": {i}, "loss": {l:.4f}, "elapsed_s": {e:.3f}}}', "elapsed"),
    ("step {i} | loss {l:.3f} | elapsed {clock}", "elapsed"),
    ('{{"ts": {since:.3f}, "step": {i}, "loss": {l:.4f}}}', "timestamps"),
    ("{t} step {i} loss {l:.3f}", "timestamps"),
    ("{half} - INFO - step {i} loss {l:.3f}", "timestamps"),
    ("step {i} loss {l:.3f} tokens {tok} tokens/s {tps:.6f}", "samples"),
    ("step {i}/{n} loss {l:.3f} eta {left}", "eta"),
]


@settings(max_examples=30)
@given(run=RUNS, shape=st.sampled_from(STATED))
def test_a_step_time_that_is_written_is_read(run: Run, shape: str) -> None:
    progress = progress_of(run.lines(shape))

    assert progress.step_time_s == pytest.approx(run.step, rel=0.04)
    assert progress.source == "stated"


@settings(max_examples=20)
@given(run=RUNS, shape=st.sampled_from(DERIVED))
def test_what_is_not_written_is_worked_out(run: Run, shape: tuple[str, str]) -> None:
    text, source = shape
    progress = progress_of(run.lines(text))

    assert progress.step_time_s == pytest.approx(run.step, rel=0.05)
    assert progress.source == source
    assert progress.iteration == LINES * run.every


@settings(max_examples=20)
@given(
    run=RUNS,
    between=st.sampled_from([",", ", ", "\t", " | ", "   ", "; "]),
    count=st.sampled_from(["step", "Iteration", "global_step", "Batch"]),
    time=st.sampled_from(["step_time", "sec/step", "ms_per_step", "elapsed_sec", "it/s"]),
    before=st.lists(st.sampled_from(["lr", "acc", "grad_norm"]), max_size=2, unique=True),
)
def test_the_columns_of_a_table_are_named_by_its_head(
    run: Run, between: str, count: str, time: str, before: list[str]
) -> None:
    def cell(row: Row) -> float:
        of = {"ms_per_step": row.step * 1000, "elapsed_sec": row.elapsed, "it/s": 1 / row.step}
        return of.get(time, row.step)

    rows = [
        [str(row.i), *["0.5"] * len(before), f"{row.loss:.4f}", f"{cell(row):.5f}"]
        for row in run.rows()
    ]
    head = [count, *before, "loss", time]
    progress = progress_of(["reading data", *(between.join(cells) for cells in [head, *rows])])

    assert progress.step_time_s == pytest.approx(run.step, rel=0.04)
    assert (progress.iteration, progress.loss) == (
        LINES * run.every,
        pytest.approx(float(rows[-1][-2])),
    )


SILENT: list[Callable[[Run], list[str]]] = [
    lambda run: run.lines("{t} Evaluation step {i}/{n} loss {l:.3f} time {s:.3f}s"),
    lambda run: run.lines("{t} INFO request {i} served in {ms:.1f} ms"),
    lambda run: run.lines("{t} tokenized {i}/{n} documents ({r:.2f} docs/s)"),
    lambda run: run.lines("| {i:>7} | {l:.4f} | 0.0001 | {s:.5f} |"),
    lambda run: run.lines("[CV {i}/5] END learning_rate=0.1;, score=0.9 total time= {s:.1f}s"),
    lambda run: run.lines("{i}/{n} [====>.....] - ETA: 10s - loss: {l:.4f} - accuracy: 0.5"),
    lambda run: run.lines("tick {i} kimg {i}.0 time {clock} sec/tick {s:.4f} sec/kimg 3.2"),
    lambda run: run.lines("iter: {i}, loss: {l:.3f}, 5.1 images/sec"),
    lambda run: [f"id,name,time\n{row.i},x,{row.step:.3f}" for row in run.rows()],
    lambda run: ["model,step,loss"] + [f"a{row.i},final,{row.loss}" for row in run.rows()],
    lambda run: [
        f"2024-01-01 10:{at % 60:02}:00 Step {at % 7 + 1}: {'abcdefg'[at % 7] * 5} the data"
        for at in range(50)
    ],
]


@settings(max_examples=20)
@given(run=RUNS, silent=st.sampled_from(SILENT))
def test_what_is_no_training_or_has_no_time_gets_none(
    run: Run, silent: Callable[[Run], list[str]]
) -> None:
    assert progress_of(silent(run)).abstained


def test_minutes_are_enough_for_slow_steps() -> None:
    run = Run(95.0, 1, 7, 123_456)

    assert progress_of(run.lines("{minute} step {i} loss {l:.3f}")).step_time_s == pytest.approx(
        95, rel=0.05
    )


def test_the_time_of_an_epoch_tells_one_step_from_many() -> None:
    def lines(epoch_s: float) -> list[str]:
        steps = [f"Epoch 1 | Step {n}/600 | Loss: 0.5 | Time: 0.523s" for n in range(0, 600, 10)]
        return [*steps, f"Epoch 1 completed in {epoch_s}s | Avg Loss: 0.4"]

    assert progress_of(lines(350.0)).step_time_s == 0.523
    assert progress_of(lines(35.0)).abstained


def test_a_mean_since_the_start_gives_way_to_what_passed_since() -> None:
    slow = [(n, 5.0 * n) for n in range(1, 21)]
    fast = [(n, 100.0 + 2.0 * (n - 20)) for n in range(21, 80)]
    lines = [f"step {n} loss 1.0 sec/step {e / n:.4f} elapsed: {e:.1f}s" for n, e in [*slow, *fast]]
    progress = progress_of(lines)

    assert progress.step_time_s == pytest.approx(2.0)
    assert progress.source == "elapsed"


def test_a_bar_as_long_as_the_run_has_epochs_counts_them() -> None:
    lines = []
    for epoch in range(1, 41):
        lines += [
            f"epoch: {epoch}, loss: 0.{epoch}",
            f" {epoch}% {epoch}/40 [10:00<10:00, 30.00s/it]",
        ]
    progress = progress_of(lines)

    assert progress.abstained
    assert (progress.epoch_time_s, progress.epoch, progress.total_epochs) == (30, 40, 40)


def test_a_bar_of_the_validation_is_not_that_of_training() -> None:
    lines = []
    for epoch in range(1, 5):
        for name, rate in (("Train", 4.0), ("Val", 40.0)):
            lines += [
                f"Epoch {epoch}/9 [{name}]: {n}%|# | {n}/100 [00:10<00:14, {rate}it/s, loss=0.5]"
                for n in range(1, 100)
            ]

    assert progress_of(lines).step_time_s == 0.25


def test_a_run_that_was_started_anew_is_measured_alone() -> None:
    clock = iter(range(0, 10_000, 60))
    lines = [f"2024-01-01 00:00:{next(clock) % 60:02} Train 1/1673 | loss: 9.8" for _ in range(3)]
    lines += ["2024-01-01 01:00:07 Train 1/1673 | loss: 9.8"]
    lines += ["2024-01-01 01:02:07 Train 401/1673 | loss: 7.8"]

    assert progress_of(lines).step_time_s == pytest.approx(0.3)


def test_a_counter_that_runs_on_over_epochs_is_not_multiplied_by_them() -> None:
    lines = [
        f"2024-01-01 {n // 60:02}:{n % 60:02}:00 Epoch {n // 10} | step {n * 100}/60000 | loss=0.5"
        for n in range(1, 300)
    ]
    progress = progress_of(lines)

    assert (progress.iteration, progress.total_iterations) == (29_900, 60_000)


@given(st.text(alphabet="ab1,|;\t\n -.:", max_size=200))
def test_no_text_breaks_the_search_for_a_table(text: str) -> None:
    table = find_table(LogFile("log", Memory(text.encode())))

    assert table is None or len(table.names) >= 2


def test_samples_are_no_steps() -> None:
    lines = [
        f"2024-01-01 00:{n // 60:02}:{n % 60:02} loss: 0.5  accuracy: 92.0 [{n * 20_000}/154892]"
        for n in range(1, 60)
    ]

    assert progress_of(lines).abstained


def test_a_counter_given_as_a_range_is_at_its_end() -> None:
    run = Run(2.0, 20, 3, 0)
    progress = progress_of(run.lines("{t} INFO - Epoch[4] Batch [0-{i}] Speed: 25.7 samples/sec"))

    assert progress.step_time_s == pytest.approx(2.0, rel=0.04)
    assert progress.iteration == LINES * 20


def test_the_loss_of_a_step_is_what_follows_it() -> None:
    progress = progress_of(Run(2.0, 1, 3, 0).lines("{t}: Loss at step {i}: {l:.4f}"))

    assert progress.loss is not None
    assert 1 <= progress.loss <= 3


def test_what_each_device_gets_times_the_devices_is_the_batch() -> None:
    lines = [f"Epoch[3] Batch [{n}] Speed: 512.0 samples/sec loss=0.5" for n in range(40)]
    head = "Namespace(batch_size=32, dtype='float16', num_gpus=8)"

    assert progress_of([head, *lines]).step_time_s == pytest.approx(0.5)
    assert progress_of([head.replace("num_gpus=8", "gpus='0,1'"), *lines]).abstained


def test_a_counter_that_its_bar_draws_on_its_own_tells_one_loop_from_another() -> None:
    text = b""
    for epoch in range(2):
        text += f"Epoch: {epoch}\n".encode()
        for total, time in ((391, "1s41ms"), (100, "14ms")):
            for n in range(total):
                stats = f" [==>...]  Step: {time} | Tot: 3s | Loss: 2.2 | Acc: 9% ({n}/{n * 128})"
                text += stats.encode() + b"\b" * 80 + f" {n + 1}/{total} ".encode() + b"\r"
            text += b"\n"
    progress = track(LogFile("log", Memory(text)))

    assert progress.step_time_s == pytest.approx(1.041)
    assert (progress.iteration, progress.total_iterations) == (391, 391)


def test_a_timestamp_behind_dots_is_one() -> None:
    lines = Run(2.0, 1, 3, 0).lines("....{dots}    39 Trainer.cpp:165]  Batch={i} AvgCost=13.2")

    assert progress_of(lines).step_time_s == pytest.approx(2.0, rel=0.04)
