"""Every state of a slot x every message: what is ordered, in which order, and how the slot stands after it.

A cell lists the effects, one a line, and ends with the state after them. A message that the table of a state does not
name orders nothing and changes nothing there. The owner is #1, then #2 and #3 wait; #9 is new, #8 is unknown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from admission.effects import Phase
from admission.slot import Standing
from tests.admission.support import DROP, QUEUE, REPLACE, Slot, slot_in, state


def drained(slot):
    slot.do_drain()
    return slot


STATES = {
    "absent": Slot,
    "idle": lambda: slot_in(Phase.IDLE),
    "admitting #1 | #2 #3": lambda: slot_in(Phase.ADMITTING, 2, 3),
    "cancel_pending #1 | #2 #3": lambda: slot_in(Phase.CANCEL_PENDING, 2, 3),
    "running #1 | #2 #3": lambda: slot_in(Phase.RUNNING, 2, 3),
    "terminating #1 | #2 #3": lambda: slot_in(Phase.TERMINATING, 2, 3),
    "closed draining": lambda: slot_in(Phase.CLOSED),
    "admitting #1 draining": lambda: drained(slot_in(Phase.ADMITTING)),
    "cancel_pending #1 draining": lambda: drained(slot_in(Phase.CANCEL_PENDING)),
    "running #1 draining": lambda: drained(slot_in(Phase.RUNNING)),
    "terminating #1 draining": lambda: drained(slot_in(Phase.TERMINATING)),
}


# -- the messages --------------------------------------------------------------------------------------------------


def leave_as_it_is(slot):
    pass


def fill_line(slot):
    slot.rules.max_queue = len(slot.line)


def empty_line(slot):
    for number in slot.waiting:
        slot.do_withdraw(number)


class Message(NamedTuple):
    send: Any
    prepare: Any = leave_as_it_is


MESSAGES = {
    "submit queue": Message(lambda slot: slot.do_submit(9, QUEUE)),
    "submit queue, line full": Message(lambda slot: slot.do_submit(9, QUEUE), fill_line),
    "submit queue, no unit": Message(lambda slot: slot.do_submit(9, QUEUE, unit=False)),
    "submit queue, line full, no unit": Message(lambda slot: slot.do_submit(9, QUEUE, unit=False), fill_line),
    "submit replace": Message(lambda slot: slot.do_submit(9, REPLACE)),
    "submit replace, line full": Message(lambda slot: slot.do_submit(9, REPLACE), fill_line),
    "submit replace, no unit": Message(lambda slot: slot.do_submit(9, REPLACE, unit=False)),
    "submit replace, nobody waits": Message(lambda slot: slot.do_submit(9, REPLACE), empty_line),
    "submit replace, nobody waits, no unit": Message(lambda slot: slot.do_submit(9, REPLACE, unit=False), empty_line),
    "submit drop_if_running": Message(lambda slot: slot.do_submit(9, DROP)),
    "registered": Message(lambda slot: slot.do_register(1)),
    "registered, stale": Message(lambda slot: slot.do_register(8)),
    "registered, again": Message(lambda slot: slot.do_register(1), Slot.do_register),
    "refused": Message(lambda slot: slot.do_refuse(1)),
    "refused, nobody waits": Message(lambda slot: slot.do_refuse(1), empty_line),
    "refused, stale": Message(lambda slot: slot.do_refuse(8)),
    "refused, again": Message(lambda slot: slot.do_refuse(1), Slot.do_refuse),
    "finished": Message(lambda slot: slot.do_finish()),
    "finished, nobody waits": Message(lambda slot: slot.do_finish(), empty_line),
    "finished, again": Message(lambda slot: slot.do_finish(), Slot.do_finish),
    "finished, body inside": Message(lambda slot: slot.do_finish(lingering=True)),
    "released": Message(lambda slot: slot.do_release()),
    "released, nobody waits": Message(lambda slot: slot.do_release(), empty_line),
    "withdraw first in line": Message(lambda slot: slot.do_withdraw(2)),
    "withdraw last in line": Message(lambda slot: slot.do_withdraw(3)),
    "withdraw owner": Message(lambda slot: slot.do_withdraw(1)),
    "withdraw owner, claimed": Message(lambda slot: slot.do_withdraw(1, standing=Standing.CLAIMED)),
    "withdraw owner, run over": Message(lambda slot: slot.do_withdraw(1, standing=Standing.OVER)),
    "withdraw unknown": Message(lambda slot: slot.do_withdraw(8)),
    "drain": Message(lambda slot: slot.do_drain(60.0)),
    "drain, nobody waits": Message(lambda slot: slot.do_drain(60.0), empty_line),
    "drain, again": Message(lambda slot: slot.do_drain(99.0), Slot.do_drain),
}


# -- cells that many states have in common -------------------------------------------------------------------------


def admits(before, policy):
    """Nobody owns the slot: it takes any submission at once."""
    return f"""
        edge {before}>admitting
        event task_add_requested #9
        event submission_accepted #9 policy={policy} status=admitting
        register #9
        -> admitting #9
    """


def admits_anything(before):
    return {name: admits(before, name.split()[1].rstrip(",")) for name in MESSAGES if name.startswith("submit")}


def rejects(kind, after):
    return f"""
        event submission_rejected #9 outcome_kind=outcome_rejected rejection_kind={kind}
        reject #9 {kind}
        -> {after}
    """


def rejects_everything(kind, after):
    return {name: rejects(kind, after) for name in MESSAGES if name.startswith("submit")}


def lines_up(owner):
    """A submission by policy QUEUE that finds the slot busy."""
    return {
        "submit queue": f"""
            event submission_accepted #9 policy=queue depth=3
            -> {owner} | #2 #3 #9
        """,
        "submit queue, line full": rejects("queue_full", f"{owner} | #2 #3"),
        "submit queue, no unit": rejects("resource_limit", f"{owner} | #2 #3"),
        "submit queue, line full, no unit": rejects("queue_full", f"{owner} | #2 #3"),
    }


def takes_the_head(before, after, status):
    """A submission by policy REPLACE that finds the slot busy, its owner not to be stopped in this turn."""
    edge = "" if before == after else f"edge {before}>{after} (replace) announced"
    displaces = f"""
        event submission_rejected #2 outcome_kind=outcome_rejected rejection_kind=superseded_by_replace cause_id=9
        {edge}
        event submission_accepted #9 policy=replace depth=2 status={status}
        reject #2 superseded_by_replace by #9
        -> {after} #1 | #9 #3
    """
    return {
        "submit replace": displaces,
        "submit replace, line full": displaces,
        "submit replace, no unit": displaces,
        "submit replace, nobody waits": f"""
            {edge}
            event submission_accepted #9 policy=replace depth=1 status={status}
            -> {after} #1 | #9
        """,
        "submit replace, nobody waits, no unit": rejects("resource_limit", f"{before} #1"),
    }


def takes_out(owner):
    """A withdrawal of a waiting submission, or of one that is nowhere to be found."""
    return {
        "withdraw first in line": f"""
            return unit
            event task_remove_requested #2
            event submission_rejected #2 outcome_kind=outcome_rejected rejection_kind=removed_from_queue
            answer op #2 claimed
            reject #2 removed_from_queue
            -> {owner} | #3
        """,
        "withdraw last in line": f"""
            return unit
            event task_remove_requested #3
            event submission_rejected #3 outcome_kind=outcome_rejected rejection_kind=removed_from_queue
            answer op #3 claimed
            reject #3 removed_from_queue
            -> {owner} | #2
        """,
        "withdraw owner, run over": answers_no(1, f"{owner} | #2 #3"),
        "withdraw unknown": answers_no(8, f"{owner} | #2 #3"),
    }


def answers_no(number, after):
    return f"""
        answer op #{number} not claimed
        -> {after}
    """


def finds_nobody(after):
    withdrawals = ("first in line", 2), ("last in line", 3), ("unknown", 8)
    return {f"withdraw {whom}": answers_no(number, after) for whom, number in withdrawals}


def knows_no_owner(after):
    owners = ("owner", "owner, claimed", "owner, run over")
    return finds_nobody(after) | {f"withdraw {owner}": answers_no(1, after) for owner in owners}


def claims(after):
    return f"""
        event task_remove_requested #1
        claim run remove
        answer op #1 claimed
        -> {after}
    """


def joins(after):
    """Somebody else has claimed the owner before."""
    return f"""
        event task_remove_requested #1
        answer op #1 not claimed
        -> {after}
    """


def turns_away_the_line(after, *, stop_owner=False):
    return f"""
        return unit
        return unit
        event submission_rejected #2 outcome_kind=outcome_rejected rejection_kind=shutting_down
        event submission_rejected #3 outcome_kind=outcome_rejected rejection_kind=shutting_down
        {"drain run 60" if stop_owner else ""}
        reject #2 shutting_down
        reject #3 shutting_down
        -> {after} draining
    """


def starts_the_next(phase):
    return f"""
        return unit
        edge {phase}>idle
        edge idle>admitting
        event task_add_requested #2
        event submission_accepted #2 status=started_from_queue depth=1
        register #2
        -> admitting #2 | #3
    """


def rests(phase, after="idle"):
    return f"""
        edge {phase}>{after}
        -> {after}
    """


def closes(phase):
    return f"""
        edge {phase}>closed
        -> closed draining
    """


# -- the table -----------------------------------------------------------------------------------------------------

CELLS = {
    "absent": {
        **admits_anything("absent"),
        **knows_no_owner("absent"),
        "drain": "-> absent draining",
        "drain, nobody waits": "-> absent draining",
    },
    "idle": {
        **admits_anything("idle"),
        **knows_no_owner("idle"),
        "drain": closes("idle"),
        "drain, nobody waits": closes("idle"),
    },
    "admitting #1 | #2 #3": {
        **lines_up("admitting #1"),
        **takes_the_head("admitting", "cancel_pending", "admitting"),
        "submit drop_if_running": rejects("slot_busy", "admitting #1 | #2 #3"),
        "registered": """
            edge admitting>running announced
            start run #1 epoch 7
            -> running #1 | #2 #3
        """,
        "refused": starts_the_next("admitting"),
        "refused, nobody waits": rests("admitting"),
        **takes_out("admitting #1"),
        "withdraw owner": "-> admitting #1 kept=1 | #2 #3",
        "withdraw owner, claimed": "-> admitting #1 kept=1 | #2 #3",
        "drain": turns_away_the_line("admitting #1"),
        "drain, nobody waits": "-> admitting #1 draining",
    },
    "cancel_pending #1 | #2 #3": {
        **lines_up("cancel_pending #1"),
        **takes_the_head("cancel_pending", "cancel_pending", "terminating"),
        "submit drop_if_running": rejects("slot_busy", "cancel_pending #1 | #2 #3"),
        "registered": """
            edge cancel_pending>terminating
            event task_remove_requested #1
            start run #1 epoch 7 cancelled
            -> terminating #1 | #2 #3
        """,
        "refused": starts_the_next("cancel_pending"),
        "refused, nobody waits": rests("cancel_pending"),
        **takes_out("cancel_pending #1"),
        "withdraw owner": "-> cancel_pending #1 kept=1 | #2 #3",
        "withdraw owner, claimed": "-> cancel_pending #1 kept=1 | #2 #3",
        "drain": turns_away_the_line("cancel_pending #1"),
        "drain, nobody waits": "-> cancel_pending #1 draining",
    },
    "running #1 | #2 #3": {
        **lines_up("running #1"),
        **dict.fromkeys(
            ("submit replace", "submit replace, line full", "submit replace, no unit"),
            """
            event submission_rejected #2 outcome_kind=outcome_rejected rejection_kind=superseded_by_replace cause_id=9
            edge running>terminating (replace) announced
            event task_remove_requested #1
            event submission_accepted #9 policy=replace depth=2
            claim run replace
            reject #2 superseded_by_replace by #9
            -> terminating #1 | #9 #3
        """,
        ),
        "submit replace, nobody waits": """
            edge running>terminating (replace) announced
            event task_remove_requested #1
            event submission_accepted #9 policy=replace depth=1
            claim run replace
            -> terminating #1 | #9
        """,
        "submit replace, nobody waits, no unit": rejects("resource_limit", "running #1"),
        "submit drop_if_running": rejects("slot_busy", "running #1 | #2 #3"),
        "finished": starts_the_next("running"),
        "finished, nobody waits": rests("running"),
        "finished, body inside": """
            edge running>terminating (body still inside)
            -> terminating #1 | #2 #3
        """,
        **takes_out("running #1"),
        "withdraw owner": claims("running #1 | #2 #3"),
        "withdraw owner, claimed": joins("running #1 | #2 #3"),
        "drain": turns_away_the_line("running #1", stop_owner=True),
        "drain, nobody waits": """
            drain run 60
            -> running #1 draining
        """,
    },
    "terminating #1 | #2 #3": {
        **lines_up("terminating #1"),
        **takes_the_head("terminating", "terminating", "terminating"),
        "submit drop_if_running": rejects("slot_busy", "terminating #1 | #2 #3"),
        "finished": starts_the_next("terminating"),
        "finished, nobody waits": rests("terminating"),
        "released": starts_the_next("terminating"),
        "released, nobody waits": rests("terminating"),
        **takes_out("terminating #1"),
        "withdraw owner": claims("terminating #1 | #2 #3"),
        "withdraw owner, claimed": joins("terminating #1 | #2 #3"),
        "drain": turns_away_the_line("terminating #1", stop_owner=True),
        "drain, nobody waits": """
            drain run 60
            -> terminating #1 draining
        """,
    },
    "closed draining": {
        **rejects_everything("shutting_down", "closed draining"),
        **knows_no_owner("closed draining"),
    },
    "admitting #1 draining": {
        **rejects_everything("shutting_down", "admitting #1 draining"),
        "registered": """
            edge admitting>running announced
            start run #1 epoch 7 cancelled
            -> running #1 draining
        """,
        "refused": closes("admitting"),
        "refused, nobody waits": closes("admitting"),
        **finds_nobody("admitting #1 draining"),
        "withdraw owner": "-> admitting #1 draining kept=1",
        "withdraw owner, claimed": "-> admitting #1 draining kept=1",
        "withdraw owner, run over": answers_no(1, "admitting #1 draining"),
    },
    "cancel_pending #1 draining": {
        **rejects_everything("shutting_down", "cancel_pending #1 draining"),
        "registered": """
            edge cancel_pending>terminating
            event task_remove_requested #1
            start run #1 epoch 7 cancelled
            -> terminating #1 draining
        """,
        "refused": closes("cancel_pending"),
        "refused, nobody waits": closes("cancel_pending"),
        **finds_nobody("cancel_pending #1 draining"),
        "withdraw owner": "-> cancel_pending #1 draining kept=1",
        "withdraw owner, claimed": "-> cancel_pending #1 draining kept=1",
        "withdraw owner, run over": answers_no(1, "cancel_pending #1 draining"),
    },
    "running #1 draining": {
        **rejects_everything("shutting_down", "running #1 draining"),
        "finished": closes("running"),
        "finished, nobody waits": closes("running"),
        "finished, body inside": """
            edge running>terminating (body still inside)
            -> terminating #1 draining
        """,
        **finds_nobody("running #1 draining"),
        "withdraw owner": claims("running #1 draining"),
        "withdraw owner, claimed": joins("running #1 draining"),
        "withdraw owner, run over": answers_no(1, "running #1 draining"),
    },
    "terminating #1 draining": {
        **rejects_everything("shutting_down", "terminating #1 draining"),
        "finished": closes("terminating"),
        "finished, nobody waits": closes("terminating"),
        "released": closes("terminating"),
        "released, nobody waits": closes("terminating"),
        **finds_nobody("terminating #1 draining"),
        "withdraw owner": claims("terminating #1 draining"),
        "withdraw owner, claimed": joins("terminating #1 draining"),
        "withdraw owner, run over": answers_no(1, "terminating #1 draining"),
    },
}


def expected(cell, before):
    lines = [line.strip() for line in cell.splitlines() if line.strip()] or [f"-> {before}"]
    return lines[:-1], lines[-1].removeprefix("-> ")


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_what_its_name_says(name):
    assert state(STATES[name]()) == name


@pytest.mark.parametrize("table", CELLS)
def test_every_table_is_of_a_state_and_names_messages_that_there_are(table):
    assert table in STATES
    assert CELLS[table].keys() <= MESSAGES.keys()


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("start", STATES)
def test_what_a_message_does_in_a_state(start, message):
    slot = STATES[start]()
    MESSAGES[message].prepare(slot)
    before = state(slot)
    effects, end = expected(CELLS[start].get(message, ""), before)

    told = MESSAGES[message].send(slot) or []

    assert (told, state(slot)) == (effects, end)
