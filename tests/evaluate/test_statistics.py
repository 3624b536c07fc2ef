"""Intervals and p-values: known cases, and how often they are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from jade.evaluate.statistics import compare, estimate, resampled_means


def groups_of(*samples: np.ndarray) -> dict[str, np.ndarray]:
    return {f"set {number}": sample for number, sample in enumerate(samples)}


scores = np_st.arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 1))


@settings(max_examples=40)
@given(st.lists(scores, min_size=1, max_size=3))
def test_the_interval_is_ordered_within_bounds_and_repeats(samples: list[np.ndarray]) -> None:
    groups = groups_of(*samples)
    one = estimate(groups, resamples=200, seed=3)
    assert 0.0 <= one.low <= one.high <= 1.0
    assert one.mean == pytest.approx(np.mean([sample.mean() for sample in samples]))
    assert one == estimate(groups, resamples=200, seed=3)


def test_without_variance_there_is_no_doubt() -> None:
    sure = estimate(groups_of(np.full(10, 0.25), np.full(3, 0.75)), resamples=100)
    assert (sure.mean, sure.low, sure.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_interval_is_that_of_the_normal_approximation_for_many_questions() -> None:
    sample = np.random.default_rng(0).random(2000)
    got = estimate(groups_of(sample), resamples=4000)
    spread = 1.96 * sample.std() / np.sqrt(len(sample))
    assert (got.low, got.high) == pytest.approx((sample.mean() - spread, sample.mean() + spread), abs=0.001)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    source = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        got = estimate(groups_of((source.random(80) < 0.3).astype(float)), resamples=400, seed=trial)
        hits += got.low <= 0.3 <= got.high
    assert 0.89 <= hits / 200 <= 0.99


def test_equal_methods_are_not_told_apart_and_unequal_ones_are() -> None:
    source = np.random.default_rng(2)
    base = source.random(300)
    assert compare(groups_of(base), groups_of(base), resamples=500).p_value == 1.0
    assert compare(groups_of(base + 0.1), groups_of(base), resamples=500).p_value == pytest.approx(1 / 501)
    noise = base + source.normal(0, 0.3, 300)
    noise += base.mean() - noise.mean()
    assert compare(groups_of(noise), groups_of(base), resamples=500).p_value > 0.9


def test_the_p_value_does_not_depend_on_the_direction() -> None:
    source = np.random.default_rng(4)
    one, other = source.random(60), source.random(60) + 0.08
    assert compare(groups_of(one), groups_of(other), 2000).p_value == pytest.approx(
        compare(groups_of(other), groups_of(one), 2000).p_value, abs=0.03
    )


def test_under_the_null_p_values_are_spread_evenly() -> None:
    source = np.random.default_rng(5)
    values = [
        compare(groups_of(source.random(60)), groups_of(source.random(60)), resamples=300, seed=s).p_value
        for s in range(200)
    ]
    assert 0.01 <= np.mean(np.array(values) < 0.05) <= 0.11
    assert 0.4 <= np.mean(np.array(values) < 0.5) <= 0.6


def test_groups_are_resampled_within_themselves_and_weigh_the_same() -> None:
    large, small = np.zeros(1000), np.ones(2)
    assert np.allclose(resampled_means(groups_of(large, small), 50, seed=0), 0.5)


def test_many_questions_do_not_take_much_memory() -> None:
    assert len(resampled_means(groups_of(np.zeros(3_000_001)), 2, seed=0)) == 2


@pytest.mark.parametrize(("num_questions", "gain"), [(60, 0.1), (60, 0.02), (200, 0.05), (200, 0.0)])
def test_p_values_and_intervals_agree_with_scipy(num_questions: int, gain: float) -> None:
    """Against another test of the same question (random signs) and another implementation of the same interval."""
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    source = np.random.default_rng(num_questions)
    ours = (source.random(num_questions) < 0.4).astype(float)
    theirs = np.where(source.random(num_questions) < 0.7, ours, source.random(num_questions)) - gain
    got = compare(groups_of(ours), groups_of(theirs), resamples=10_000)
    signs = stats.permutation_test(
        (ours, theirs),
        lambda one, other, axis: (one - other).mean(axis=axis),
        permutation_type="samples",
        n_resamples=10_000,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    assert got.p_value == pytest.approx(signs.pvalue, abs=0.02)
    interval = stats.bootstrap(
        (ours - theirs,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(0)
    ).confidence_interval
    assert (got.low, got.high) == pytest.approx((interval.low, interval.high), abs=0.004)


def test_the_p_value_of_a_mean_over_sets_agrees_with_a_z_test() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    source = np.random.default_rng(11)
    differences = [source.normal(mean, 0.4, size) for mean, size in ((0.03, 300), (0.04, 150), (-0.01, 500))]
    ours, theirs = groups_of(*differences), groups_of(*(np.zeros(len(each)) for each in differences))
    got = compare(ours, theirs, resamples=20_000)
    deviation = np.sqrt(sum(each.var() / len(each) for each in differences)) / len(differences)
    assert got.p_value == pytest.approx(2 * stats.norm.sf(abs(got.mean) / deviation), abs=0.015)
    assert (got.high - got.low) / 2 == pytest.approx(1.96 * deviation, rel=0.03)


def test_two_sets_of_the_same_scores_are_drawn_apart() -> None:
    sample = np.random.default_rng(3).random(50)
    one, two = (resampled_means({name: sample}, 2000, seed=0) for name in ("nq", "popqa"))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.1
    assert np.array_equal(one, resampled_means({"nq": sample}, 2000, seed=0))
    together = resampled_means({"nq": sample, "popqa": sample}, 2000, seed=0)
    assert together.std() == pytest.approx(one.std() / np.sqrt(2), rel=0.1)
