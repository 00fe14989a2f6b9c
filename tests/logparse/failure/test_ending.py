"""How a log ends: that its job was through or just stops, and that all readers say the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schedmate.base.data import load
from schedmate.jobs import Diagnosis, Progress
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.describe import EARLIER_ATTEMPT, FAINT_LINE
from schedmate.logparse.failure.ending import track_job
from schedmate.logparse.failure.examine import SAYS_SO
from schedmate.logparse.failure.handler import DIVERGED
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.reading import Log, LogFile, open_log
from schedmate.logparse.reading.storage import Memory

STEPS = "".join(f"step {n}/500 | loss {3 - n / 100:.2f}\n" for n in range(1, 40))


def of(path: Path, text: str) -> Diagnosis:
    path.write_text(text)
    with open_log(path) as log:
        return diagnose(log)


@pytest.mark.parametrize(
    "end",
    [
        "training is done\n",
        "step 500/500 | loss 0.10\n",
        "100%|##########| 500/500 [10:38<00:00,  1.2it/s]\n",
        "Done!\n",
        "wandb: Run summary:\nwandb:  loss 0.1\n",
        *(entry["example"] + "\n" for entry in load("logparse/signs.yaml")["success"]),
    ],
)
def test_a_sign_of_success(end: str, tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", STEPS + end)
    assert (found.error_type, found.finished) == ("none", True)
    assert found.plan is not None
    assert found.plan.id == "nothing"


EPOCH = """\
Epoch {n}/4
100/100 [==============================] - 3s 30ms/step - loss: 0.{n} - val_loss: 0.2
Validation: Total time: 0:00:2{n}
Epoch {n} completed in 3.{n} s, best accuracy 0.{n}
"""


@pytest.mark.parametrize(("epochs", "through"), [(2, False), (3, False), (4, True)])
def test_what_ends_each_epoch_is_no_end_of_the_job(
    epochs: int, through: bool, tmp_path: Path
) -> None:
    text = "".join(EPOCH.format(n=n) for n in range(1, epochs + 1))
    assert of(tmp_path / "job.out", text).finished is through


def test_an_elapsed_time_in_every_step_is_no_sign_of_success(tmp_path: Path) -> None:
    step = "iteration {n}/ 900 | elapsed time per iteration (ms): 12{n}.1 | lm loss: 2.{n}\n"
    cut = "".join(step.format(n=n) for n in range(1, 40))
    assert of(tmp_path / "a.out", cut).finished is False
    assert of(tmp_path / "b.out", cut + step.format(n=900)).finished is True
    assert of(tmp_path / "c.out", cut + "Total Training Time: 26.35 min\n").finished is True


@pytest.mark.parametrize("end", ["", "zkr: lease table 7 rotated\n"])
def test_a_log_that_just_stops(end: str, tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", STEPS + end)
    assert (found.error_type, found.finished) == ("none", False)
    assert "does not show a successful end" in found.reason
    assert found.evidence[-1].note == "the log ends here"
    assert found.evidence[-1].line == 39 + bool(end)
    assert found.plan is not None
    assert found.plan.id == "open-end"
    assert found.plan.restart == "no"


def test_a_failure_or_a_cancel_leaves_the_question_open(tmp_path: Path) -> None:
    assert of(tmp_path / "a.out", STEPS + "KeyError: 'lr'\n").finished is None
    cancel = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-01-01T00:00:00 ***\n"
    assert of(tmp_path / "b.out", STEPS + cancel).finished is None


def test_a_node_that_cannot_end_the_job_counts_before_the_cancel(tmp_path: Path) -> None:
    cancel = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-01-01T00:00:00 ***\n"
    stuck = (
        "slurmstepd: error: *** STEPD TERMINATED ON n1 AT 2024-01-01T00:03:00 "
        "DUE TO JOB NOT ENDING WITH SIGNALS ***\n"
    )
    found = of(tmp_path / "job.out", STEPS + cancel + stuck)
    assert (found.error_type, found.error_name) == ("infrastructure", "Node Failure")


def test_a_warning_says_of_what_a_job_failed_that_says_nothing_else(tmp_path: Path) -> None:
    warning = "worker - WARNING - Heartbeat to scheduler failed\n"
    cut = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    send()\n'
    found = of(tmp_path / "a.out", warning + cut)
    assert (found.error_type, found.line) == ("infrastructure", 1)
    assert of(tmp_path / "b.out", warning).error_type == "none", "a warning alone is no failure"


@pytest.mark.parametrize(
    ("line", "plan"),
    [
        ("Message: The node was low on resource: ephemeral-storage.", "evicted-for-space"),
        ("Pod The node had condition: [DiskPressure].", "evicted-for-space"),
        ("The node was low on resource: memory. Container a used 9Gi", "evicted-for-memory"),
    ],
)
def test_a_pod_put_out_for_want_of_room_takes_no_node_with_it(
    line: str, plan: str, tmp_path: Path
) -> None:
    found = of(tmp_path / "pod.txt", f"Status: Failed\nReason: Evicted\n{line}\n")
    assert found.error_type == "infrastructure"
    assert found.plan is not None
    assert (found.plan.id, found.plan.isolate) == (plan, None)


TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in main\n    check(state)\n'


@pytest.mark.parametrize(
    "end",
    [
        TRACE + "KeyError: 'Training completed'",
        TRACE + "RuntimeError: expected Training finished but got 3",
        TRACE + "ValueError: training done flag missing",
        TRACE + "AssertionError: training completed before max_steps",
        TRACE.replace("check(state)", 'raise Stop("training completed")') + "lib.Stop: x",
        "[rank0]: ValueError: training done flag missing",
        "Training failed to complete.",
        "ERROR training finished with errors",
        "2024-01-01 10:00:00,123 - ERROR - training completed",
        "Training completed with exit code 1",
        "Training finished with status -6",
        "Training finished with 3 errors",
        "Training finished unsuccessfully",
        "Training complete: no",
        "Training done = False",
        '{"training done": false}',
        "Not all ranks say that training is done",
        "waiting until training is done",
        "0 epochs done",
        "0/5000 steps completed",
        "No epochs finished",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\nTraining completed: False",
    ],
)
def test_a_success_that_is_denied_or_quoted_is_none(end: str, tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", STEPS + end + "\n")
    assert found.error_type != "none" or found.finished is False
    if "Error" in end:
        assert found.error_type != "none"


@pytest.mark.parametrize(
    "end",
    [
        "Training completed with no errors.",
        "Training finished with exit code 0",
        "[rank 0] Training completed",
        "Training done, 0 failed, best mean absolute error: 0.12",
        "INFO Training completed in 0.5 h; do not forget to save the model",
        "Epoch 0 done. Training finished without errors",
    ],
)
def test_a_success_that_is_not_denied_counts(end: str, tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", STEPS + TRACE + "ValueError: in a thread\n" + end + "\n")
    assert (found.error_type, found.finished) == ("none", True)


@pytest.mark.parametrize(
    "end",
    [
        "Epoch 1 training completed.",
        "Fold 1 training finished.",
        "Pre-training finished, starting fine-tuning",
        "Training completed: 6%",
        "VAE training finished, starting diffusion",
        "Training finished.\nStarting fold 2/5",
        "Training finished.\nvalidating 2/100",
        "Early stopping at epoch 12\nStarting fold 3/5",
    ],
)
def test_the_end_of_a_part_is_no_end_of_the_job(end: str, tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", STEPS + end + "\n")
    assert (found.error_type, found.finished) == ("none", False)


def test_failures_before_the_end_of_a_part_did_not_stop_the_job(tmp_path: Path) -> None:
    text = STEPS + TRACE + "ValueError: in a thread\nEpoch 1 training completed.\n"
    assert of(tmp_path / "job.out", text).error_type == "none"


DENIALS = load("logparse/denied.yaml")


@pytest.mark.parametrize("entry", [*DENIALS["denied"], *DENIALS["part"], *DENIALS["unsaved"]])
def test_each_pattern_of_a_denial_fits_its_example(entry: dict[str, str]) -> None:
    import re2

    assert re2.compile(entry["pattern"]).search(entry["example"])


ROOT = Path(__file__).parents[3]
SAMPLES = [ROOT / "schedmate/sample/job.out", ROOT / "examples/logs/idefics.out"]
NAN = "".join(f"step {n}/500 | loss nan\n" for n in range(40, 60))


def endings() -> Iterator[str]:
    """Real samples, whole and cut, and progress with what each part of the data has as example."""
    for path in SAMPLES:
        text = path.read_text()
        yield from (text, text[: len(text) // 2], text[: len(text) // 3] + STEPS)
    for kind in ("finished", "over", "starts", "success"):
        yield from (STEPS + one["example"] + "\n" for one in load("logparse/signs.yaml")[kind])
    for rule in load_rules().rules[::6]:
        yield STEPS + rule.examples[0] + "\n"
    for end in ("", NAN, NAN + "KeyError: 'x'\n", "100%|####| 500/500 [10:38<00:00,  1.2it/s]\n"):
        yield STEPS + end
        yield STEPS + TRACE + "KeyError: 'x'\n===== Attempt 2/3 =====\n" + STEPS + end


def contradiction(found: Diagnosis, progress: Progress) -> str | None:
    """What the progress of a log says that its diagnosis denies."""
    failed, diverged = found.error_type != "none", found.rule == DIVERGED
    if diverged and progress.loss_state is None:
        return "only the diagnosis knows that the loss is no number"
    if progress.ended == "failed" and not failed:
        return "only the progress knows of a failure"
    if progress.ended == "finished" and not (found.finished or diverged):
        return "only the progress knows of an end"
    # other words, or a full bar, a job that goes on may write as well
    if (
        found.finished
        and SAYS_SO in found.reason
        and (progress.ended is None or progress.eta_s != 0)
    ):
        return "time is left of a job that is through"
    if failed and not diverged:
        open_end = {FAINT_LINE, EARLIER_ATTEMPT} & {*found.doubts}
        if progress.eta_s is not None or progress.ended not in ("failed", None):
            return "time is left of a job that failed"
        return None if progress.ended or open_end else "only the diagnosis knows of the failure"
    stopped = not failed and found.error_name is not None
    return "only the diagnosis knows of a stop" if stopped and progress.ended is None else None


def test_progress_and_diagnosis_of_a_log_never_contradict() -> None:
    wrong = []
    for text in endings():
        log = Log("job.out", [LogFile("job.out", Memory(text.encode()))])
        said = contradiction(diagnose(log), track_job(log)[0])
        wrong += [(said, text[-200:])] if said else []
    assert not wrong
