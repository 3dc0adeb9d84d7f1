"""How what a caller hands in is checked: at the call, naming the parameter."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given

from admission.checks import FOREVER, check_count, check_duration, check_optional_duration, check_text
from tests.strategies import durations

HUGE = 10**400
"""An int that no float can hold."""

NOT_DURATIONS = [True, False, "1", b"1", None, [1], 1j, object()]


# -- durations -----------------------------------------------------------------------------------------------------


@given(durations)
def test_a_number_of_seconds_is_taken_as_it_is(seconds):
    assert check_duration("grace", seconds) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0.0),
        (3, 3.0),
        (-0.0, 0.0),
        (timedelta(minutes=1.5), 90.0),
        (timedelta(0), 0.0),
        (FOREVER, FOREVER),
        (HUGE, FOREVER),
    ],
)
def test_every_way_to_write_a_duration_comes_out_as_float_seconds(value, seconds):
    checked = check_duration("grace", value)
    assert (type(checked), checked) == (float, seconds)


@pytest.mark.parametrize("value", NOT_DURATIONS, ids=repr)
def test_what_is_no_duration_is_a_type_error_that_names_the_parameter(value):
    with pytest.raises(TypeError, match=f"grace .* not {type(value).__name__}"):
        check_duration("grace", value)


@pytest.mark.parametrize(
    "value", [-1, -0.5, timedelta(seconds=-1), math.nan, -math.inf, -HUGE], ids=lambda v: str(v)[:9]
)
def test_a_negative_or_undefined_duration_is_a_value_error_that_names_the_parameter(value):
    with pytest.raises(ValueError, match="grace must not be negative or NaN"):
        check_duration("grace", value)


@pytest.mark.parametrize("value", [None, math.inf, HUGE], ids=["None", "inf", "huge"])
def test_none_and_infinity_are_no_limit(value):
    assert check_optional_duration("wait", value) is None


@pytest.mark.parametrize("value", [2, timedelta(seconds=2)])
def test_an_optional_duration_is_a_duration(value):
    assert check_optional_duration("wait", value) == 2.0


def test_zero_is_a_duration():
    assert check_optional_duration("wait", 0) == 0.0


@pytest.mark.parametrize("value", [0, -0.0, timedelta(0)])
def test_zero_is_refused_where_it_would_mean_never(value):
    with pytest.raises(ValueError, match="attempt_timeout must be more than 0"):
        check_optional_duration("attempt_timeout", value, positive=True)


def test_anything_above_zero_is_taken_there():
    assert check_optional_duration("attempt_timeout", 0.001, positive=True) == 0.001


@pytest.mark.parametrize("value", ["1", True], ids=repr)
def test_an_optional_duration_is_checked_like_any_other(value):
    with pytest.raises(TypeError, match="wait"):
        check_optional_duration("wait", value)


# -- counts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 7, None])
def test_a_count_is_a_whole_number_or_none_for_no_limit(value):
    assert check_count("max_slots", value) == value


@pytest.mark.parametrize("value", [True, 1.0, "1", math.inf], ids=repr)
def test_what_is_no_count_is_a_type_error_that_names_the_parameter(value):
    with pytest.raises(TypeError, match=f"max_slots .* not {type(value).__name__}"):
        check_count("max_slots", value)


@pytest.mark.parametrize(("value", "least"), [(-1, 0), (0, 1)])
def test_a_count_below_the_least_is_a_value_error_that_names_both(value, least):
    with pytest.raises(ValueError, match=f"intake must be at least {least} .* got {value}"):
        check_count("intake", value, least=least)


# -- texts ---------------------------------------------------------------------------------------------------------


def test_a_text_is_taken_as_it_is():
    assert check_text("slot", "tenant-42") == "tenant-42"


@pytest.mark.parametrize("value", [42, b"x", None, ("a", "b")], ids=repr)
def test_a_key_of_another_type_is_never_converted(value):
    with pytest.raises(TypeError, match=f"slot must be a str, not {type(value).__name__}"):
        check_text("slot", value)


def test_an_empty_text_names_nothing():
    with pytest.raises(ValueError, match="slot must not be empty"):
        check_text("slot", "")
