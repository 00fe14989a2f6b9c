"""The dashboard's state: updates from answers, stored in the background."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from schedmate.serve.board import Board, Checked, Update
from schedmate.serve.lane import Lane
from schedmate.serve.metrics import Metrics

log = logging.getLogger("schedmate.serve")

BATCH = 1024
"""Most updates stored together."""


class Dashboard:
    """The board and the thread that writes it; a failure there never affects an answer."""

    def __init__(self, state: Path, metrics: Metrics) -> None:
        self._metrics = metrics
        self.board = Board(state, self._count_estimate)

    def start(self) -> None:
        """Start the thread."""
        self._lane: Lane[Update, None] = Lane("board", self._write, batch=BATCH)

    def tell(self, update: Update) -> None:
        """Store an update soon; it is dropped, and counted, if too many wait."""
        if not self._lane.tell(update):
            self._metrics.unshown.inc()

    def stop(self) -> None:
        """Store what waits, and end the thread."""
        self._lane.close()

    def close(self) -> None:
        """Close the board's database."""
        self.board.close()

    def _write(self, updates: Sequence[Update]) -> Sequence[Exception | None]:
        try:
            self.board.write(updates)
        except Exception as error:  # noqa: BLE001 - the answers were given
            log.warning("the dashboard missed %d updates: %s", len(updates), error)
        return [None] * len(updates)

    def _count_estimate(self, checked: Checked) -> None:
        """Count how an estimate compares with the run time of its job."""
        self._metrics.error.observe(checked.duration_s / checked.estimate_s)
        self._metrics.within.labels(checked.place).inc()
