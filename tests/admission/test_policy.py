"""Policies as values; what they do to a slot and to a run is tested with the two machines."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from admission import AdmissionPolicy, RestartPolicy


def test_the_admission_policies_are_these():
    assert list(AdmissionPolicy) == ["queue", "replace", "drop_if_running"]


@pytest.mark.parametrize(
    ("policy", "after_failure", "after_success"),
    [
        (RestartPolicy.NEVER, False, False),
        (RestartPolicy.ON_FAILURE, True, False),
        (RestartPolicy.always(), True, True),
    ],
)
def test_a_restart_policy_says_after_what_another_attempt_follows(policy, after_failure, after_success):
    assert (policy.after_failure, policy.after_success) == (after_failure, after_success)


@pytest.mark.parametrize(("interval", "seconds"), [(None, None), (0, 0.0), (5, 5.0), (timedelta(minutes=1), 60.0)])
def test_an_interval_comes_out_in_seconds(interval, seconds):
    assert RestartPolicy.always(interval).interval == seconds


def test_an_endless_interval_is_not_the_same_as_none():
    assert RestartPolicy.always(math.inf).interval == math.inf


@pytest.mark.parametrize("make", [RestartPolicy.always, lambda value: RestartPolicy(True, True, value)])  # noqa: FBT003
@pytest.mark.parametrize(("interval", "error"), [(-1, ValueError), (math.nan, ValueError), ("1", TypeError)])
def test_a_wrong_interval_is_named(make, interval, error):
    with pytest.raises(error, match="interval"):
        make(interval)


def test_policies_are_values():
    never: Any = RestartPolicy.NEVER
    assert RestartPolicy.always(5) == RestartPolicy.always(5.0)
    with pytest.raises(FrozenInstanceError):
        never.after_failure = True
