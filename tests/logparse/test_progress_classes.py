"""What a number of a log is by how it is written and how it goes on, a class of logs each."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta

import pytest

from schedmate.base.data import load
from schedmate.jobs import Progress
from schedmate.logparse.progress.tracker import track
from schedmate.logparse.reading import LogFile
from schedmate.logparse.reading.storage import Memory
from schedmate.report.jobs import progress_headline


def progress_of(lines: list[str]) -> Progress:
    return track(LogFile("job.out", Memory("\n".join([*lines, ""]).encode())))


def stamp(seconds: float) -> str:
    at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%d %H:%M:%S,") + f"{at.microsecond // 1000:03d}"


# Two counters without totals.


@pytest.mark.parametrize(
    "place",
    ["[{epoch}][{step}]", "[{epoch}, {step}]", "<{epoch}><{step}>", "({epoch}/{step})",
     "Train [{epoch}][{step}]", "Epoch: [{epoch}][{step}]", "Epoch {epoch}, {step}"],
)  # fmt: skip
def test_an_epoch_and_a_counter_need_no_names_and_no_totals(place: str) -> None:
    lines = [
        f"{stamp(n * 2.5)} {place.format(epoch=n // 40, step=n % 40 * 10)} loss 2.5"
        for n in range(160)
    ]
    progress = progress_of(lines)

    assert progress.step_time_s == pytest.approx(0.25)
    assert (progress.epoch, progress.iteration) == (3, 390)


def test_a_counter_begins_anew_with_few_lines_an_epoch() -> None:
    lines = [f"{stamp(n * 5)} [{n // 3}][{n % 3 * 10}] loss 2.5" for n in range(60)]

    assert progress_of(lines).step_time_s == pytest.approx(0.5)


def test_a_number_beside_the_epoch_that_does_not_count_makes_its_time_that_of_the_epoch() -> None:
    progress = progress_of([f"Epoch [{n}][128] time 12.3 loss 0.5" for n in range(40)])

    assert progress.abstained
    assert progress.iteration is None
    assert progress.epoch_time_s == pytest.approx(12.3)


def test_a_meter_beside_two_counters_is_that_of_one_step() -> None:
    lines = [
        f"Epoch: [{n // 20}][{n % 20 * 50}]\tTime 0.65{n % 9} (0.702)\tLoss 2.5 (2.6)"
        for n in range(100)
    ]

    assert progress_of(lines).step_time_s == pytest.approx(0.654)


def test_the_time_beside_that_of_its_data_is_that_of_one_step() -> None:
    lines = [f"Epoch [3][{n * 10}]\tTime 6.65{n % 9}\tData 0.01\tLoss 2.5" for n in range(50)]
    alone = [line.replace("Data 0.01\t", "") for line in lines]

    assert progress_of(lines).step_time_s == pytest.approx(6.654)
    assert progress_of(alone).abstained


# Counters in thousands and millions.


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step:{k:.0f}K loss:2.5", 0.1),
        ("iter {k:.1f}k | loss 2.5", 0.1),
        ("step={m:.4f}M) loss=2.5", 0.1),
        ("step:{k:.0f}K loss:2.5 updt_s:0.098", 0.098),
    ],
)
def test_rounded_counters_are_known_where_they_go_on(line: str, expected: float) -> None:
    lines = [f"{stamp(n * 10)} {line.format(k=n / 10, m=n / 10_000)}" for n in range(200, 500)]

    assert progress_of(lines).step_time_s == pytest.approx(expected, rel=0.02)


def test_a_rounded_counter_that_stands_still_gives_no_step_time() -> None:
    assert progress_of([f"{stamp(n)} step:49K loss:2.5" for n in range(60)]).abstained


def test_ten_minutes_are_no_millions() -> None:
    progress = progress_of([f"step {n}/100 loss 2.5 eta: 10m" for n in range(60)])

    assert progress.eta_s == 600


@pytest.mark.parametrize("counted", ["{n}.0M samples", "{n},000,000 samples"])
def test_what_is_counted_may_stand_behind_its_number(counted: str) -> None:
    lines = [
        f"{counted.format(n=n)} | step {n * 1000} | loss 2.5 | 500 samples/s" for n in range(1, 60)
    ]

    assert progress_of(lines).step_time_s == pytest.approx(2.0)


# A stated rate against the timestamps.


@pytest.mark.parametrize("rate", ["5.0 it/s", "steps/s: 5.0", "12.5 steps per second"])
def test_a_rate_that_the_timestamps_contradict_all_the_time_is_not_believed(rate: str) -> None:
    lines = [f"{stamp(n * 60)} step {n * 100} loss 2.5 {rate}" for n in range(1, 60)]
    progress = progress_of(lines)

    assert (progress.step_time_s, progress.source) == (pytest.approx(0.6), "timestamps")
    assert "show another one and are believed" in progress.notes[0]


def test_a_rate_is_believed_where_pauses_lie_between_the_lines() -> None:
    pauses = [2000 * (n // 7) for n in range(1, 60)]
    lines = [
        f"{stamp(n * 20 + pause)} step {n * 100} loss 2.5 5.0 it/s"
        for n, pause in enumerate(pauses, 1)
    ]

    assert progress_of(lines).step_time_s == pytest.approx(0.2)


def test_a_batch_size_that_the_timestamps_contradict_is_not_believed() -> None:
    lines = [f"{stamp(n * 90)} step {n * 100} loss 2.5 512 samples/s" for n in range(1, 60)]
    progress = progress_of(["batch_size: 256", *lines])

    assert (progress.step_time_s, progress.source) == (pytest.approx(0.9), "timestamps")
    assert "batch size 256" in progress.notes[0]


# Throughput over batch.

SPEED = [f"step {n} loss 2.5 512 samples/s" for n in range(60)]


@pytest.mark.parametrize(
    "head",
    [
        "batch_size: 256",
        "Using batch size 256",
        "python train.py --batch-size 256 --lr 0.1",
        "Namespace(batch_size=256, eval_batch_size=64, lr=0.1)",
        "world_size=8, per_device_train_batch_size=16, gradient_accumulation_steps=2",
        "torchrun train.py\nworld_size=1\nbatch_size=256",
    ],
)
def test_samples_a_second_and_the_batch_that_the_log_states(head: str) -> None:
    progress = progress_of([head, *SPEED])

    assert (progress.step_time_s, progress.source) == (pytest.approx(0.5), "samples")
    assert "batch size 256" in progress.notes[0]


@pytest.mark.parametrize(
    "head",
    [
        "batch_size: 256\ntraining on 8 GPUs",
        "batch_size: 256, gpus='0,1,2,3'",
        "batch_size: 256\ngradient_accumulation_steps: 4",
        "batch_size: 256\nbatch_size: 128",
        "eval_batch_size: 256",
        "per_device_train_batch_size=16",
        "per_device_train_batch_size=16 world_size=8 tensor_parallel_size=4",
    ],
)
def test_a_batch_that_may_not_be_that_of_a_step_is_none(head: str) -> None:
    assert progress_of([head, *SPEED]).abstained


def test_a_batch_in_the_same_line() -> None:
    lines = [f"step {n} batch_size 64 loss 2.5 128 samples/sec" for n in range(60)]

    assert progress_of(lines).step_time_s == pytest.approx(0.5)


def test_the_time_of_a_sample_times_the_batch() -> None:
    lines = [f"Epoch: [5][{n}/900]\tPer Sample Time 0.06\tLoss 0.5" for n in range(60)]

    assert progress_of(["batch_size=12", *lines]).step_time_s == pytest.approx(0.72)
    assert progress_of(lines).abstained


@pytest.mark.parametrize("head", ["tokens_per_batch 65536", "batch_size=32, seq_len=2048"])
def test_tokens_a_second_and_the_tokens_of_a_step(head: str) -> None:
    lines = [f"step {n} loss 2.5 131,072 tok/s" for n in range(60)]

    assert progress_of([head, *lines]).step_time_s == pytest.approx(0.5)
    assert progress_of([head.replace("seq_len", "max_seq_len") + " ", *lines]).abstained == (
        "seq_len" in head
    )


@pytest.mark.parametrize(
    "line",
    [
        "step {n} | loss 2.3 | tok/s 131072 | 65536 tokens/step",
        "step {n} loss 2.3 256 samples/s 128 samples/step",
    ],
)
def test_what_a_step_takes_in_the_same_line(line: str) -> None:
    assert progress_of([line.format(n=n) for n in range(60)]).step_time_s == pytest.approx(0.5)


# What stands between numbers.


def test_a_unit_between_two_numbers_is_that_of_the_first() -> None:
    progress = progress_of([f"step {n} loss 2.3 2.0 steps/s 128 samples/s" for n in range(60)])

    assert (progress.step_time_s, progress.throughput) == (0.5, 128)


def test_a_time_without_a_name_beside_a_counter_without_one_may_have_passed() -> None:
    rising = [f"{n * 100}: loss 2.3 ({n * 25.0:.1f}s)" for n in range(1, 60)]
    steady = [f"{n * 100}: loss 2.3 (25.{n % 3}s)" for n in range(1, 60)]

    assert progress_of(rising).step_time_s == pytest.approx(0.25)
    assert progress_of(steady).abstained


def test_a_counter_of_samples_is_none_of_steps() -> None:
    lines = [
        f"{stamp(n * 90.2)} | Train Epoch: 1 [ {51200 * n}/9999999 (0%)] Loss: 5.5 (5.6) 567.6/s"
        for n in range(60)
    ]
    metered = [line.replace("567", "Data (t): 0.5 Batch (t): 0.902, 567") for line in lines]

    assert progress_of(lines).abstained
    assert progress_of(metered).step_time_s == pytest.approx(0.902)


def test_a_bar_without_a_rate_may_state_the_time_of_a_step() -> None:
    bar = "Epoch 0: :   5%|#  | {n}/10000 [10:00<3:10:00, loss=7.1, train_step_timing in s=1.2]"

    assert progress_of([bar.format(n=500 + n) for n in range(60)]).step_time_s == 1.2


# Which loss is the loss.


@pytest.mark.parametrize(
    "losses",
    [
        "total_loss: 1.5 loss_cls: 0.5 loss_box: 1.0",
        "loss_cls: 0.5 loss_box: 1.0 loss: 1.5",
        "loss: 1.5 loss_cls: 0.5 loss_box: 1.0",
        "ce_loss 0.5 aux_loss 1.0 loss_total 1.5",
        "G_loss 0.5 overall_loss 1.5 D_loss 1.0",
        "loss_sum 1.5 loss_a 0.5 loss_b 1.0",
        "policy_loss 0.5 value_loss 1.0 loss 1.5",
        "loss 1.5 total_loss 812.5",  # of all steps so far
        "loss: tensor(1.5, device='cuda:0', grad_fn=<AddBackward0>)",
        "loss_scale 65536 loss 1.5",
    ],
)
def test_the_sum_goes_before_its_parts(losses: str) -> None:
    assert progress_of([f"iter {n} {losses} step_time 0.5s" for n in range(20)]).loss == 1.5


def test_the_sum_goes_before_its_parts_on_lines_of_their_own() -> None:
    lines = [
        line
        for n in range(20)
        for line in (f"iter {n}/100 step_time 0.5s", "  total_loss: 1.5", "  ce_loss: 0.5")
    ]

    assert progress_of(lines).loss == 1.5


@pytest.mark.parametrize(
    ("spelt", "state"),
    [
        ("nan", "nan"), ("NaN", "nan"), ("-nan", "nan"), ("inf", "inf"), ("-Infinity", "inf"),
        ("tensor(nan, device='cuda:0')", "nan"), ("1e999", None),
    ],
)  # fmt: skip
def test_a_loss_that_is_no_number_is_said_to_be_none(spelt: str, state: str | None) -> None:
    lines = [f"step {n} loss: {'2.5' if n < 30 else spelt} step_time: 0.5s" for n in range(60)]
    progress = progress_of(lines)

    assert progress.loss_state == state
    assert progress.step_time_s == 0.5
    if state is not None:
        assert progress.loss is None
        assert progress.loss_state_since == 30


def test_a_loss_that_is_a_number_again_is_one() -> None:
    lines = [f"step {n} loss {'nan' if n == 30 else '2.5'} step_time 0.5s" for n in range(60)]
    progress = progress_of(lines)

    assert (progress.loss, progress.loss_state) == (2.5, None)


def test_a_loss_of_nothing_with_a_gradient_that_is_no_number_is_no_number() -> None:
    lines = [str({"loss": 0.0, "grad_norm": float("nan"), "epoch": n / 10}) for n in range(9)]

    assert progress_of(lines).loss_state == "nan"


# Numbers that no job has.

HUGE = "9" * 400


@pytest.mark.parametrize(
    "line",
    [
        f"step {HUGE} loss 2.5",
        f"step {HUGE[:-1]}8/{HUGE} epoch {HUGE}/{HUGE} loss 2.5",
        f"step {HUGE}K loss 2.5K {HUGE}M samples",
        f"step 3 {'9' * 5000} loss 2.5 time {HUGE}s",
        "step 3 loss 2.5 1e308 it/s",
        "step 3 loss 1e999 1e-320 it/s 1e308 samples/s batch size " + HUGE,
        "step -3 loss -2.5 step_time -0.5s",
        "step nan loss nan step_time nan epoch inf lr inf eta nan elapsed inf",
        f"3%|# | {HUGE}/{HUGE}9 [00:10<00:14, {HUGE}it/s]",
        f"3%|# | 3/100 [{HUGE}:10<{HUGE}:14, 1e308it/s]",
        f"{HUGE}%|# | 3/100 [00:10<00:14, 4.1it/s]",
        f"step 3/100 loss 2.5 eta {HUGE}:00:00 elapsed: {HUGE} days, 1:00:00",
        f" iteration {HUGE}/ {HUGE} | elapsed time per iteration (ms): {HUGE}.8 | loss: 7E+999 |",
        f" iteration 3/ 9 | consumed samples: {HUGE} | global batch size: {HUGE} | lm loss: 7 |",
        f"[{HUGE}.5] step 3 loss 2.5",
        f"{HUGE} steps in {HUGE} s",
        f"100 steps in {HUGE}.5 s loss 2.5",
        f"max_steps={HUGE * 12} num_epochs={HUGE} global_batch_size={HUGE} batch_size={HUGE}",
        f"(rank={HUGE * 12} pid={HUGE * 12}) step 3 loss 2.5",
    ],
)
def test_no_number_is_too_odd_for_an_answer_or_none(line: str) -> None:
    lines = [line.replace(" 3", f" {n}", 1) for n in range(60)]
    for log in (
        [line],
        lines,
        [*lines, *SPEED],
        [f"{stamp(n)} {one}" for n, one in enumerate(lines)],
    ):
        document = progress_of(log).model_dump_json()

        assert "Infinity" not in document
        assert "1e+" not in document


ODD = [
    HUGE, "9" * 5000, "9" * 30 + ":00", "9" * 16 + ".5", "1e308", "-1e308", "1e400", "1e-320",
    "nan", "inf", "-inf", "0", "-1", "1:02K", "5M", "99:99:99", ".5.", "1,2,3", "1e", "\u0662",
]  # fmt: skip
EXAMPLES = [entry["example"] for entry in load("logparse/progress/patterns.yaml")]
EXAMPLES += [
    one["example"] for kind in load("logparse/progress/facts.yaml").values() for one in kind
]


@pytest.mark.parametrize("seed", range(40))
def test_known_lines_with_odd_numbers_have_an_answer_or_none(seed: int) -> None:
    chance = random.Random(seed)

    def spoilt(line: str, n: int) -> str:
        def number(match: re.Match[str]) -> str:
            draw = chance.random()
            return chance.choice(ODD) if draw < 0.25 else str(n) if draw < 0.5 else match[0]

        return re.sub(r"\d[\d.]*", number, line)

    kinds = chance.choices(EXAMPLES, k=3)
    progress = progress_of([spoilt(chance.choice(kinds), n) for n in range(30)])

    json.dumps(progress.model_dump(mode="json"), allow_nan=False)
    assert progress_headline(progress)
