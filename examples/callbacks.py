"""Reports the progress of a training to a schedmate service: PyTorch, Trainer, Lightning.

Copy `Report` and the callback of your framework into the program; it needs the standard library
alone. A service that is slow or down never delays or ends the training: the report is dropped.
"""

from __future__ import annotations

import json
import math
import threading
import time
import urllib.request
from contextlib import suppress
from typing import Any


class Report:
    """Says every `every_s` seconds how far the job is: `Report(url, id).step(iteration, loss)`."""

    def __init__(
        self, url: str, job_id: str, total: int | None = None, token: str = "", every_s: float = 10
    ) -> None:
        self._to = urllib.request.Request(f"{url}/v1/progress", method="POST")  # noqa: S310 - our own URL
        self._to.add_header("Content-Type", "application/json")
        if token:
            self._to.add_header("Authorization", f"Bearer {token}")
        self._job, self.total, self._every_s = {"job_id": job_id}, total, every_s
        self._last = 0, time.monotonic()

    def step(self, iteration: int, loss: float | None = None) -> None:
        """Call it after any step, on one process; most calls return at once."""
        now, (before, at) = time.monotonic(), self._last
        done = self.total is not None and iteration >= self.total
        if iteration <= before or (now - at < self._every_s and not done):
            return
        self._last = iteration, now
        said = {"job": self._job, "iteration": iteration, "total_iterations": self.total}
        said["step_time_s"] = max(now - at, 1e-9) / (iteration - before)
        if loss is not None and math.isfinite(loss):
            said["loss"] = loss
        threading.Thread(target=self._send, args=(json.dumps(said).encode(),), daemon=True).start()

    def _send(self, body: bytes) -> None:
        with suppress(OSError):  # the training goes on
            urllib.request.urlopen(self._to, body, timeout=5).close()  # noqa: S310 - our own URL


def for_trainer(report: Report) -> Any:
    """A callback of Hugging Face's Trainer: `Trainer(..., callbacks=[for_trainer(report)])`."""
    from transformers import TrainerCallback

    class Callback(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if state.is_world_process_zero:
                report.total = state.max_steps
                report.step(state.global_step, (logs or {}).get("loss"))

    return Callback()


def for_lightning(report: Report) -> Any:
    """A callback of Lightning: `Trainer(callbacks=[for_lightning(report)])`."""
    from lightning.pytorch import Callback

    class Reporting(Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
            if trainer.is_global_zero:
                report.total = int(trainer.estimated_stepping_batches)
                report.step(trainer.global_step)

    return Reporting()
