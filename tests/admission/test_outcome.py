"""How a submission can end."""

from __future__ import annotations

from typing import get_args

import pytest

from admission import (
    Cancelled,
    Completed,
    Failed,
    Fatal,
    ForceAborted,
    Outcome,
    OutcomeKind,
    Panicked,
    Rejected,
    RejectionKind,
    TaskId,
)
from tests.admission.support import pickled

ERROR = ValueError("boom")
LABELS = [
    (Completed(1), "outcome_completed"),
    (Failed("boom", ERROR), "outcome_failed"),
    (Fatal("boom", ERROR), "outcome_fatal"),
    (Cancelled(), "outcome_cancelled"),
    (ForceAborted(), "outcome_force_aborted"),
    (Panicked("bug"), "outcome_panicked"),
    (Rejected(RejectionKind.SLOT_BUSY, "busy"), "outcome_rejected"),
]


@pytest.mark.parametrize(("outcome", "label"), LABELS, ids=[label for _, label in LABELS])
def test_every_outcome_has_its_label(outcome, label):
    assert outcome.label == label


def test_the_union_is_closed_and_every_kind_is_in_it():
    members = {getattr(member, "__origin__", member) for member in get_args(Outcome)}
    assert members == {type(outcome) for outcome, _ in LABELS}
    assert {member.label for member in members} == set(OutcomeKind)


def test_the_rejection_kinds_are_these():
    assert list(RejectionKind) == [
        "already_exists",
        "batch_rejected",
        "slot_busy",
        "queue_full",
        "superseded_by_replace",
        "removed_from_queue",
        "shutting_down",
        "admission_failed",
        "resource_limit",
    ]


def test_an_outcome_is_matched_by_its_parts():
    match Rejected(RejectionKind.SUPERSEDED_BY_REPLACE, "newer", TaskId(9)):
        case Rejected(kind=RejectionKind.SUPERSEDED_BY_REPLACE, cause_id=cause):
            assert cause == TaskId(9)


def test_an_exit_code_is_there_only_where_the_body_gave_one():
    assert Failed("boom", ERROR).exit_code is None
    assert Fatal("boom", ERROR, 7).exit_code == 7


@pytest.mark.parametrize(
    "outcome", [Completed([1]), Cancelled(), Rejected(RejectionKind.QUEUE_FULL, "full", TaskId(1))]
)
def test_an_outcome_survives_the_way_to_another_process(outcome):
    assert pickled(outcome) == outcome
