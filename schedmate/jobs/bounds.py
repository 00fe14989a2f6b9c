"""What texts and numbers of jobs may be, so that every store and every reader takes them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from schedmate.plain import LARGEST, LONGEST_S, MOST_GPUS, encodable


def _countable(value: Any) -> Any:
    # pydantic cannot even say what is wrong with a number that Python refuses to print
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("Input should be a number of at most 64 bits")
    return value


Gpus = Annotated[int, Field(ge=0, le=MOST_GPUS), BeforeValidator(_countable)]
"""A number of GPUs."""

Nodes = Annotated[int, Field(ge=1, le=MOST_GPUS), BeforeValidator(_countable)]
"""A number of nodes."""

Seconds = Annotated[float, Field(ge=0, le=LONGEST_S)]
"""A length of time [s]."""

Moment = Annotated[float, Field(ge=-LONGEST_S, le=LONGEST_S)]
"""A point in time [s since epoch]."""

Text = Annotated[str, AfterValidator(encodable)]
"""Text in which lone surrogates have become escapes."""
