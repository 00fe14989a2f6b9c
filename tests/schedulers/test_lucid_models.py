"""The parts of Lucid's models: groups of names, additive terms, the throughput of submissions."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.schedulers.estimators import BIN_S, DAY_S, HOUR_S, Load
from schedmate.schedulers.learned import (
    LOAD_FEATURES,
    Ga2m,
    LearnedLoad,
    NameGroups,
    load_features,
    mask_numbers,
)
from schedmate.schedulers.model import Cluster, Profile
from schedmate.schedulers.registry import make
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.workload import Workload


def test_names_of_one_campaign_are_one_group() -> None:
    campaigns = {
        "resnet": [f"resnet50_imagenet_lr0.{n}{tail}" for n in range(9) for tail in ("", "_bs64")],
        "bert": [f"bert-base-squad_run{n}{tail}" for n in range(9) for tail in ("", "_final")],
        "gpt": [f"gpt2_wikitext_pretrain_{n}{tail}" for n in range(9) for tail in ("", "_v2")],
    }
    groups = NameGroups()
    groups.fit(Counter(mask_numbers(name) for names in campaigns.values() for name in names))
    found = {
        campaign: {groups.group(mask_numbers(name)) for name in names}
        for campaign, names in campaigns.items()
    }
    assert [len(group) for group in found.values()] == [1, 1, 1]
    assert len(set.union(*found.values())) == 3
    # One that was never seen joins what it resembles; one that resembles nothing stays alone.
    assert groups.group(mask_numbers("resnet101_imagenet_lr0.1")) in found["resnet"]
    assert groups.group("data cleaning") == "data cleaning"


@given(st.lists(st.text("abc_1", max_size=6), max_size=12))
@settings(max_examples=30)
def test_every_name_has_a_group_and_an_exemplar_is_its_own(names: list[str]) -> None:
    groups = NameGroups()
    groups.fit(Counter(map(mask_numbers, names)))
    for name in groups.exemplars:
        assert groups.group(name) == name
    for name in map(mask_numbers, names):
        assert groups.group(name) in {name, *groups.exemplars}


def noisy_rows(count: int = 400) -> tuple[np.ndarray, list[float]]:
    """Run times that grow with GPUs on the whole, with noise that does not."""
    draw = random.Random(3)
    rows = [[draw.choice([1, 2, 4, 8, 16]), draw.randrange(24)] for _ in range(count)]
    targets = [0.1 * math.log(gpus) + 0.1 * hour + draw.gauss(0, 2) for gpus, hour in rows]
    return np.array(rows, dtype=float), targets


def test_more_gpus_never_shorten_the_answer() -> None:
    rows, targets = noisy_rows()
    free = Ga2m(["gpus", "hour"], rounds=300).fit(rows, targets)
    kept = Ga2m(["gpus", "hour"], increasing=["gpus"], rounds=300).fit(rows, targets)

    def by_gpus(model: Ga2m, hour: int) -> list[float]:
        return model.predict(np.array([[g, hour] for g in (1, 2, 4, 8, 16)], dtype=float)).tolist()

    assert any(by_gpus(free, hour) != sorted(by_gpus(free, hour)) for hour in range(24))
    for hour in range(24):
        assert by_gpus(kept, hour) == sorted(by_gpus(kept, hour))


def test_terms_add_up_to_the_answer() -> None:
    rows, targets = noisy_rows()
    model = Ga2m(["gpus", "hour"], rounds=200).fit(rows, targets)
    for row in rows[:20]:
        parts = model.contributions(row.tolist())
        assert math.isclose(sum(parts.values()), model.predict(row[None, :])[0], abs_tol=1e-9)
    terms = {term.name: term for term in model.terms()}
    hour = terms["hour"]
    assert len(hour.scores) == len(hour.cuts[0]) + 1
    # The drawn term is the term that answers.
    row = rows[0].tolist()
    at = bisect_left(hour.cuts[0], row[1] + 1e-9)
    assert math.isclose(hour.scores[at], model.contributions(row)["hour"], abs_tol=1e-9)
    if "gpus & hour" in terms:
        both = terms["gpus & hour"]
        assert len(both.scores) == len(both.cuts[0]) + 1
        assert len(both.scores[0]) == len(both.cuts[1]) + 1


@given(st.lists(st.integers(0, 9), min_size=2, max_size=60), st.data())
@settings(max_examples=20)
def test_features_know_nothing_later(counts: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(counts) - 1))
    whole = load_features(np.array(counts, dtype=float), 700)
    past = load_features(np.array(counts[:cut], dtype=float), 700)
    assert whole.shape == (len(counts) + 1, len(LOAD_FEATURES))
    assert np.allclose(whole[: cut + 1], past)


def submissions(days: int) -> list[float]:
    """Busy from 9 to 18 o'clock on weekdays, from a Monday on."""
    draw = random.Random(5)
    monday = 4 * DAY_S
    times = []
    for each in range(int(days * DAY_S / BIN_S)):
        now = monday + each * BIN_S
        busy = 9 <= now % DAY_S / HOUR_S < 18 and (now - monday) // DAY_S % 7 < 5
        times += [now + draw.random() * BIN_S for _ in range(int(draw.gauss(12 if busy else 1, 1)))]
    return sorted(times)


def test_a_season_and_a_learnt_one() -> None:
    times = submissions(42)
    wrong: dict[str, list[float]] = {"season": [], "ga2m": []}
    learned, season = LearnedLoad(rounds=300), Load()
    assert season.expected([], 0.0) == 0.0
    last = times[-1] - HOUR_S
    for each in range(0, int(7 * DAY_S / BIN_S), 3):
        now = last - 7 * DAY_S + each * BIN_S
        now -= now % BIN_S
        here = bisect_left(times, now)
        coming = bisect_left(times, now + BIN_S) - here
        for load in (learned, season):
            wrong[load.name].append(abs(load.expected(times[:here], now) - coming))
    assert learned.fits == 1
    assert np.mean(wrong["ga2m"]) < 0.7 * np.mean(wrong["season"])


@given(
    st.lists(st.tuples(st.integers(0, 9 * 24), st.integers(1, 8)), max_size=40),
    st.lists(st.integers(0, 10 * 24), min_size=1, max_size=8),
)
@settings(max_examples=40)
def test_the_season_is_of_the_same_hours_whenever_it_is_asked(
    jobs: list[tuple[int, int]], asked_at: list[int]
) -> None:
    jobs, load = sorted(jobs), Load()
    times = [hour * HOUR_S for hour, _ in jobs]
    asked = [0, *accumulate(gpus for _, gpus in jobs)]
    for hour in asked_at:  # the clock may go back, as in another run with the same forecast
        now = hour * HOUR_S
        hours = [(now - HOUR_S, now)]
        hours += [
            (now - day * DAY_S, now - day * DAY_S + HOUR_S)
            for day in range(1, 8)
            if times and now - day * DAY_S >= times[0]
        ]
        for forecast, weights in (
            (load.expected(times, now), [1] * len(jobs)),
            (load.expected_gpus(times, asked, now), [gpus for _, gpus in jobs]),
        ):
            counts = [
                sum(w for time, w in zip(times, weights, strict=True) if begin <= time < end)
                for begin, end in hours
            ]
            assert forecast == pytest.approx(max(counts[0], sum(counts) / len(counts)) / 6)


def test_demand_is_learnt_apart_from_the_number_of_jobs() -> None:
    times = submissions(28)
    # As many jobs at night, of eight GPUs each.
    asked = [0, *accumulate(1 if 9 <= now % DAY_S / HOUR_S < 18 else 8 for now in times)]
    load = LearnedLoad(rounds=100)
    night, noon = (times[-1] // DAY_S * DAY_S + hour * HOUR_S for hour in (3, 12))
    of = {
        now: load.expected_gpus(times[: bisect_left(times, now)], asked, now)
        / load.expected(times[: bisect_left(times, now)], now)
        for now in (night, noon)
    }
    assert of[night] > 3 * of[noon]


def test_load_before_there_is_a_past_to_learn_from() -> None:
    times = submissions(3)
    assert LearnedLoad().expected(times, times[-1]) == Load().expected(times, times[-1])


@pytest.mark.parametrize("kind", [Load, LearnedLoad])
def test_load_is_of_the_last_hour_at_first(kind: type[Load]) -> None:
    times = [float(second) for second in range(0, 3600, 60)]
    assert kind().expected(times, 3600.0) == 10.0


class Told(Load):
    """A forecast that is always the same."""

    def __init__(self, jobs: float) -> None:
        self.jobs = jobs

    def expected(self, submitted: Sequence[float], now: float) -> float:
        return self.jobs

    def expected_gpus(self, submitted: Sequence[float], asked: Sequence[int], now: float) -> float:
        return 2.0 * self.jobs


@pytest.mark.parametrize("demand", ["true", "false"])
@pytest.mark.parametrize(("jobs", "shared"), [(0.4, False), (4.0, True)])
def test_lucid_shares_only_when_many_jobs_are_to_come(
    jobs: float, demand: str, *, shared: bool
) -> None:
    small = Profile(10.0, 5.0, 1000.0)
    workload = Workload.of([(0, 5000, 2), (1, 5000, 2), (2, 5000, 2)], profiles=[small] * 3)
    decided = Simulation(
        workload, make(f"lucid:demand={demand}"), Cluster.parse("8x2"), load=Told(jobs)
    ).run()
    assert ("Pack" in decided.decisions) is shared


def test_lucid_lends_nodes_to_the_profiler_before_the_wave_is_there() -> None:
    def profiled_at(jobs: float) -> float:
        workload = Workload.of([(0, 5000, 2), (0, 5000, 2)])
        outcome = Simulation(
            workload, make("lucid:burst=5"), Cluster.parse("4x2"), load=Told(jobs)
        ).run()
        return max(outcome.first_start)

    # Ten jobs in the 200 s that a profile takes are to come: the second waits for no profiler.
    assert profiled_at(30.0) == 0.0
    assert profiled_at(3.0) > 0.0
