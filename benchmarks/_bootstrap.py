"""The interval of a share by drawing repositories anew, since answers about one go together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

DRAWS = 2000
SEED = 0


def bootstrap(outcomes: Iterable[tuple[str, bool]]) -> str:
    """The 95 % interval of the share of successes, from (repository, success) pairs, as text.

    As many repositories as there are are drawn with replacement, 2,000 times, each with all of its
    answers (Field and Welsh, J. R. Stat. Soc. B 69, 2007: the cluster bootstrap); the interval is
    between the percentiles 2.5 and 97.5 of the shares.
    """
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for repo, success in outcomes:
        counts[repo][0] += success
        counts[repo][1] += 1
    if not counts:
        return "-"
    table = np.array(list(counts.values()), dtype=float)
    drawn = np.random.default_rng(SEED).integers(len(table), size=(DRAWS, len(table)))
    sums = table[drawn].sum(axis=1)
    low, high = np.percentile(sums[:, 0] / sums[:, 1], [2.5, 97.5])
    return f"{low:.3f} to {high:.3f}"
