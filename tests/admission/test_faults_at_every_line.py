"""A fault at any line of a machine: either nothing has changed yet, or only what can not fail was still to come.

So a decision that fails leaves a machine from which a slot that is reset can still tell whose submissions it held.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys

import pytest

from admission import run as run_module
from admission import slot as slot_module
from admission.effects import Cause, Phase, TimerKind
from admission.policy import RestartPolicy
from admission.run import AttemptCancelled, AttemptRaised, AttemptReturned, WorkerPanicked
from admission.slot import Standing
from tests.admission.support import DROP, QUEUE, REPLACE, Run, entry, inside, slot_in

CAN_NOT_FAIL = re.compile(
    r"self\.[a-z_]+(, self\.[a-z_]+)* = [a-z_]+(, (None|[a-z_]+))*$"  # an assignment of what is there already
    r"|(self|slot)\.[a-z_]+( = self\.[a-z_]+)* = (None|True|False|\(\)|_[A-Z_]+|[a-z_]+)$"
    r"|(self|slot)\.phase = [_A-Z]+( if [a-z_]+ else [_A-Z]+)?$"
    r"|self\.retries \+= 1$"
    r"|(self\.|slot\.)?line\.[a-z_]+\([a-z, ]*\)$"  # one operation on the line
    r"|if (displaced|head) is (not )?None:$|else:$"
    r"|return( effects| None)?$"
)
PARKED = Phase.RUNNING, Phase.TERMINATING, Phase.ADMITTING, Phase.CANCEL_PENDING


class FaultError(Exception):
    """Raised in the middle of a decision."""


def decide_until(line, files, decide):
    """Run this decision and raise before the given line that it comes to; return the text of that line, if there is."""
    seen = 0
    failed_at = None

    def in_frame(frame, event, _arg):
        nonlocal seen, failed_at
        if event == "line":
            seen += 1
            if seen == line:
                failed_at = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
                raise FaultError
        return in_frame

    def on_call(frame, _event, _arg):
        code = frame.f_code
        of_line = isinstance(frame.f_locals.get("self"), slot_module.Line)  # its operations are one step each
        return in_frame if code.co_filename in files and not of_line else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        decide()
    except FaultError:
        return failed_at
    finally:
        sys.settrace(before)
    return None


FILES = {inspect.getsourcefile(slot_module), inspect.getsourcefile(run_module)}


def fail_at_every_line(make, decide, everything):
    """Return the lines at which something had changed already."""
    late = []
    for line in range(1, 200):
        machine = make()
        before = everything(machine)
        failed_at = decide_until(line, FILES, lambda machine=machine: decide(machine))
        if failed_at is None:
            return line - 1, late
        if everything(machine) != before:
            late.append(failed_at)
    raise AssertionError("a decision of more than 200 lines")


def all_of_slot(slot):
    return slot.phase, slot.owner, slot.kept, slot.draining, tuple(slot.line)


def all_of_run(run):
    return run.phase, run.attempt, run.retries, run.claimed


SLOT_MESSAGES = {
    "submit queue": lambda slot: slot.submit(entry(9, QUEUE)),
    "submit replace": lambda slot: slot.submit(entry(9, REPLACE)),
    "submit drop": lambda slot: slot.submit(entry(9, DROP)),
    "registered": lambda slot: slot.registered(slot.owner.id if slot.owner else entry(1).id, epoch=1),
    "refused": lambda slot: slot.refused(slot.owner.id if slot.owner else entry(1).id),
    "withdraw the owner": lambda slot: slot.withdraw(entry(1).id, "op", Cause.REMOVE, Standing.FREE),
    "withdraw a waiting one": lambda slot: slot.withdraw(entry(2).id, "op", Cause.CANCEL, Standing.FREE),
    "finished": lambda slot: slot.finished(lingering=False),
    "finished, lingering": lambda slot: slot.finished(lingering=True),
    "released": lambda slot: slot.released(),
    "drain": lambda slot: slot.drain(1.0),
}


@pytest.mark.parametrize("message", SLOT_MESSAGES)
@pytest.mark.parametrize("phase", Phase)
def test_a_fault_in_a_slots_decision_comes_before_its_assignments(phase, message):
    waiting = (2, 3) if phase in PARKED else ()
    lines, late = fail_at_every_line(lambda: slot_in(phase, *waiting), SLOT_MESSAGES[message], all_of_slot)
    assert lines > 0
    assert [text for text in late if not CAN_NOT_FAIL.match(text)] == []


def pausing():
    run = inside(RestartPolicy.always(5.0))
    run.do_end(AttemptReturned(1))
    return run


def claimed():
    run = inside(RestartPolicy.ON_FAILURE, timeout=3.0)
    run.do_claim()
    return run


def overdue():
    run = inside(RestartPolicy.ON_FAILURE, timeout=3.0)
    run.do_fire(TimerKind.TIMEOUT, 3.0)
    return run


def lingering():
    run = claimed()
    run.do_fire(TimerKind.GRACE, 20.0)
    return run


def started(**options):
    run = Run(RestartPolicy.ON_FAILURE, timeout=3.0, **options)
    run.do_start()
    return run


RUNS = {
    "new": lambda: Run(RestartPolicy.ON_FAILURE),
    "starting": started,
    "waiting for a permit": lambda: started(limited=True),
    "inside": lambda: inside(RestartPolicy.ON_FAILURE, timeout=3.0),
    "inside, once": inside,
    "inside, with a permit": lambda: inside(RestartPolicy.ON_FAILURE, timeout=3.0, limited=True),
    "claimed": claimed,
    "overdue": overdue,
    "pausing": pausing,
    "lingering": lingering,
}
RUN_MESSAGES = {
    "start": lambda run: run.start(),
    "start cancelled": lambda run: run.start(cancelled=True),
    "granted": lambda run: run.granted(run.attempt),
    "denied": lambda run: run.denied(run.attempt, ValueError(), 9.0),
    "started": lambda run: run.started(run.attempt, 9.0),
    "returned": lambda run: run.ended(run.attempt, AttemptReturned(1), released=True, now=9.0),
    "returned, not released": lambda run: run.ended(run.attempt, AttemptReturned(1), released=False, now=9.0),
    "raised": lambda run: run.ended(run.attempt, AttemptRaised(ValueError(), "x"), released=True, now=9.0),
    "fatal": lambda run: run.ended(run.attempt, AttemptRaised(ValueError(), "x", fatal=True), released=True, now=9.0),
    "cancelled": lambda run: run.ended(run.attempt, AttemptCancelled(), released=True, now=9.0),
    "panicked": lambda run: run.ended(run.attempt, WorkerPanicked("x"), released=False, now=9.0),
    "released": lambda run: run.released(run.attempt, now=9.0),
    "timeout": lambda run: run.fired(TimerKind.TIMEOUT, 9.0),
    "grace": lambda run: run.fired(TimerKind.GRACE, 9.0),
    "pause": lambda run: run.fired(TimerKind.PAUSE, 9.0),
    "claim": lambda run: run.claim(Cause.REMOVE, 9.0),
    "drain": lambda run: run.claim(Cause.DRAIN, 9.0, 10.0),
}


@pytest.mark.parametrize("message", RUN_MESSAGES)
@pytest.mark.parametrize("state", RUNS)
def test_a_fault_in_a_runs_decision_does_not_end_it(state, message):
    """Its phase is assigned last: a run that says that it is over has told so."""
    make = RUNS[state]
    before = make().phase
    lines, _late = fail_at_every_line(make, RUN_MESSAGES[message], all_of_run)
    assert lines > 0
    late = fail_at_every_line(make, RUN_MESSAGES[message], lambda run: run.phase)[1]
    assert [text for text in late if not CAN_NOT_FAIL.match(text)] == [], before
