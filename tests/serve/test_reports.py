"""What a training program says of its own progress, by the callbacks of `examples/callbacks.py`."""

from __future__ import annotations

import runpy
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from served import TOKEN, served

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "callbacks.py"))


def settle() -> None:
    """Wait for the reports that are on their way."""
    for thread in threading.enumerate():
        if thread.name.endswith("(_send)"):
            thread.join()


def test_reports_of_every_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = {"transformers": "TrainerCallback", "lightning.pytorch": "Callback"}
    for name, base in libraries.items():
        module = ModuleType(name)
        setattr(module, base, object)
        monkeypatch.setitem(sys.modules, name, module)
    with served(tmp_path, port=0, token=TOKEN) as running:
        url = f"http://127.0.0.1:{running.address}"

        def report(job: str, total: int | None = None) -> Any:
            return EXAMPLE["Report"](url, job, total, token=TOKEN, every_s=0)

        plain = report("job-plain", 100)
        plain.step(50, 1.5)
        trainer = EXAMPLE["for_trainer"](report("job-hf"))
        state = SimpleNamespace(is_world_process_zero=True, max_steps=10, global_step=10)
        trainer.on_log(None, state, None, {"loss": float("nan")})
        lightning = EXAMPLE["for_lightning"](report("job-pl"))
        own = SimpleNamespace(is_global_zero=True, estimated_stepping_batches=8, global_step=4)
        lightning.on_train_batch_end(own, None, None, None, 4)
        settle()
        said = running.post(
            "/v1/progress",
            {"job": {"job_id": "x"}, "iteration": 5, "total_iterations": 10, "step_time_s": 2},
            token=TOKEN,
        ).json()["progress"]
        assert (said["eta_s"], said["source"]) == (10, "stated")
        page = running.get("/", token=TOKEN).text
        assert all(job in page for job in ("job-plain", "job-hf", "job-pl"))
        nameless = running.post("/v1/progress", {"job": {}, "iteration": 1}, token=TOKEN)
        assert nameless.status_code == 422


def test_a_service_that_is_down_does_not_end_the_training() -> None:
    EXAMPLE["Report"]("http://127.0.0.1:9", "a", every_s=0).step(1, 2.0)
    settle()
