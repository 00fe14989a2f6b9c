"""The additive model with pairwise interactions (GA2M) behind both of Lucid's predictors.

Fitted by interpret-core's explainable boosting machine. Every prediction is the sum of an
intercept and of terms over one or two features, so a term can be drawn (Lucid, figure 7) and
corrected: features that must not decrease the answer are made monotone by pool adjacent violators
(section 3.6.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Term:
    """One term of a fitted model, to be drawn."""

    features: tuple[str, ...]
    """One feature, or two that interact."""
    importance: float
    """Mean absolute score over the rows that it was fitted on."""
    cuts: tuple[list[float], ...]
    """Of each feature, the values between neighbouring bins, ascending."""
    scores: list[Any]
    """What each bin adds to the answer; for two features a list of lists, the first one's bins
    outside."""

    @property
    def name(self) -> str:
        return " & ".join(self.features)


class Ga2m:
    """A GA2M over named features.

    Args:
        features: a name for each column.
        increasing: features in which predictions must not decrease; they take no part in
            interactions, so that this holds for the whole model.
        rounds: most boosting rounds.
        objective: `rmse`, or `poisson_deviance` for counts.
    """

    def __init__(
        self,
        features: Sequence[str],
        *,
        increasing: Sequence[str] = (),
        rounds: int = 500,
        objective: str = "rmse",
    ) -> None:
        from interpret.glassbox import ExplainableBoostingRegressor

        self.features = list(features)
        self._increasing = [name for name in features if name in increasing]
        self._model: Any = ExplainableBoostingRegressor(
            feature_names=self.features,
            feature_types=["continuous"] * len(self.features),
            # Two bags fit a trace in seconds, at the error of the default fourteen.
            outer_bags=2,
            interactions=5,
            exclude=[
                (kept, other)
                for kept in self._increasing
                for other in self.features
                if other != kept
            ],
            max_rounds=rounds,
            objective=objective,
            n_jobs=1,
            random_state=0,
        )

    def fit(self, rows: NDArray[np.float64], targets: Sequence[float]) -> Ga2m:
        """Fit to `rows` (n x features) and `targets` (n)."""
        self._model.fit(rows, targets)
        for name in self._increasing:
            term = self._model.term_names_.index(name)
            if len(self._model.term_scores_[term]) > 3:  # two bins besides missing and unseen
                self._model.monotonize(term, increasing=True)
        return self

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The answer for each row (n)."""
        answer: NDArray[np.float64] = self._model.predict(rows)
        return answer

    @property
    def intercept(self) -> float:
        """The constant term."""
        return float(self._model.intercept_)

    def terms(self) -> list[Term]:
        """Every term, the most important first: the global explanation."""
        model = self._model
        found = []
        for columns, scores, importance in zip(
            model.term_features_, model.term_scores_, model.term_importances(), strict=True
        ):
            cuts = tuple(
                # An interaction may use coarser bins than its features.
                [float(cut) for cut in model.bins_[c][min(len(columns), len(model.bins_[c])) - 1]]
                for c in columns
            )
            # The outermost bins are for missing and unseen values, which these rows never have.
            inner = scores[(slice(1, -1),) * len(columns)]
            names = tuple(self.features[column] for column in columns)
            found.append(Term(names, float(importance), cuts, inner.tolist()))
        return sorted(found, key=lambda term: -term.importance)

    def contributions(self, row: Sequence[float]) -> dict[str, float]:
        """The contribution of each term to one row, largest first: the local explanation.

        With `intercept` they add up to the answer (of its logarithm for counts).
        """
        model = self._model
        scores = model.eval_terms([list(row)])[0]
        named = {
            " & ".join(self.features[column] for column in columns): float(score)
            for columns, score in zip(model.term_features_, scores, strict=True)
        }
        ordered = dict(sorted(named.items(), key=lambda pair: -abs(pair[1])))
        return {"intercept": self.intercept, **ordered}
