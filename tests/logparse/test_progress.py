"""The Metric Tracker: lines of known and unknown shapes, units, whole logs, slowdowns."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.data import load
from schedmate.jobs import Progress
from schedmate.logparse.numbers import read_clock
from schedmate.logparse.progress.collect import collect
from schedmate.logparse.progress.line import read_line
from schedmate.logparse.progress.ratio import throughput_ratio
from schedmate.logparse.progress.series import Tick, pace, typical
from schedmate.logparse.progress.tracker import track
from schedmate.logparse.reading import LogFile, parse_line
from schedmate.logparse.reading.storage import Memory

PATTERNS = load("logparse/progress/patterns.yaml")


def progress_of(*lines: str, **options: int) -> Progress:
    return track(LogFile("log", Memory(("\n".join(lines) + "\n").encode())), **options)


def said(line: str) -> dict[str, float]:
    sample = read_line(parse_line(line.encode(), 1).text)
    names = () if sample is None else sample.__slots__
    values = {name: getattr(sample, name) for name in names}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and name not in ("offset", "again", "wording", "grain", "loss_rank")
    }


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern["name"])
def test_every_known_shape_is_read_from_its_example(pattern: dict) -> None:
    sample = read_line(parse_line(pattern["example"].encode(), 1).text)

    if pattern.get("ignore"):
        assert sample is None
        return
    assert sample is not None
    assert sample.reader == pattern["name"]
    log = LogFile("log", Memory(pattern["example"].encode()))
    assert [one.reader for one in collect(log)] == [sample.reader], "passed over"
    for name, value in pattern["says"].items():
        assert getattr(sample, name) == pytest.approx(value), name


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        (name, fact)
        for name, facts in load("logparse/progress/facts.yaml").items()
        for fact in facts
    ],
    ids=lambda value: str(value)[:40],
)
def test_every_fact_is_found_in_its_example(name: str, fact: dict) -> None:
    match = re.search(fact["pattern"], fact["example"], re.IGNORECASE | re.MULTILINE)

    assert match
    assert name in ("speaks", "distributed") or any(match.groups())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "2026-01-15 08:00:31,560 - X - INFO - Epoch 59 [440/445] Loss: 1.03 (Cls: 0.1)",
            {"epoch": 59, "iteration": 440, "total": 445, "loss": 1.03},
        ),
        ("s:19559 trl:3.22 lr:0.5 norm:0.22", {"iteration": 19559, "loss": 3.22, "lr": 0.5}),
        (
            "INFO:root:[Epoch 199] train=0.99 loss=0.0029 time: 56.25",
            {"epoch": 199, "loss": 0.0029, "epoch_time_s": 56.25},
        ),
        (
            "Epoch[139] Batch [499]\tSpeed: 1365.5 samples/sec\tloss=0.0003",
            {"epoch": 139, "iteration": 499, "samples_per_s": 1365.5, "loss": 0.0003},
        ),
        (
            "step 100/1000 损失: 0.53 每步耗时: 0.35秒",
            {"iteration": 100, "total": 1000, "loss": 0.53, "step_time_s": 0.35},
        ),
        (
            "эпоха 3 шаг 100 потери 0.5 время 350ms",
            {"epoch": 3, "iteration": 100, "loss": 0.5, "step_time_s": 0.35},
        ),
        (
            '{"step": 10, "loss": 2.3, "tokens_per_second": 120.5, "step_time_ms": 350}',
            {"iteration": 10, "loss": 2.3, "tokens_per_s": 120.5, "step_time_s": 0.35},
        ),
        (
            "100/600 ━━━━━━━━━━ 10s 20ms/step - accuracy: 0.5 - loss: 0.75",
            {"iteration": 100, "total": 600, "loss": 0.75, "step_time_s": 0.02},
        ),
        (
            "update 3,000 of 10,000: train/loss 1.5 steps/s 4.0 remaining 1:02:03",
            {"iteration": 3000, "total": 10000, "loss": 1.5, "step_time_s": 0.25, "eta_s": 3723},
        ),
        (
            "[3/100], [10/500], global_step: 110, speed: 12.5 samples/sec, loss: 0.5, time:0.25",
            {
                "epoch": 3, "total_epochs": 100, "iteration": 110, "loss": 0.5,
                "samples_per_s": 12.5, "step_time_s": 0.25,
            },
        ),
        ("reinforce step 3/100 time: 0:01:05 (0.65 sec/step)",
         {"iteration": 3, "total": 100, "step_time_s": 0.65}),
        ("[I] Trainer: 1200/40000 | 3% | loss=2.1 | 1.3 s/iter | ETA 14:02:11",
         {"iteration": 1200, "total": 40000, "loss": 2.1, "step_time_s": 1.3, "eta_s": 50531}),
        ("epoch  13  K= 7  loss=5.0e-04  v1=0.01352  (5.0s)",
         {"epoch": 13, "loss": 5.0e-4, "epoch_time_s": 5.0}),
        ("iteration: 10/500 2% | elapsed time: 00:01:05 | per_token_loss: 3.25 | lr: 0.1",
         {"iteration": 10, "total": 500, "elapsed_s": 65, "loss": 3.25, "lr": 0.1}),
        ("step 3 G_loss: 1.5 D_loss: 0.5 total loss: 2.0", {"iteration": 3, "loss": 2.0}),
        ("current step: 12th step", {"iteration": 12}),
        ("step 10 of 3: loss 0.5", {"iteration": 10, "loss": 0.5}),
        ("iter: 5  loss: nan  sec/iter: 2.5", {"iteration": 5, "step_time_s": 2.5}),
        (
            "Epoch 3:  42%|####  | 42/100 [00:10<00:14,  4.00it/s, loss=0.5, v_num=0]",
            {
                "epoch": 3, "iteration": 42, "total": 100, "elapsed_s": 10, "eta_s": 14,
                "step_time_s": 0.25, "loss": 0.5,
            },
        ),
        ("18748it [06:34,  8.36s/it]", {"iteration": 18748, "step_time_s": 8.36, "elapsed_s": 394}),
        (
            "Epochs:  30%|###   | 3/10 [10:00<23:20, 200.0s/epoch]",
            {"epoch": 3, "total_epochs": 10, "epoch_time_s": 200, "eta_s": 1400},
        ),
    ],
)  # fmt: skip
def test_shapes_never_seen_are_read_by_labels_and_units(line: str, expected: dict) -> None:
    found = {name: value for name, value in said(line).items() if value == value}

    assert found == pytest.approx(expected)


NOT_TRAINING = [
    "Evaluating:  42%|####  | 42/100 [00:10<00:14,  4.00it/s]",
    "Map (num_proc=8):  42%|####  | 4200/10000 [00:10<00:14,  400.00 examples/s]",
    "Downloading model.safetensors:  42%|####  | 4.2G/10.0G [00:10<00:14, 400MB/s]",
    "Preloading the dataset:  33%|###  | 7291/21944 [01:03<01:14, 196.81it/s]",
    "Loading checkpoint shards:  50%|#####  | 1/2 [00:10<00:10, 10.0s/it]",
    "Eval step 10/100 time 0.2 loss 2.0",
    "Test: [ 10/196]\tTime  0.312 ( 0.500)\tLoss 6.9e+00 (7.0e+00)",
    "{'eval_loss': 0.5, 'eval_runtime': 12.3, 'eval_steps_per_second': 3.1, 'epoch': 1.0}",
    "Processed 1000/50000 documents in 3.2s (312 docs/s)",
    '10.0.0.1 - - [10/Oct/2024:13:55:36 +0000] "GET /step/3 HTTP/1.1" 200 2326 0.035',
    'INFO: 127.0.0.1:50234 - "POST /v1/completions HTTP/1.1" 200 OK in 0.5s',
    "[2024-10-10 12:00:00] worker 3/8 ready in 2.5 s",
    "I tensorflow/core/x.cc:247] PoolAllocator: After 270 get requests, put_count=27 rate=0.1",
    "  ttt_chunk [1893/1893] bpb=0.996498 time=563.8s",
    "NCCL INFO Channel 00/02 : 0 1 2 3",
    "Copying 3/10 files, 1.5 s/file",
]


@pytest.mark.parametrize("line", NOT_TRAINING)
def test_what_is_no_training_is_none(line: str) -> None:
    progress = progress_of(*[line] * 50)

    assert progress.abstained
    assert progress.iteration is None
    assert progress.reason == "no line of the log shows training progress"


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(1.7e9 + seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def test_differences_of_timestamps_where_nothing_states_a_time() -> None:
    lines = [f"{stamp(n * 8.1)} Epoch 2 [{n * 10}/445] Loss: 1.{n:02}" for n in range(40)]
    progress = progress_of(*lines)

    assert progress.step_time_s == pytest.approx(0.81, rel=0.02)
    assert progress.source == "timestamps"
    assert (progress.epoch, progress.iteration, progress.loss) == (2, 390, 1.39)
    assert progress.in_epoch
    assert progress.eta_s is None


def test_a_rising_time_is_the_elapsed_time() -> None:
    lines = [f"iter {n * 10} loss 2.5 time {n * 3.5 + 20:.1f}s" for n in range(1, 40)]
    progress = progress_of(*lines)

    assert progress.step_time_s == pytest.approx(0.35)
    assert progress.source == "elapsed"


def test_a_time_between_two_lines_is_told_from_that_of_a_step_by_the_timestamps() -> None:
    lines = [f"{stamp(n * 35)} step {n * 100} loss 2.5 time 35.{n % 10}" for n in range(1, 40)]
    progress = progress_of(*lines)

    assert progress.step_time_s == pytest.approx(0.353, rel=0.02)
    assert "the time stated is that of 100 iterations" in progress.notes


def test_a_time_without_unit_is_milliseconds_where_the_timestamps_say_so() -> None:
    lines = [f"{stamp(n * 3.5)} step {n * 10} loss 2.5 step_time: 35{n % 10}" for n in range(1, 60)]
    progress = progress_of(*lines)

    assert progress.step_time_s == pytest.approx(0.354, rel=0.02)
    assert progress.notes == ["times without unit are milliseconds, as the timestamps show"]


def test_a_large_time_without_unit_is_not_guessed() -> None:
    assert progress_of(*[f"step {n} loss 2.5 step_time: 350" for n in range(60)]).abstained


def test_a_time_of_one_or_of_many_iterations_is_not_guessed() -> None:
    each = [f"ep: 0, batch: {n}, time: 8.5, loss: 10.9" for n in range(1, 61)]
    some = [f"ep: 0, batch: {n * 20}, time: 8.5, loss: 10.9" for n in range(1, 61)]
    left = [
        f"step {n * 20}/2000, time: 8.5s, loss: 10.9, eta {(2000 - n * 20) * 8.5:.0f}s"
        for n in range(1, 61)
    ]

    assert progress_of(*each).step_time_s == 8.5
    assert progress_of(*some).abstained
    assert progress_of(*left).step_time_s == 8.5


def test_samples_per_second_need_a_batch_size() -> None:
    lines = [f"Epoch[3] Batch [{n}] Speed: 512.0 samples/sec loss=0.5" for n in range(40)]

    assert progress_of(*lines).abstained
    assert progress_of(*lines).throughput == 512
    assert progress_of(*lines, batch=256).step_time_s == pytest.approx(0.5)
    assert progress_of("Total train batch size = 128", *lines).step_time_s == pytest.approx(0.25)


def test_first_steps_and_stalls_do_not_count() -> None:
    times = [45.0, 9.0] + [2.0, 2.1, 1.9] * 9 + [60.0, 2.0]
    lines = [f"step {n} loss 1.5 step_time {t} s" for n, t in enumerate(times)]
    progress = progress_of(*lines)

    assert progress.step_time_s == 2.0
    assert progress.readings == 28


def test_an_evaluation_at_the_end_does_not_hide_the_training() -> None:
    steps = [f" {n}%|##  | {n}/100 [00:10<00:14,  7.00s/it]" for n in range(1, 100)]
    evaluation = [f"Evaluating: {n}%|#  | {n}/100 [00:10<00:14, 20.00it/s]" for n in range(100)]
    progress = progress_of("Start training", "\r".join(steps), "\r".join(evaluation * 20))

    assert (progress.step_time_s, progress.iteration, progress.lines) == (7.0, 99, [2])


def test_of_nested_bars_without_a_name_the_longer_one_is_the_training() -> None:
    within = [f" {n}%|##  | {n}/31 [00:0{n // 4}<00:04, 4.00it/s]" for n in range(1, 31)]
    steps = [f" {n}% {n}/100 [{n // 60:02}:{n % 60:02}<01:00,  7.00s/it]" for n in range(1, 100)]
    progress = progress_of("Training", "\r".join(steps), *["\r".join(within)] * 3)

    assert (progress.step_time_s, progress.iteration, progress.total_iterations) == (7.0, 99, 100)


def test_all_redraws_of_one_line_are_readings() -> None:
    rates = [9.0, 2.0, 2.1, 2.0, 1.9, 2.0, 5.5]
    bar = [f"Training: 1%|# | {n}/900 [00:10<00:14, {r}s/it]" for n, r in enumerate(rates)]
    progress = progress_of("\r".join(bar))

    assert (progress.step_time_s, progress.readings) == (2.0, 6)


def test_a_counter_without_a_name_is_one_that_rises_evenly() -> None:
    def lines(count: Callable[[int], int]) -> list[str]:
        return [
            f"INFO - {stamp(n * 20)} - {count(n)} - 328.59 equations/s - LR: 1e-04"
            for n in range(40)
        ]

    assert progress_of(*lines(lambda n: 200 * n)).step_time_s == pytest.approx(0.1)
    assert progress_of(*lines(lambda n: 200 * n)).iteration == 7800
    assert progress_of(*lines(lambda n: n * n % 7)).abstained


def test_a_meter_with_its_mean_is_that_of_one_step() -> None:
    lines = [f"Epoch: [1][{n * 10}/480] Time 0.543 (0.528) Loss 1.8 (2.1)" for n in range(40)]

    assert progress_of(*lines).step_time_s == 0.543


@pytest.mark.parametrize("after", [True, False])
def test_counter_and_time_on_lines_of_their_own_are_joined(after: bool) -> None:
    lines: list[str] = []
    for n in range(1, 40):
        pair = [f"iteration {n}", "loss: 2.5", f"step time: {340 + n % 3} ms"]
        lines += pair if after else pair[::-1]
    progress = progress_of(*lines)

    assert progress.step_time_s == pytest.approx(0.341)
    assert (progress.iteration, progress.loss) == (39, 2.5)


def test_the_steps_of_a_recipe_in_a_text_have_no_time() -> None:
    text = ["Step 1: add the distances", "Time: 180 miles", "Step 2: divide", "Time: 2 hours"]

    assert progress_of(*text * 30).abstained


def test_a_rate_of_the_whole_run_is_a_summary() -> None:
    progress = progress_of(
        "{'loss': 0.41, 'learning_rate': 4.9e-05, 'epoch': 0.9}",
        "{'train_runtime': 20909.3, 'train_steps_per_second': 1.913, 'epoch': 1.0}",
    )

    assert progress.step_time_s == pytest.approx(1 / 1.913)
    assert progress.source == "summary"
    assert progress_of("{'train_runtime': 273.0, 'train_steps_per_second': 0.007}").abstained


def test_a_fast_bar_without_a_name_is_no_training() -> None:
    bar = [f" {n}%|##  | {n}/100 [00:10<00:14, 450.00it/s]" for n in range(1, 100)]
    named = [f"Epoch 1: {n}%|##  | {n}/100 [00:10<00:14, 450.00it/s]" for n in range(1, 100)]

    assert progress_of("\r".join(bar)).abstained
    assert progress_of("\r".join(named)).step_time_s == pytest.approx(1 / 450)


def test_epochs_and_their_length_make_a_run() -> None:
    lines = [
        f"Epoch [{epoch}/10], Step [{step}/600], Loss: 0.5, step time: 0.5s"
        for epoch in range(1, 4)
        for step in range(100, 700, 100)
    ]
    progress = progress_of(*lines)

    assert (progress.iteration, progress.total_iterations) == (1800, 6000)
    assert progress.eta_s == pytest.approx(2100)


def test_ranks_that_say_the_same_are_one_job() -> None:
    lines = [
        f"[rank{rank}]: {stamp(n * 2)} step {n} loss 0.{n % 9}"
        for n in range(1, 80)
        for rank in range(4)
    ]

    assert progress_of(*lines).step_time_s == pytest.approx(2.0)


def test_a_run_that_ended_says_how_long_it_took() -> None:
    progress = progress_of(
        "  Total optimization steps = 16",
        "{'train_runtime': 919.2, 'train_samples_per_second': 1.1, 'train_steps_per_second': 0.02}",
    )

    assert progress.step_time_s == pytest.approx(57.45)
    assert progress.source == "summary"


@given(
    step=st.floats(0.002, 300),
    every=st.sampled_from([1, 10, 50]),
    seed=st.integers(0, 99),
    shape=st.sampled_from(
        [
            "iter {i}/{n} loss {l:.4f} iter time {ms:.2f}ms",
            "[{i}/{n}] loss={l:.4f} step_time={s:.6f}s lr=1e-4",
            "global_step: {i} | train_loss: {l:.4f} | it/s: {r:.8f}",
            "Schritt {i} von {n}, Verlust: {l:.4f}, {s:.6f} s/step",
            "{{'step': {i}, 'loss': {l:.4f}, 'sec_per_step': {s:.6f}}}",
            "{t} INFO step={i} loss={l:.4f} elapsed: {e:.3f}s",
            "train | epoch 1 | {i}/{n} batches | lr 0.1 | ms/batch {ms:.3f} | loss {l:.3f}",
        ]
    ),
)
def test_the_step_time_that_was_written_is_read(
    step: float, every: int, seed: int, shape: str
) -> None:
    noise = random.Random(seed)
    elapsed, lines = 30.0, []
    for number in range(1, 80):
        now = step * noise.uniform(0.99, 1.01)
        elapsed += now * every
        lines.append(
            shape.format(
                i=number * every, n=100_000, l=noise.uniform(1, 3), ms=now * 1000, s=now,
                r=1 / now, e=elapsed, t=stamp(elapsed),
            )
        )  # fmt: skip
    progress = progress_of(*lines)

    assert progress.step_time_s == pytest.approx(step, rel=0.03)
    assert progress.iteration == 79 * every


@given(st.lists(st.text(alphabet="0123456789 abeilnopst/:=[]{}|%,.'\"-<>\r\n", max_size=60)))
def test_noise_is_survived(lines: list[str]) -> None:
    progress = progress_of(*lines)

    assert progress.step_time_s is None or progress.step_time_s > 0


def test_a_log_without_lines_of_training_is_nothing_to_track() -> None:
    progress = progress_of("loading modules", "done")

    assert progress == Progress(
        reason="no line of the log shows training progress", log_bytes=progress.log_bytes
    )


def test_only_what_comes_later_is_read() -> None:
    old = [f"step {n} loss 1 step_time 1.0 s" for n in range(50)]
    before = progress_of(*old)
    lines = [*old, *(f"step {n} loss 1 step_time 2.0 s" for n in range(50, 90))]
    after = progress_of(*lines, since=before.log_bytes)

    assert (before.step_time_s, after.step_time_s, after.steps_seen) == (1.0, 2.0, 40)
    slowdown = throughput_ratio(before, after)
    assert slowdown.ratio == 0.5
    assert slowdown.slowed
    assert slowdown.confidence is not None
    assert slowdown.confidence > 0.95


def test_nothing_is_said_of_a_job_that_warms_up() -> None:
    def window(steps: int, seconds: float) -> Progress:
        return Progress(step_time_s=seconds, readings=10, steps_seen=steps)

    early = throughput_ratio(window(500, 1.0), window(12, 3.0))
    assert (early.ratio, early.slowed) == (None, None)
    assert early.reason == "only 12 of 30 iterations since the change: warming up"
    assert throughput_ratio(window(500, 1.0), window(60, 1.3)).slowed is False
    assert throughput_ratio(window(500, 1.0), Progress(reason="why")).reason == (
        "no step time after the change: why"
    )


def test_near_the_threshold_one_is_less_sure() -> None:
    def confidence(seconds: float, spread: float) -> float:
        windows = [
            Progress(
                step_time_s=value, readings=20, steps_seen=100,
                step_time_p10_s=value * (1 - spread), step_time_p90_s=value * (1 + spread),
            )
            for value in (1.0, seconds)
        ]  # fmt: skip
        found = throughput_ratio(*windows).confidence
        assert found is not None
        return found

    assert confidence(1 / 0.65, 0.1) == pytest.approx(0.5, abs=0.01)
    assert confidence(1.4, 0.1) < confidence(1.2, 0.1)
    assert confidence(1.4, 0.5) < confidence(1.4, 0.05)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40))
def test_a_median_stays_among_its_readings(readings: list[float]) -> None:
    found = typical(readings)

    assert found is not None
    assert min(readings) <= found.p10 <= found.median <= found.p90 <= max(readings)


def test_a_coarse_clock_and_a_counter_that_begins_anew() -> None:
    ticks = [Tick(float(int(n * 0.3)), n % 100) for n in range(400)]
    found = pace(ticks)

    assert found is not None
    assert found.median == pytest.approx(0.3, rel=0.05)


def test_an_evaluation_between_epochs_does_not_count() -> None:
    # four steps of 10 s an epoch, then 100 s of evaluation
    ticks = [Tick(n * 10.0 + n // 4 * 100, n, epoch=n // 4) for n in range(40)]
    found = pace(ticks)
    assert found is not None
    assert found.median == found.p90 == 10.0
    only = pace([Tick(n * 60.0, n * 600, epoch=n) for n in range(10)])
    assert only is not None
    assert only.median == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("02:03", 123), ("1:02:03", 3723), ("1 day, 2:03:04", 93784), ("2h3m4s", 7384)],
)
def test_clocks(text: str, seconds: float) -> None:
    assert read_clock(text) == seconds


@pytest.mark.parametrize(
    "bar",
    [
        "100%|###| 93/93 [01:01<00:00,  1.50it/s]",  # some files
        "prompt_batches:  33%|###   | 2/6 [00:04<00:07,  1.78s/it]",
        "scipy-1.7.3 | 21.8 MB | : 100% 1.0/1 [20:03<00:00, 1203.06s/it]",
        "train: Caching images (0.1GB ram): 100% 128/128 [00:01<00:00, 64.35it/s]",
    ],
)
def test_a_brief_bar_is_training_only_where_something_else_speaks_of_it(bar: str) -> None:
    assert progress_of(bar).abstained


def test_a_brief_bar_beside_losses_is_training() -> None:
    bar = "100%|###| 93/93 [01:01<00:00,  1.50it/s]"

    assert progress_of(bar, "{'loss': 0.5, 'epoch': 1.0}").step_time_s == pytest.approx(1 / 1.5)
    assert progress_of(bar, "epoch 9: {'accuracy': 0.88}").step_time_s == pytest.approx(1 / 1.5)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["12%|", "/", "[", "00:", ":", "<", ",", "s/it", "it/s", "]", "k", "|"]
            ),
            st.text(max_size=4),
            st.from_regex(r"[\d.]{1,4}", fullmatch=True),
        ),
        max_size=14,
    ),
)
def test_no_line_is_too_odd_to_be_read(pieces: list[str]) -> None:
    read_line("".join(pieces))


def test_a_nameless_duration_that_rises_is_what_has_passed() -> None:
    lines = [f"step {n:6} | loss 3.40 | best 2.7 | {100 + n * 0.5:.1f}s" for n in range(0, 400, 10)]

    assert progress_of(*lines).step_time_s == pytest.approx(0.5)
    assert progress_of(*["so 3s + 12 = 2s + 24 and s = 12"] * 9).abstained


def test_steps_by_the_names_of_checkpoints() -> None:
    lines = [
        f"09/05/2022 18:{n:02}:26 - INFO - Saving model checkpoint to out/checkpoint-{n}00"
        for n in range(10, 40)
    ]

    assert progress_of(*lines).step_time_s == pytest.approx(0.6)


def test_a_time_since_the_line_before_is_shared_by_its_steps() -> None:
    lines = [f"INFO:tensorflow:loss = 0.5, step = {n} (144.0 sec)" for n in range(0, 3000, 100)]

    assert progress_of(*lines).step_time_s == pytest.approx(1.44)


def test_the_first_line_of_an_epoch_pays_for_starting_it() -> None:
    lines = [
        line
        for epoch in range(1, 5)
        for n, time in ((100, 0.0964), (200, 0.0331))
        for line in (
            f"\titers: {n}, epoch: {epoch} | loss: 0.2311743",
            f"\tspeed: {time}s/iter; left time: {1000 * time}s",
        )
    ]
    progress = progress_of(*lines)

    assert progress.step_time_s == pytest.approx(0.0331)
    assert progress.eta_s == pytest.approx(33.1)


def test_what_is_done_to_batches_may_be_no_training() -> None:
    chinese = [f"2026-01-27 15:28:{n:02} - 批次 {n} 处理完成 成功识别: 12 个" for n in range(60)]
    english = [f"2026-01-27 15:28:{n:02} - batch {n} processed" for n in range(60)]

    assert progress_of(*chinese).abstained
    assert progress_of(*english).abstained


def test_coarse_times_give_way_to_timestamps() -> None:
    lines = [
        f"2023-07-15 13:{n:02}:53,546 - Iter {n * 10_000}/800000 Loss: 0.8595 Time: 0.007"
        for n in range(40)
    ]

    assert progress_of(*lines).step_time_s == pytest.approx(0.006)


def test_a_counter_in_brackets() -> None:
    lines = [
        f"I1217 10:{n:02}:09.436944 1370963 train.py:298] [{n}000] | gnorm  1.1 | loss  5.55"
        for n in range(10, 40)
    ]

    assert progress_of(*lines).step_time_s == pytest.approx(0.06)
    assert progress_of(*[f"{n} 0.71{n % 9} secs per iter" for n in range(0, 900, 25)]).step_time_s


def test_ranks_in_one_file_do_not_take_each_others_place() -> None:
    lines = [
        f"[rank{rank}]: 2025-01-02 10:{n // 60:02}:{n % 60:02},{rank:03} step {n} loss 0.5 lr 1e-4"
        for n in range(120)
        for rank in range(64)
    ]
    progress = progress_of(*lines)

    assert progress.step_time_s == pytest.approx(1.0)


def test_epochs_that_say_no_more_are_no_epochs_of_this_job() -> None:
    lines = [f"2025-06-15 14:{n:02}:58 - Model: fast_scnn, From Epoch: {n}" for n in range(40)]

    assert progress_of(*lines).epoch_time_s is None
    assert progress_of(*lines).epoch is None


def test_the_time_of_several_epochs_is_not_that_of_one() -> None:
    lines = [
        f"2019-03-08 10:{n:02}:55: Epoch {20 * n}: Train loss = 0.55 (60.0 sec)" for n in range(40)
    ]

    assert progress_of(*lines).epoch_time_s == pytest.approx(3.0)


def test_a_log_without_years_does_not_say_when() -> None:
    lines = [f"12-17 10:{n:02}:09 step {n} loss 0.5" for n in range(40)]

    assert progress_of(*lines).step_time_s == pytest.approx(60.0)
    assert progress_of(*lines).updated is None


def test_losses_with_a_step_time_need_no_counter() -> None:
    chinese = progress_of(*["训练 步数: 10 损失: 1.2 每步耗时: 0.35秒"] * 30)

    assert progress_of(*["loss: 1.2 | step time: 2 s | lr 0.1"] * 30).step_time_s == 2
    assert (chinese.step_time_s, chinese.iteration) == (0.35, 10)
    assert progress_of(*["loss: 1.2 | took 350 ms"] * 30).abstained


def test_of_two_counters_in_a_line_the_inner_one_begins_anew() -> None:
    lines = [
        f"{stamp(n * 7)} iteration:{n * 100 // 29} step:{n * 100 % 29}/29, NER loss: 0.5"
        for n in range(1, 40)
    ]

    assert progress_of(*lines).step_time_s == pytest.approx(0.07, rel=0.02)


def test_a_time_of_day_without_a_name_is_a_clock() -> None:
    lines = [f"{n * 100} it | loss 2.5 | mark 11:{n // 4:02}:{n % 4 * 15:02}" for n in range(1, 40)]

    assert progress_of(*lines).step_time_s == pytest.approx(0.15)


def test_a_time_without_a_name_that_is_steady_is_nothing() -> None:
    lines = [f"step {n * 100} loss 2.5 foo 1.{n % 7} s" for n in range(40)]

    assert progress_of(*lines).abstained


def test_steps_cannot_take_longer_than_the_timestamps_show() -> None:
    lines = [f"{stamp(n * 10)} step {n * 20} loss 2.5 step time 10.0 s" for n in range(40)]
    progress = progress_of(*lines)

    assert (progress.step_time_s, progress.source) == (0.5, "timestamps")
    assert "leave no room for steps that long and are believed" in progress.notes[0]


def test_a_part_of_a_step_is_said_to_be_one() -> None:
    lines = [f"{stamp(n * 10)} step {n * 20} loss 2.5 step time 0.2 s" for n in range(40)]
    progress = progress_of(*lines)

    assert progress.step_time_s == 0.2
    assert progress.notes[0].startswith("by the timestamps a step takes 0.5 s; the time stated is")


def test_all_steps_so_far_have_more_digits_than_one() -> None:
    bar = "10/10 [==============================] - 14s 1s/step - loss: 0.5"

    assert progress_of("Training", *[bar] * 5).step_time_s == pytest.approx(1.4)


def test_a_table_behind_dates_and_levels_is_read() -> None:
    head = "2021-01-25 05:58:00 [INFO]:    Epoch       Batch       box      conf      time"
    rows = [
        f"{stamp(n * 300)} [INFO]:     0/29      {n * 40}/1650     0.2      2.0      7.1"
        for n in range(40)
    ]

    assert progress_of(head, *rows).step_time_s == pytest.approx(7.5)


OTHER_WORDS = "TqdmWarning: Iterable length chunksize may seriously degrade process performance, "
OTHER_WORDS += "converting annotations into chips with twelve workers"


@pytest.mark.parametrize(
    ("log", "step"), [(OTHER_WORDS, None), ("Train loader: 9 " + OTHER_WORDS, 20), ("", 20)]
)
def test_a_bar_without_a_name_needs_a_log_that_speaks_of_training(log: str, step: object) -> None:
    bar = [f" {n}% {n}/4617 [{n // 3:02}:{n % 3 * 20:02}<9:00:00, 20.00s/it]" for n in range(60)]

    assert progress_of(log, "\r".join(bar)).step_time_s == step


def test_a_bar_that_prints_its_epoch_counts_epochs() -> None:
    bar = [
        f"{n}% {n}/99 [{n // 3:02}:{n % 3 * 20:02}<09:00, 20.00s/it]epoch: {n}" for n in range(60)
    ]
    progress = progress_of("Training, loss follows", "\r".join(bar))

    assert (progress.step_time_s, progress.epoch, progress.epoch_time_s) == (None, 59, 20)


def test_a_bar_within_which_another_one_begins_anew_counts_epochs() -> None:
    lines = []
    for epoch in range(1, 9):
        lines += [f"batch {n}/400 loss 0.5" for n in range(0, 400, 100)]
        lines.append(f" {epoch}% {epoch}/50 [{epoch * 2:02}:00<40:00, 120.00s/it]")
    progress = progress_of(*lines)

    assert (progress.step_time_s, progress.epoch) == (None, 8)


def test_the_pace_of_an_evaluation_is_none_of_training() -> None:
    line = "eval_results= {'eval_loss': 0.03, 'eval_steps_per_second': 56.6, 'epoch': 3.0}"

    assert read_line(line) is None or read_line(line).step_time_s is None  # type: ignore[union-attr]


def test_a_path_does_not_say_what_a_line_is_about() -> None:
    line = "/Users/me/Documents/ner/log/train.log - INFO - step:21/29, loss: 1.1"

    assert said(line)["iteration"] == 21


def test_interleaved_ranks_need_no_word_on_one_iteration() -> None:
    lines = [
        f"[rank{rank}]: {stamp(n)} step {n} loss 2.5 time 1.02"
        for n in range(40)
        for rank in (0, 1)
    ]

    assert progress_of(*lines).notes == []


def keras(
    epochs: int, of: int, last: str = "60/60 [=====] - 10s 165ms/step - loss: 0.5"
) -> list[str]:
    lines = []
    for epoch in range(1, epochs + 1):
        lines += [f"Epoch {epoch}/{of}", "60/60 [=====] - 10s 165ms/step - loss: 0.5"]
    return [*lines[:-1], last]


def test_steps_are_counted_over_the_epochs_that_lines_of_their_own_name() -> None:
    progress = progress_of(*keras(3, 25))

    assert (progress.iteration, progress.total_iterations) == (180, 1500)
    assert (progress.epoch, progress.total_epochs) == (3, 25)
    assert progress.eta_s == pytest.approx(1320 * 0.165)


def test_an_epoch_named_before_many_redraws_is_found() -> None:
    redraws = "\r".join(f"{n}/60 [>..] - ETA: 4s - 165ms/step - loss: 0.5" for n in range(1, 61))
    progress = progress_of(*keras(3, 25, redraws))

    assert (progress.iteration, progress.total_iterations) == (180, 1500)


def test_an_epoch_summed_up_behind_its_bar_is_the_one_before() -> None:
    lines = ["training"]
    for epoch in range(3):
        lines += ["100%|###| 50/50 [00:50<00:00, 1.00s/it]", f"epoch {epoch}: loss 0.5, acc 0.9"]
    lines.append(" 40%|#  | 20/50 [00:20<00:30, 1.00s/it]")
    progress = progress_of(*lines)

    assert (progress.iteration, progress.total_iterations, progress.in_epoch) == (20, 50, True)
    assert progress.epoch == 3
    assert progress.eta_s is None


def test_a_counter_that_goes_on_over_the_epochs_is_not_one_of_an_epoch() -> None:
    lines = []
    for epoch in range(1, 4):
        lines.append(f"Epoch {epoch}/3")
        lines += [f"step {100 * epoch + n}/400 loss 0.5 time 0.2s" for n in range(0, 100, 20)]
    progress = progress_of(*lines)

    assert (progress.iteration, progress.total_iterations) == (380, 400)


def test_a_bar_that_begins_anew_with_every_epoch_is_not_the_whole_run() -> None:
    lines = ["training loss 0.5"]
    lines += ["100%|###| 50/50 [00:50<00:00, 1.00s/it]", " 40%|#  | 20/50 [00:20<00:30, 1.00s/it]"]
    progress = progress_of(*lines)

    assert progress.in_epoch
    assert progress.eta_s is None


@pytest.mark.parametrize(
    "lines",
    [
        ["rendering 6 images", "DDIM Sampler: 100%|###| 20/20 [00:37<00:00,  1.86s/it]"],
        ["100%|###| 6655/6655 [00:37<00:00, 175.79it/s]"],
        ["# Step 1: Create the data directory", "# Step 2: Download", "# Step 3: Download images"],
        ["RuntimeError at step 5", "Average Steps: 42.5"],
        ["learning_rate type=float range=[0.01..0.25] (step=0.005)", "n_sample (step=16)"],
        ["python train.py --epochs 20 --batch 256", "python train.py --epochs 30 --batch 64"],
        ["python train.py --ep=300 --step 16 --lr=0.001", "python train.py --ep=100 --step 8"],
        ["trainer: mode=train, epochs=3, patience=100, batch=16, lr0=0.01, save=True"],
        ["Epochs 1-5:   LR = 0.005", "Epochs 6-10:  LR = 0.0005", "Epochs 11+:   LR = 0.00005"],
        ["checkpoints/epoch=0300-test_score=1.000.ckpt", "checkpoints/epoch=0250-test.ckpt"],
        ["Downloading resnet50", "  0%|   | 0.00/548M [00:00<?, ?B/s]", "training"],
    ],
)
def test_what_counts_something_else_says_nothing_of_the_run(lines: list[str]) -> None:
    progress = progress_of(*lines)

    assert (progress.iteration, progress.total_iterations, progress.epoch) == (None, None, None)
    assert (progress.step_time_s, progress.eta_s) == (None, None)


def test_epochs_on_lines_of_their_own_are_told_with_how_long_they_take() -> None:
    lines = []
    for epoch in range(1, 11):
        lines += [f"Epoch: {epoch:02} | Time: 0m 55s", "\tTrain Loss: 1.5 | Train PPL: 4.8"]
    progress = progress_of(*lines)

    assert (progress.epoch, progress.epoch_time_s, progress.step_time_s) == (10, 55, None)


def test_the_best_epoch_so_far_is_not_the_latest() -> None:
    lines = []
    for epoch in range(1, 7):
        lines += [f"epoch {epoch}/6", f"  loss: 0.{9 - epoch}", "dice: 0.8 at epoch: 2 so far"]

    assert progress_of(*lines).epoch == 6


def test_a_bar_that_ran_as_long_as_the_run_is_that_of_training() -> None:
    progress = progress_of(
        "Num Epochs = 10",
        "100%|###| 6957/6957 [38:51<00:00,  2.98it/s]",
        "{'train_runtime': 332.91, 'train_steps_per_second': 6.789}",
        "100%|###| 2260/2260 [05:32<00:00,  6.79it/s]",
        "100%|###| 57/57 [00:00<00:00, 57.63it/s]",
    )

    assert progress.step_time_s == pytest.approx(1 / 6.79)
    assert progress.total_iterations == 2260


def test_the_steps_of_a_summary_are_not_those_of_another_run() -> None:
    progress = progress_of(
        "  Total optimization steps = 970",
        "  Total optimization steps = 240",
        "{'train_runtime': 34.0637, 'train_steps_per_second': 7.046}",
    )

    assert progress.step_time_s == pytest.approx(34.0637 / 240)
    assert progress.total_iterations == 240


def test_a_later_epoch_of_another_kind_of_line_is_where_the_run_is() -> None:
    lines = [
        f"Epoch {n}: 100%|###| 352/352 [01:00<00:00, 5.63it/s, v_num=1, loss=3.3]" for n in range(3)
    ]
    lines += [
        f"Epoch {n}, global step {352 * (n + 1)}: 'val/acc' was not in top 1" for n in range(9)
    ]
    progress = progress_of(*lines)

    assert (progress.epoch, progress.iteration) == (8, 9 * 352)


def test_a_bar_that_stands_still_during_validation_does_not_slow_the_steps() -> None:
    lines = []
    for epoch in range(4):
        lines += [
            f"Epoch {epoch}: 100%|###| 400/400 [04:49<00:00,  1.38it/s, v_num=1]",
            f"Epoch {epoch}: 100%|###| 400/400 [24:11<00:00,  0.28it/s, v_num=1]",
        ]

    assert progress_of(*lines).step_time_s == pytest.approx(1 / 1.38)


def test_the_loss_of_an_iteration() -> None:
    assert said("loss of iteration 14 : 1.568310") == {"iteration": 14, "loss": 1.56831}


def test_the_epoch_is_looked_for_above_as_many_lines_as_it_has() -> None:
    lines = []
    for epoch in range(1, 4):
        lines.append(f"Epoch {epoch}/25")
        lines += [f"batch {n}/200 - 165ms/step - loss: 0.5" for n in range(1, 201)]
    progress = progress_of(*lines)

    assert (progress.iteration, progress.total_iterations) == (600, 5000)


def test_steps_within_a_bar_that_counts_the_epochs() -> None:
    lines = [f"Iteration: 100%|###| 63/63 [00:{12 - n}<00:00, 5.69it/s]" for n in range(5)]
    lines.append("Epoch: 100%|###| 5/5 [00:57<00:00, 11.43s/it]")
    progress = progress_of("training", *lines)

    assert (progress.iteration, progress.total_iterations, progress.eta_s) == (315, 315, 0)


def test_the_loss_after_some_steps() -> None:
    assert said("Loss after 1500 steps: 0.0486") == {"iteration": 1500, "loss": 0.0486}
