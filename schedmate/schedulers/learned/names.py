"""Similar job names: Levenshtein similarity, grouped by affinity propagation.

Lucid buckets the sparse names of jobs this way (section 3.5.3). Digits are masked first, since most
names of one campaign differ only in a number. Affinity propagation compares all pairs, so it gets
the most frequent names only; any other name joins the nearest exemplar that is similar enough.
"""

from __future__ import annotations

import re
from collections import Counter

_LIKE = 0.7
"""Least normalised similarity of a name to the exemplar of a group that it joins."""


def masked(name: str) -> str:
    """The name with every number as one `#`."""
    return re.sub(r"\d+", "#", name.strip().lower())


class NameGroups:
    """Groups of similar names, each represented by its exemplar.

    Args:
        most: most distinct names for affinity propagation, whose time and memory grow with the
            square.
    """

    def __init__(self, most: int = 500) -> None:
        self.most = most
        self.exemplars: list[str] = []
        self._known: dict[str, str] = {}

    def fit(self, names: Counter[str]) -> None:
        """Group these masked names, by how often each occurred."""
        frequent = [name for name, _ in names.most_common(self.most) if name]
        self._known = {}
        self.exemplars = _exemplars(frequent)

    def group(self, name: str) -> str:
        """The exemplar of a masked name's group; the name itself when it is like none."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._nearest(name)
        return found

    def _nearest(self, name: str) -> str:
        if not self.exemplars or not name:
            return name
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import extractOne

        best = extractOne(
            name, self.exemplars, scorer=Levenshtein.normalized_similarity, score_cutoff=_LIKE
        )
        return name if best is None else str(best[0])


def _exemplars(names: list[str]) -> list[str]:
    if len(names) < 3:
        return names
    import warnings

    import numpy as np
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cdist
    from sklearn.cluster import AffinityPropagation
    from sklearn.exceptions import ConvergenceWarning

    similarity = cdist(names, names, scorer=Levenshtein.normalized_similarity, dtype=np.float64)
    pairs = similarity[~np.eye(len(names), dtype=bool)]
    if pairs.min() == pairs.max():
        return names if pairs[0] < _LIKE else names[:1]
    # The preference is a name's similarity to being its own exemplar: at the threshold, a name
    # is grouped with those that reach it, and else stays alone.
    model = AffinityPropagation(
        affinity="precomputed", preference=_LIKE, max_iter=1000, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(similarity)
    chosen = model.cluster_centers_indices_
    return [names[int(index)] for index in chosen] if len(chosen) else names
