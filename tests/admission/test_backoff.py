"""How long a run waits before its next attempt after a failure."""

from __future__ import annotations

import math
import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission import Backoff, Jitter
from tests.strategies import durations, randoms

LAST = 2**32 - 1
"""The largest number of retries that the rules are stated for."""


class Draws:
    """A source that always draws the same."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


LOWEST, MIDDLE, HIGHEST = Draws(0.0), Draws(0.5), Draws(math.nextafter(1.0, 0.0))


def range_of(backoff, index):
    return backoff.delay_for_retry(index, LOWEST), pytest.approx(backoff.delay_for_retry(index, HIGHEST))


backoffs = st.builds(
    lambda first, more, factor, jitter, floor: Backoff(first, first + more, factor, jitter, floor),
    durations,
    durations,
    st.floats(1, 1e6),
    st.sampled_from(Jitter),
    durations,
)


# -- the delay -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "low", "high"), [(0, 0.1, 0.2), (1, 0.2, 0.4), (2, 0.4, 0.8), (20, 15, 30)])
def test_by_default_delays_double_from_a_fifth_of_a_second_to_thirty_with_equal_jitter(index, low, high):
    assert range_of(Backoff(), index) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("index", [0, 1, 2, LAST])
def test_a_constant_backoff_waits_the_same_before_every_retry(index):
    assert Backoff.constant(5).delay_for_retry(index, MIDDLE) == 5


def test_a_constant_backoff_may_exceed_the_default_cap():
    assert Backoff.constant(60).delay_for_retry(0, MIDDLE) == 60


def test_an_exponential_backoff_doubles_up_to_thirty_seconds():
    backoff = Backoff.exponential(0.125)
    assert [backoff.delay_for_retry(index, MIDDLE) for index in (0, 1, 2, 7, 8)] == [0.125, 0.25, 0.5, 16, 30]


def test_an_exponential_backoff_may_exceed_the_default_cap():
    backoff = Backoff.exponential(45)
    assert [backoff.delay_for_retry(index, MIDDLE) for index in (0, 1)] == [45, 45]


@pytest.mark.parametrize("index", [100, 5000, LAST])
@pytest.mark.parametrize("factor", [2.0, 1e300])
def test_growth_ends_at_the_cap_however_far_it_goes(factor, index):
    assert Backoff(0.1, 60, factor, Jitter.NONE).delay_for_retry(index, MIDDLE) == 60


@pytest.mark.parametrize("make", [Backoff.constant, Backoff.exponential])
def test_the_first_delay_may_be_a_timedelta(make):
    assert make(timedelta(milliseconds=500)).first == 0.5


@given(backoffs, st.integers(0, LAST), randoms)
def test_a_delay_is_never_below_the_floor_and_never_above_the_cap(backoff, index, random):
    assert backoff.floor <= backoff.delay_for_retry(index, random) <= backoff.cap


# -- the least delay -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 1, 2, LAST])
@pytest.mark.parametrize("random", [LOWEST, MIDDLE, HIGHEST])
def test_a_delay_below_a_millisecond_is_lifted_to_one(index, random):
    backoff = Backoff(first=0.0005, cap=1, factor=1, jitter=Jitter.FULL)
    assert backoff.delay_for_retry(index, random) == 0.001


def test_a_delay_is_lifted_to_the_cap_where_that_is_below_a_millisecond():
    backoff = Backoff(first=0.0005, cap=0.0005, jitter=Jitter.FULL)
    assert backoff.delay_for_retry(0, LOWEST) == 0.0005


@pytest.mark.parametrize("index", [0, 1, LAST])
@pytest.mark.parametrize("jitter", Jitter)
def test_a_first_delay_of_zero_means_at_once_before_every_retry(jitter, index):
    assert Backoff(first=0, jitter=jitter).delay_for_retry(index, HIGHEST) == 0


def test_a_floor_holds_for_a_first_delay_of_zero_too():
    assert Backoff(first=0, floor=0.5).delay_for_retry(3, MIDDLE) == 0.5


def test_the_floor_is_applied_after_the_jitter():
    backoff = Backoff(first=1, jitter=Jitter.FULL).with_floor(0.75)
    assert [backoff.delay_for_retry(0, random) for random in (LOWEST, MIDDLE, Draws(0.875))] == [0.75, 0.75, 0.875]


# -- jitter --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jitter", "low", "high"), [("none", 8, 8), ("full", 0, 8), ("equal", 4, 8), ("randomized_band", 0, 8)]
)
def test_a_jitter_spreads_a_delay_over_its_range(jitter, low, high):
    assert Jitter(jitter).apply(8, LOWEST) == low
    assert Jitter(jitter).apply(8, HIGHEST) == pytest.approx(high)


@pytest.mark.parametrize("jitter", Jitter)
def test_no_delay_stays_none_whatever_the_jitter(jitter):
    assert jitter.apply(0, HIGHEST) == 0


@pytest.mark.parametrize(("lower", "seed", "cap", "low", "high"), [(0.1, 0.3, 10, 0.1, 0.9), (10, 50, 5, 5, 5)])
def test_a_band_reaches_from_its_lower_end_to_three_times_the_seed_within_the_cap(lower, seed, cap, low, high):
    band = Jitter.RANDOMIZED_BAND
    assert band.apply_band(lower, seed, cap, LOWEST) == low
    assert band.apply_band(lower, seed, cap, HIGHEST) == pytest.approx(high)


@pytest.mark.parametrize(("jitter", "low"), [(Jitter.NONE, 0.1), (Jitter.FULL, 0), (Jitter.EQUAL, 0.05)])
def test_without_a_band_the_lower_end_alone_is_spread(jitter, low):
    assert jitter.apply_band(0.1, 99, 99, LOWEST) == low
    assert jitter.apply_band(0.1, 99, 99, HIGHEST) == pytest.approx(0.1)


def test_a_band_starts_at_the_first_delay_and_grows_with_the_computed_one():
    backoff = Backoff(first=0.1, factor=2, jitter=Jitter.RANDOMIZED_BAND)
    assert range_of(backoff, 0) == (0.1, pytest.approx(0.3))
    assert range_of(backoff, 8) == (0.1, 30)


def test_draws_of_tiny_delays_differ():
    draws = {Jitter.FULL.apply(1e-6, Draws(number / 50)) for number in range(50)}
    assert len(draws) == 50
    assert max(draws) < 1e-6


@pytest.mark.parametrize("longest", [sys.float_info.max, math.inf])
def test_the_longest_delay_there_is_comes_back_from_its_band(longest):
    backoff = Backoff(first=longest, cap=longest, factor=1, jitter=Jitter.RANDOMIZED_BAND)
    assert backoff.delay_for_retry(3, MIDDLE) == longest


@pytest.mark.parametrize("random", [LOWEST, MIDDLE])
def test_a_band_without_an_upper_end_gives_its_lower_one(random):
    backoff = Backoff(first=1, cap=math.inf, factor=1e300, jitter=Jitter.RANDOMIZED_BAND)
    assert backoff.delay_for_retry(2, random) == 1


# -- making one ----------------------------------------------------------------------------------------------------


def test_whatever_a_backoff_is_made_of_it_holds_float_seconds():
    backoff = Backoff(first=timedelta(seconds=1), cap=60, factor=2, floor=timedelta(milliseconds=500))
    assert [repr(each) for each in (backoff.first, backoff.cap, backoff.factor, backoff.floor)] == [
        "1.0",
        "60.0",
        "2.0",
        "0.5",
    ]


def test_a_lower_cap_brings_the_first_delay_and_the_floor_down():
    backoff = Backoff(first=10, floor=8).with_cap(5)
    assert (backoff.first, backoff.cap, backoff.floor) == (5, 5, 5)


def test_a_higher_cap_changes_nothing_else():
    assert Backoff(first=10, floor=8).with_cap(50) == Backoff(first=10, floor=8, cap=50)


def test_a_floor_is_at_most_the_cap():
    assert Backoff(cap=5).with_floor(9).floor == 5
    assert Backoff(cap=5, floor=9).floor == 5


@pytest.mark.parametrize("jitter", [Jitter.FULL, "full"])
def test_a_jitter_is_changed_alone_and_may_be_named(jitter):
    assert Backoff().with_jitter(jitter) == Backoff(jitter=Jitter.FULL)


@pytest.mark.parametrize("factor", [0.5, 0, -2, math.nan, math.inf, 10**400], ids=lambda v: str(v)[:5])
def test_a_factor_is_finite_and_at_least_one(factor):
    with pytest.raises(ValueError, match="factor"):
        Backoff(factor=factor)


@pytest.mark.parametrize("factor", ["2", None, True])
def test_a_factor_is_a_number(factor):
    with pytest.raises(TypeError, match="factor"):
        Backoff(factor=factor)


def test_the_first_delay_must_not_exceed_the_cap():
    with pytest.raises(ValueError, match=r"first \(31.0 s\) must not exceed cap \(30.0 s\)"):
        Backoff(first=31)


def test_a_bad_factor_is_told_before_a_bad_first_delay():
    with pytest.raises(ValueError, match="factor"):
        Backoff(first=31, factor=0.5)


@pytest.mark.parametrize("name", ["first", "cap", "floor"])
@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (math.nan, ValueError), ("1", TypeError)])
def test_a_wrong_duration_is_named(name, value, error):
    with pytest.raises(error, match=name):
        Backoff(**{name: value})


@pytest.mark.parametrize("jitter", ["decorrelated", None])
def test_there_is_no_other_jitter(jitter):
    with pytest.raises(ValueError, match=f"jitter must be a Jitter or one of .*not {jitter!r}"):
        Backoff(jitter=jitter)
