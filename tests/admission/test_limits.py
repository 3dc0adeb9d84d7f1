"""The bounds of one registry."""

from __future__ import annotations

from dataclasses import fields

import pytest

from admission import AdmissionLimits

COUNTS = {field.name for field in fields(AdmissionLimits)} - {"slot_idle_timeout"}
AT_LEAST_ONE = {"intake", "max_concurrent"}


def limit(name, value):
    return getattr(AdmissionLimits(**{name: value}), name)


def test_the_defaults_bound_what_waits_and_not_what_runs():
    assert AdmissionLimits() == AdmissionLimits(
        intake=1024,
        max_slot_queue=100,
        max_slots=100_000,
        max_total_pending=100_000,
        max_tasks=None,
        max_concurrent=None,
        slot_idle_timeout=30,
        max_warm_slots=1000,
    )


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_every_count_may_be_without_limit(name):
    assert limit(name, None) is None


@pytest.mark.parametrize("name", sorted(COUNTS - AT_LEAST_ONE))
def test_a_count_may_be_zero_where_that_leaves_a_way_through(name):
    assert limit(name, 0) == 0


@pytest.mark.parametrize("name", sorted(AT_LEAST_ONE))
def test_a_count_of_zero_that_would_let_nothing_through_is_refused(name):
    assert limit(name, 1) == 1
    with pytest.raises(ValueError, match=name):
        limit(name, 0)


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_a_negative_count_is_named(name):
    with pytest.raises(ValueError, match=name):
        limit(name, -1)


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_a_count_that_is_no_whole_number_is_named(name):
    with pytest.raises(TypeError, match=name):
        limit(name, 1.5)


@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), ("1", TypeError), (None, TypeError)])
def test_a_wrong_idle_timeout_is_named(value, error):
    with pytest.raises(error, match="slot_idle_timeout"):
        AdmissionLimits(slot_idle_timeout=value)


def test_an_idle_timeout_of_zero_retires_at_once():
    assert AdmissionLimits(slot_idle_timeout=0).slot_idle_timeout == 0
