"""What a slot promises over several messages: order in the line, displacement, units, kept withdrawals, drain."""

from __future__ import annotations

import pytest

from admission.effects import Cause, DrainRun, Emit, Phase, Reject
from admission.events import EventKind
from admission.outcome import RejectionKind
from admission.policy import AdmissionPolicy
from admission.slot import LEGAL_EDGES, PUBLIC_STATUS
from admission.snapshot import SlotStatus
from tests.admission.support import DROP, QUEUE, REPLACE, Slot, entry, slot_in, state

BUSY = [Phase.ADMITTING, Phase.CANCEL_PENDING, Phase.RUNNING, Phase.TERMINATING]


def owners_until_idle(slot):
    """Let one owner after the other run to its end."""
    owners = []
    while slot.owner is not None:
        owners.append(int(slot.owner.id))
        slot.do_register(slot.owner.id)
        slot.do_finish()
    return owners


# -- the line ------------------------------------------------------------------------------------------------------


def test_who_came_first_starts_first():
    slot = slot_in(Phase.RUNNING, 2, 3, 4)
    assert owners_until_idle(slot) == [1, 2, 3, 4]


def test_a_refused_head_never_blocks_who_waits_behind_it():
    slot = slot_in(Phase.RUNNING, 2, 3)
    slot.do_finish()
    slot.do_refuse(2)
    assert state(slot) == "admitting #3"


def test_withdrawing_from_the_middle_keeps_the_order_of_the_rest():
    slot = slot_in(Phase.RUNNING, 2, 3, 4)
    slot.do_withdraw(3)
    assert slot.waiting == [2, 4]


def test_a_withdrawn_submission_is_unknown_afterwards():
    slot = slot_in(Phase.RUNNING, 2)
    slot.do_withdraw(2)
    assert slot.do_withdraw(2) == ["answer op #2 not claimed"]


def test_a_line_that_was_emptied_takes_newcomers_again():
    slot = slot_in(Phase.RUNNING, 2)
    slot.do_withdraw(2)
    slot.queue(3, 4)
    assert slot.waiting == [3, 4]


def test_a_line_that_was_emptied_keeps_nothing():
    slot = slot_in(Phase.RUNNING, 2)
    slot.do_withdraw(2)
    assert slot.line._entries is None


def test_withdrawing_a_replacement_leaves_its_owner_stopped():
    slot = slot_in(Phase.TERMINATING, 2)
    slot.do_withdraw(2)
    slot.do_finish()
    assert state(slot) == "idle"


def test_the_queue_is_not_purged_when_the_owner_is_withdrawn():
    slot = slot_in(Phase.RUNNING, 2, 3)
    slot.do_withdraw(1)
    assert state(slot) == "running #1 | #2 #3"


# -- the policies on an idle and on a busy slot --------------------------------------------------------------------


@pytest.mark.parametrize("policy", AdmissionPolicy)
def test_an_idle_slot_takes_any_policy_and_needs_no_unit_for_it(policy):
    slot = slot_in(Phase.IDLE)
    assert not slot.needs_unit(policy)
    slot.do_submit(2, policy, unit=False)
    assert state(slot) == "admitting #2"


def test_a_replacement_runs_before_the_older_ones_which_stay():
    slot = slot_in(Phase.RUNNING, 2, 3, 4)
    slot.do_submit(9, REPLACE)
    assert owners_until_idle(slot) == [1, 9, 3, 4]


def test_only_the_head_of_the_line_is_displaced():
    slot = slot_in(Phase.RUNNING, 2, 3, 4)
    told = slot.do_submit(9, REPLACE)
    assert [line for line in told if line.startswith("reject")] == ["reject #2 superseded_by_replace by #9"]


def test_many_replacements_keep_the_depth_and_reject_each_displaced_one_once():
    slot = slot_in(Phase.RUNNING)
    told = [line for number in range(2, 7) for line in slot.do_submit(number, REPLACE)]
    rejected = [line for line in told if line.startswith("reject")]
    assert slot.waiting == [6]
    assert rejected == [f"reject #{number} superseded_by_replace by #{number + 1}" for number in range(2, 6)]


def test_many_replacements_stop_the_owner_once():
    slot = slot_in(Phase.RUNNING)
    told = [line for number in range(2, 7) for line in slot.do_submit(number, REPLACE)]
    assert told.count("claim run replace") == 1


def test_many_replacements_of_an_owner_not_yet_registered_end_it_once():
    slot = slot_in(Phase.ADMITTING)
    told = [*slot.do_submit(2, REPLACE), *slot.do_submit(3, REPLACE), *slot.do_register(1)]
    assert [line for line in told if "run" in line.split()] == ["start run #1 epoch 7 cancelled"]
    assert state(slot) == "terminating #1 | #3"


def test_a_replacement_of_an_owner_that_is_refused_is_admitted_and_nobody_stopped():
    slot = slot_in(Phase.CANCEL_PENDING, 2)
    told = slot.do_refuse(1)
    assert state(slot) == "admitting #2"
    assert not any("remove_requested" in line or "claim" in line for line in told)


@pytest.mark.parametrize("phase", BUSY)
def test_the_reason_of_slot_busy_names_the_public_status(phase):
    effects = slot_in(phase).submit(entry(9, DROP))
    (rejection,) = (effect for effect in effects if isinstance(effect, Reject))
    assert rejection.reason.endswith(PUBLIC_STATUS[phase])


def test_the_reason_of_queue_full_names_the_limit():
    effects = slot_in(Phase.RUNNING, 2, 3, max_queue=2).submit(entry(9))
    (rejection,) = (effect for effect in effects if isinstance(effect, Reject))
    assert "2 of 2" in rejection.reason


@pytest.mark.parametrize(
    ("depth", "limit", "taken"),
    [(0, 3, True), (2, 3, True), (3, 3, False), (0, 0, False), (0, 1, True), (3, None, True)],
)
def test_queue_is_taken_below_max_slot_queue_only(depth, limit, taken):
    slot = slot_in(Phase.RUNNING, *range(2, 2 + depth), max_queue=limit)
    slot.do_submit(9, QUEUE)
    assert (9 in slot.waiting) is taken


def test_replace_ignores_max_slot_queue():
    slot = slot_in(Phase.RUNNING, max_queue=0)
    slot.do_submit(2, REPLACE)
    slot.do_submit(3, REPLACE)
    assert slot.waiting == [3]


def test_a_replacement_counts_for_max_slot_queue():
    slot = slot_in(Phase.TERMINATING, 2, max_queue=1)
    assert slot.do_submit(9, QUEUE)[-1] == "reject #9 queue_full"


# -- units of the shared budget ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "waiting", "limit", "needed"),
    [
        (QUEUE, (), None, True),
        (QUEUE, (2,), 2, True),
        (QUEUE, (2, 3), 2, False),
        (REPLACE, (), 0, True),
        (REPLACE, (2,), None, False),
        (DROP, (), None, False),
    ],
)
def test_a_unit_is_needed_by_whoever_makes_the_line_longer(policy, waiting, limit, needed):
    assert slot_in(Phase.RUNNING, *waiting, max_queue=limit).needs_unit(policy) is needed


@pytest.mark.parametrize("policy", AdmissionPolicy)
def test_nobody_needs_a_unit_once_the_slot_drains(policy):
    slot = slot_in(Phase.RUNNING)
    slot.do_drain()
    assert not slot.needs_unit(policy)


def test_a_head_swap_hands_its_unit_over():
    slot = slot_in(Phase.RUNNING, 2)
    assert "return unit" not in slot.do_submit(9, REPLACE)


# -- withdrawals that wait for the registry's decision -------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.ADMITTING, Phase.CANCEL_PENDING])
def test_of_kept_withdrawals_only_the_first_has_claimed(phase):
    slot = slot_in(phase)
    for op in "abc":
        assert slot.do_withdraw(1, op=op) == []
    answers = [line for line in slot.do_register(1) if line.startswith("answer")]
    assert answers == ["answer a #1 claimed", "answer b #1 not claimed", "answer c #1 not claimed"]


def test_a_kept_withdrawal_has_the_owner_end_before_its_first_attempt():
    slot = slot_in(Phase.ADMITTING)
    slot.do_withdraw(1)
    assert slot.do_register(1) == [
        "edge admitting>running announced",
        "event task_remove_requested #1",
        "start run #1 epoch 7 cancelled",
        "answer op #1 claimed",
    ]


def test_a_kept_withdrawal_comes_before_the_replacements_own_claim():
    slot = slot_in(Phase.ADMITTING)
    slot.do_withdraw(1, Cause.CANCEL)
    slot.do_submit(9, REPLACE)
    requests = [line for line in slot.do_register(1) if "remove_requested" in line]
    assert requests == ["event task_remove_requested #1 reason=manual_cancel", "event task_remove_requested #1"]


def test_a_kept_withdrawal_comes_before_the_drains_own_claim():
    slot = slot_in(Phase.ADMITTING)
    slot.do_withdraw(1)
    slot.do_drain()
    assert "answer op #1 claimed" in slot.do_register(1)


def test_no_kept_withdrawal_has_claimed_an_owner_that_is_refused():
    slot = slot_in(Phase.ADMITTING)
    slot.do_withdraw(1, Cause.REMOVE, op="a")
    slot.do_withdraw(1, Cause.CANCEL, op="b")
    assert slot.do_refuse(1) == [
        "event task_remove_requested #1",  # a cancellation of somebody who is no member is not told
        "edge admitting>idle",
        "answer a #1 not claimed",
        "answer b #1 not claimed",
    ]


@pytest.mark.parametrize("decide", [Slot.do_register, Slot.do_refuse])
def test_kept_withdrawals_are_answered_once(decide):
    slot = slot_in(Phase.ADMITTING)
    slot.do_withdraw(1)
    decide(slot)
    assert slot.kept == ()


def test_a_cancellation_says_so_in_its_event():
    slot = slot_in(Phase.RUNNING, 2)
    assert "event task_remove_requested #2 reason=manual_cancel" in slot.do_withdraw(2, Cause.CANCEL)


# -- drain ---------------------------------------------------------------------------------------------------------


def test_drain_turns_the_line_away_front_to_back():
    slot = slot_in(Phase.RUNNING, 4, 2, 3)
    rejected = [line for line in slot.do_drain() if line.startswith("reject")]
    assert rejected == [f"reject #{number} shutting_down" for number in (4, 2, 3)]


def test_drain_hands_its_deadline_to_the_owners_run():
    assert slot_in(Phase.RUNNING).drain(12.5) == [DrainRun(12.5)]


def test_nobody_is_started_once_the_slot_drains():
    slot = slot_in(Phase.RUNNING, 2)
    slot.do_drain()
    slot.do_finish()
    assert state(slot) == "closed draining"


# -- what a decision says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("submission", "kind"),
    [
        (entry(9, DROP), RejectionKind.SLOT_BUSY),
        (entry(9, QUEUE), RejectionKind.QUEUE_FULL),
        (entry(9, REPLACE), RejectionKind.SUPERSEDED_BY_REPLACE),
    ],
)
def test_a_rejection_and_its_event_tell_the_same_reason(submission, kind):
    effects = slot_in(Phase.RUNNING, 2, max_queue=1).submit(submission)
    (rejection,) = (effect for effect in effects if isinstance(effect, Reject))
    (event,) = (e for e in effects if isinstance(e, Emit) and e.kind is EventKind.SUBMISSION_REJECTED)
    assert event.entry is rejection.entry
    assert (event.fields["rejection_kind"], event.fields["reason"]) == (rejection.kind, rejection.reason)
    assert rejection.kind is kind


def test_the_cause_of_a_displacement_is_named_in_its_reason():
    effects = slot_in(Phase.RUNNING, 2).submit(entry(9, REPLACE))
    (rejection,) = (effect for effect in effects if isinstance(effect, Reject))
    assert "#9" in rejection.reason


@pytest.mark.parametrize(
    ("phase", "status"),
    [
        (Phase.ABSENT, SlotStatus.IDLE),
        (Phase.IDLE, SlotStatus.IDLE),
        (Phase.ADMITTING, SlotStatus.ADMITTING),
        (Phase.CANCEL_PENDING, SlotStatus.TERMINATING),
        (Phase.RUNNING, SlotStatus.RUNNING),
        (Phase.TERMINATING, SlotStatus.TERMINATING),
        (Phase.CLOSED, SlotStatus.IDLE),
    ],
)
def test_every_phase_has_a_public_status(phase, status):
    assert PUBLIC_STATUS[phase] is status


def test_no_edge_leads_from_cancel_pending_to_running_or_out_of_closed():
    assert (Phase.CANCEL_PENDING, Phase.RUNNING) not in LEGAL_EDGES
    assert not any(before is Phase.CLOSED for before, _ in LEGAL_EDGES)


# -- a private slot: one run, registered already -------------------------------------------------------------------


def test_a_private_slot_runs_what_it_adopts_and_nothing_else():
    slot = slot_in(Phase.ABSENT)
    (start,) = slot.adopt(entry(1), epoch=7)
    assert (start.entry.id, start.epoch, start.cancelled) == (1, 7, False)
    assert state(slot) == "running #1"
    assert slot.adopt(entry(2), epoch=8) == []
    assert state(slot) == "running #1"
    assert slot.do_finish() == ["edge running>idle"]


def test_a_private_slot_that_is_drained_before_it_adopts_ends_its_run_before_any_attempt():
    slot = slot_in(Phase.ABSENT)
    slot.do_drain()
    (start,) = slot.adopt(entry(1), epoch=7)
    assert (start.entry.id, start.epoch, start.cancelled) == (1, 7, True)
