"""When jobs are submitted: the assumed shape of days and weeks, or a series of one's own."""

from __future__ import annotations

import csv
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schedmate.errors import InputError, unreadable
from schedmate.schedulers.sim.traces.calibration import Calibration
from schedmate.schedulers.sim.traces.values import MOST

Floats = NDArray[np.float64]


def read_arrivals(path: Path, column: str) -> Floats:
    """The counts in one column of a CSV with a row for each of equal parts of time, in order.

    Raises `InputError` when it cannot be read, naming the line of a cell that is not a count.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            if column not in (reader.fieldnames or ()):
                has = ", ".join(reader.fieldnames or ()) or "none"
                raise InputError(f"{path} has no column {column!r}; name one that it has: {has}.")
            counts = []
            for row in reader:
                value = float(row[column] or "nan")
                if not 0 <= value <= MOST:
                    raise ValueError(row[column])
                counts.append(value)
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, TypeError, csv.Error, UnicodeDecodeError):
        raise InputError(
            f"{path}, line {reader.line_num}: {column} is not a count; correct it, a number of at "
            "least 0."
        ) from None
    if not sum(counts):
        raise InputError(f"{path} has no submissions in {column!r}; name another column.")
    return np.array(counts)


def submissions(
    calibration: Calibration,
    jobs: int,
    count: int,
    arrivals: Floats | None,
    rng: np.random.Generator,
) -> Floats:
    """`count` submission times [whole s] in the time that `jobs` jobs take, ascending."""
    targets, assumed = calibration.targets, calibration.assumed
    day = datetime.fromisoformat(str(assumed["start"])).replace(tzinfo=UTC)
    span = float(targets["days"]) * 86_400
    part = jobs / float(targets["jobs"])
    if arrivals is None:
        hours = max(1, round(span * part / 3600))
        weights = np.array(
            [
                assumed["hours"][hour % 24] * assumed["weekdays"][(day.weekday() + hour // 24) % 7]
                for hour in range(hours)
            ],
            dtype=float,
        )
        if calibration.campaigns is not None:
            weights *= np.exp(rng.normal(0.0, calibration.campaigns.rate_spread, hours))
        length = span * part / hours
    else:
        # The first jobs of the series, which is repeated if it is too short.
        reach = np.cumsum(np.tile(arrivals, math.ceil(part)))
        bins = int(np.searchsorted(reach, part * arrivals.sum())) + 1
        weights = np.tile(arrivals, math.ceil(part))[:bins]
        length = span / len(arrivals)
    reached = np.concatenate([[0.0], np.cumsum(weights)])
    at = (np.arange(count) + rng.random(count)) / count * reached[-1]
    edges = np.arange(len(reached)) * length
    result: Floats = np.floor(day.timestamp() + np.interp(at, reached, edges))
    return result
