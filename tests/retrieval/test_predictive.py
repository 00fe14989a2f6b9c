"""The predictive distribution of run times."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.retrieval.run_time import LEVELS, Prior, Run, predict

PRIOR = Prior(runs=2.0, spreads=2.0)

completed = st.builds(
    Run, duration_s=st.floats(1e-2, 1e7), weight=st.floats(1e-3, 10), censored=st.just(False)
)
any_run = st.builds(
    Run, duration_s=st.floats(1e-2, 1e7), weight=st.floats(1e-3, 10), censored=st.booleans()
)
samples = st.tuples(completed, st.lists(any_run, max_size=20)).map(lambda pair: [pair[0], *pair[1]])


def quantiles(runs: list[Run]) -> tuple[float, float, float]:
    prediction = predict(runs, PRIOR)
    assert prediction is not None
    return prediction.p10_s, prediction.p50_s, prediction.p90_s


@given(samples)
def test_quantiles_are_ordered_and_positive(runs: list[Run]) -> None:
    p10, p50, p90 = quantiles(runs)
    assert 0 < p10 <= p50 <= p90 < math.inf


@given(samples, st.floats(1e-3, 1e3))
def test_a_common_factor_of_durations_multiplies_the_result(runs: list[Run], by: float) -> None:
    scaled = [Run(run.duration_s * by, run.weight, run.censored) for run in runs]
    for one, other in zip(quantiles(runs), quantiles(scaled), strict=True):
        assert other == pytest.approx(one * by, rel=1e-6)


@given(samples, st.sampled_from([0.125, 0.5, 4.0, 64.0]))
def test_a_common_factor_of_weights_does_nothing(runs: list[Run], by: float) -> None:
    scaled = [Run(run.duration_s, run.weight * by, run.censored) for run in runs]
    assert quantiles(scaled) == quantiles(runs)


@given(samples, st.randoms(use_true_random=False))
def test_order_does_not_matter(runs: list[Run], shuffler: random.Random) -> None:
    shuffled = list(runs)
    shuffler.shuffle(shuffled)
    assert quantiles(shuffled) == pytest.approx(quantiles(runs))


@given(samples)
def test_cutting_runs_short_never_lowers_the_estimate(runs: list[Run]) -> None:
    # What ended at t when cut short would have ended later; the same run completed ends at t.
    finished = [Run(run.duration_s, run.weight) for run in runs]
    cut = [runs[0], *(Run(run.duration_s, run.weight, censored=True) for run in runs[1:])]
    assert quantiles(cut)[1] >= quantiles(finished)[1] * (1 - 1e-9)


@given(st.lists(any_run.map(lambda run: Run(run.duration_s, run.weight, censored=True))))
def test_nothing_completed_is_no_prediction(runs: list[Run]) -> None:
    assert predict(runs, PRIOR) is None


@given(samples)
def test_a_duplicated_sample_keeps_the_median_within_the_sample(runs: list[Run]) -> None:
    finished = [Run(run.duration_s, 1.0) for run in runs]
    low, high = (f(run.duration_s for run in finished) for f in (min, max))
    for sample in (finished, finished * 2):
        assert low * (1 - 1e-9) <= quantiles(sample)[1] <= high * (1 + 1e-9)


def test_one_run_has_the_width_of_the_prior() -> None:
    p10, p50, p90 = quantiles([Run(100, 1)])
    assert p50 == pytest.approx(100)
    # A Laplace quantile at 10 % of the mass, a third of which is the run itself.
    assert p10 == pytest.approx(100 * math.exp(math.log(2 * 0.15)), rel=0.1)
    assert p90 == pytest.approx(100**2 / p10)


def test_more_equal_runs_narrow_it() -> None:
    widths = [
        math.log(p90 / p10)
        for p10, _, p90 in (quantiles([Run(100, 1)] * count) for count in (1, 3, 6, 30))
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == pytest.approx(0, abs=1e-9)


def test_many_runs_give_their_own_quantiles() -> None:
    p10, p50, p90 = quantiles([Run(value, 1) for value in range(1, 1001)])
    assert (p10, p50, p90) == pytest.approx((100, 500, 900), rel=0.03)


def test_kaplan_meier_example() -> None:
    # Completed at 1, 3 and 4, cut short at 2: by hand S(1) = 3/4, S(3) = 3/8, S(4) = 0.
    runs = [Run(1, 1), Run(2, 1, censored=True), Run(3, 1), Run(4, 1)]
    prediction = predict(runs, Prior(runs=1e-9, spreads=1.0, median_runs=1e-9))
    assert prediction is not None
    assert prediction.p50_s == pytest.approx(3)
    assert prediction.p90_s == pytest.approx(4)
    assert not prediction.bounded


def test_median_among_cut_short_runs_is_called_a_bound() -> None:
    prediction = predict([Run(10, 1), *[Run(1000, 1, censored=True)] * 5], PRIOR)
    assert prediction is not None
    assert prediction.bounded
    assert prediction.p50_s >= 1000


def test_short_cut_runs_say_little() -> None:
    runs = [Run(100, 1)] * 4
    cut = [Run(1, 1, censored=True)] * 4
    assert quantiles(runs + cut) == pytest.approx(quantiles(runs), rel=0.2)


def ratio(runs: list[Run], prior: Prior = PRIOR) -> float:
    prediction = predict(runs, prior)
    assert prediction is not None
    return prediction.p90_s / prediction.p10_s


def test_runs_that_agree_narrow_it_and_runs_that_differ_widen_it() -> None:
    one = ratio([Run(100, 1)])
    assert ratio([Run(100, 1), Run(103, 1)]) < one / 2
    assert ratio([Run(100, 1), Run(900, 1)]) > one


@given(samples)
def test_runs_that_are_expected_far_apart_never_narrow_it(runs: list[Run]) -> None:
    near, far = (
        [Run(run.duration_s, run.weight, run.censored, spread) for run in runs]
        for spread in (0.2, 0.8)
    )
    assert ratio(near) <= ratio(far) * (1 + 1e-9)
    assert quantiles(near)[1] == quantiles(far)[1]


def test_a_run_cut_short_before_the_median_does_not_widen_it() -> None:
    runs = [Run(100, 1), Run(103, 1)]
    assert ratio([*runs, Run(5, 1, censored=True)]) <= ratio(runs) * (1 + 1e-9)


def test_a_run_cut_short_after_the_median_raises_the_upper_end() -> None:
    runs = [Run(100, 1), Run(103, 1)]
    _, _, before = quantiles(runs)
    low, _, after = quantiles([*runs, Run(200, 1, censored=True)])
    assert after > max(before, 200)
    assert low < 100


def test_it_says_how_much_of_the_width_is_the_runs_own() -> None:
    shares = []
    for runs in ([Run(100, 1)], [Run(100, 1), Run(103, 1)], [Run(100, 1), Run(9000, 1)] * 4):
        prediction = predict(runs, PRIOR)
        assert prediction is not None
        shares.append(prediction.own)
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] > 0.5


def test_many_runs_that_agree_do_not_exclude_another_time() -> None:
    runs = [Run(100, 1)] * 30
    assert ratio(runs) == pytest.approx(1)
    assert 1.01 < ratio(runs, Prior(runs=2.0, spreads=2.0, share=0.5)) < ratio([Run(100, 1)])


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_the_whole_distribution_agrees_with_its_named_percentiles(shared: float) -> None:
    runs = [Run(100.0 * 1.3**n, 1.0, censored=n % 4 == 3, spread=0.4) for n in range(9)]
    prediction = predict(runs, Prior(runs=4.0, spreads=3.0, share=0.5), shared)
    assert prediction is not None
    quantiles = prediction.quantiles_s
    assert len(quantiles) == len(LEVELS)
    assert sorted(quantiles) == list(quantiles)
    assert quantiles[2] == prediction.p10_s < prediction.p50_s < prediction.p90_s == quantiles[22]
    plain = predict(runs, Prior(runs=4.0, spreads=3.0, share=0.5))
    assert plain is not None
    if shared:
        assert prediction.p50_s == plain.p50_s
        assert prediction.p90_s / prediction.p50_s == pytest.approx(
            math.exp(math.hypot(math.log(plain.p90_s / plain.p50_s), shared))
        )
