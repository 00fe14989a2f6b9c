"""Limits on the tokens and cost of model calls, and what has been used."""

from __future__ import annotations

import time
from dataclasses import dataclass

from schedmate.errors import ModelError
from schedmate.llm.store import Store

CHARACTERS_PER_TOKEN = 3.0
"""For source code and logs; low, so that estimates are rather too high."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on tokens (input and output together) and cost, per call, job and day.

    None is no limit. Prices are per million tokens; cost is in their currency.
    """

    call_tokens: int | None = None
    job_tokens: int | None = None
    day_tokens: int | None = None
    call_cost: float | None = None
    job_cost: float | None = None
    day_cost: float | None = None
    price_input: float = 0.0
    price_output: float = 0.0

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """The cost of this many tokens."""
        return (input_tokens * self.price_input + output_tokens * self.price_output) / 1e6

    def check(self, store: Store, job: str | None, input_tokens: int, output_tokens: int) -> None:
        """Raise `ModelError` if a call of that size would exceed a limit.

        `output_tokens` is the limit for the reply. A day is the last 24 hours.
        """
        tokens, cost = input_tokens + output_tokens, self.cost(input_tokens, output_tokens)
        spent = {"call": (0, 0.0)}
        if job is not None and (self.job_tokens is not None or self.job_cost is not None):
            spent["job"] = store.spent(job=job)
        if self.day_tokens is not None or self.day_cost is not None:
            spent["day"] = store.spent(since=time.time() - 86_400)
        for unit, (used, paid) in spent.items():
            for limit, amount, what in (
                (getattr(self, f"{unit}_tokens"), used + tokens, "tokens"),
                (getattr(self, f"{unit}_cost"), paid + cost, "cost"),
            ):
                if limit is not None and amount > limit:
                    raise ModelError(
                        "budget",
                        f"a call of up to {tokens:,} tokens would pass the limit of {limit:,} "
                        f"{what} a {unit}; raise llm_{unit}_{what} if it should be made",
                    )


def estimate_tokens(characters: int) -> int:
    """An estimate of the tokens in that many characters, rather too high than too low."""
    return int(characters / CHARACTERS_PER_TOKEN) + 1
