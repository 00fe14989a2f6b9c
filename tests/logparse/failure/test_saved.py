"""The checkpoint that a plan restarts from is one that was written to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import open_log

STEPS = "".join(f"step {n}/5000 loss {3 - n / 1000:.3f}\n" for n in range(990, 1000))
SAVED = "Saved checkpoint /ckpt/step_1000\n"
SAVING = "Saving checkpoint to /ckpt/step_1200\n"
DIED = "srun: error: Node failure on gpu-3\n"


def step_of(path: Path, text: str) -> int | None:
    path.write_text(text)
    with open_log(path) as log:
        found = diagnose(log)
    assert found.error_type == "infrastructure"
    return found.checkpoint.step if found.checkpoint is not None else None


@pytest.mark.parametrize(
    "end",
    [
        SAVING,
        "Writing model state to /ckpt/step_1200\n",
        SAVING + "Saving checkpoint to /ckpt/step_1300\n",
        SAVING + "Configuration saved in /ckpt/step_1200/config.json\n",
        SAVING + "Failed to save: checkpoint not done\n",
        SAVING.strip() + " failed\n",
        "ERROR checkpoint saved to /ckpt/step_1200 is too short\n",
        "Checkpoint was not saved to /ckpt/step_1200\n",
    ],
)
def test_a_checkpoint_that_was_only_begun_is_not_restarted_from(end: str, tmp_path: Path) -> None:
    assert step_of(tmp_path / "job.out", STEPS + SAVED + end + DIED) == 1000


@pytest.mark.parametrize(
    "end",
    [
        SAVING + "step 1201/5000 loss 1.9\n",
        SAVING + "Checkpoint saved.\n",
        SAVING + "Save done in 3.1 s\n",
        SAVING + "Model weights saved in /ckpt/step_1200/model.bin\n",
        "Saved checkpoint /ckpt/step_1200\n",
        SAVING + "step 1201/5000 loss 1.9\nSaving checkpoint to /ckpt/step_1400\n",
    ],
)
def test_a_checkpoint_that_was_written_to_its_end(end: str, tmp_path: Path) -> None:
    assert step_of(tmp_path / "job.out", STEPS + SAVED + end + DIED) == 1200


def test_where_none_was_finished_none_is_offered(tmp_path: Path) -> None:
    assert step_of(tmp_path / "job.out", STEPS + SAVING + DIED) is None


def test_steps_of_the_next_attempt_do_not_finish_a_save(tmp_path: Path) -> None:
    again = "[watchdog] Restarting the training job (2/3)\n"
    text = STEPS + SAVED + SAVING + DIED + again + STEPS + DIED
    assert step_of(tmp_path / "job.out", text) == 1000
