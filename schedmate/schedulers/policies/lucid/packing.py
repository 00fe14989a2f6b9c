"""The Packing Analyze Model: from a profile to a Sharing Score (Lucid, section 3.5.1).

Tiny (0) jobs hardly disturb another on the same GPU, medium (1) ones a little, jumbo (2) ones much.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Protocol

from schedmate.errors import UsageError, reason_of
from schedmate.schedulers.learned.packages import require
from schedmate.schedulers.model import Profile

TINY, MEDIUM, JUMBO = range(3)

FEATURES = ("gpu_util", "memory_util", "memory_mb", "amp")


class Scorer(Protocol):
    """Scores how much a job slows down another on the same GPU."""

    def score(self, profile: Profile) -> int:
        """The Sharing Score: 0, 1 or 2."""
        ...


class Thresholds:
    """Scores by GPU utilisation alone, the most important feature (section 3.5.1).

    A job is tiny if it and one of 50 % both run at over 0.95 of their speed together, by the curve
    of `sim.parameters.UtilisationCurve`, and medium at over 0.85: the paper's thresholds.
    """

    def __init__(self, tiny: float = 31.0, medium: float = 81.0) -> None:
        self.tiny = tiny
        self.medium = medium

    def score(self, profile: Profile) -> int:
        util = profile.gpu_util
        return TINY if util <= self.tiny else MEDIUM if util <= self.medium else JUMBO

    def __str__(self) -> str:
        return (
            f"gpu_util <= {self.tiny:g} %: tiny\ngpu_util <= {self.medium:g} %: medium\nelse: jumbo"
        )


class Tree:
    """A decision tree over the four features, pruned at minimal cost-complexity.

    Learnt from measured jobs and their labels; printable. Needs the `schedulers` extra.
    """

    def __init__(self, rows: list[tuple[Profile, int]], ccp_alpha: float = 0.01) -> None:
        require("sklearn", what="learning scores from a file")
        from sklearn.tree import DecisionTreeClassifier

        self._tree: Any = DecisionTreeClassifier(ccp_alpha=ccp_alpha, random_state=0)
        self._tree.fit([list(map(float, profile)) for profile, _ in rows], [s for _, s in rows])
        self._known: dict[Profile, int] = {}

    def score(self, profile: Profile) -> int:
        found = self._known.get(profile)
        if found is None:
            found = self._known[profile] = int(self._tree.predict([list(map(float, profile))])[0])
        return found

    def __str__(self) -> str:
        from sklearn.tree import export_text

        return str(export_text(self._tree, feature_names=list(FEATURES)))

    @classmethod
    def read(cls, path: Path) -> Tree:
        """From a CSV with gpu_util, gmem_util, gmem, amp and label (0, 1, 2).

        Raises `UsageError` when it is not one.
        """
        try:
            with path.open(encoding="utf-8", newline="") as stream:
                rows = [
                    (
                        Profile(
                            float(row["gpu_util"]),
                            float(row["gmem_util"]),
                            float(row["gmem"]),
                            row["amp"] == "1",
                        ),
                        int(row["label"]),
                    )
                    for row in csv.DictReader(stream)
                ]
        except (OSError, KeyError, ValueError, UnicodeError) as error:
            raise UsageError(
                f"policy lucid: {path} is not a table of labelled jobs ({reason_of(error)}); it "
                "needs the columns gpu_util, gmem_util, gmem, amp and label."
            ) from None
        if not rows:
            raise UsageError(
                f"policy lucid: {path} has no labelled job; give rows, or leave scores out."
            )
        return cls(rows)
