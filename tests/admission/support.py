"""What the tests of the two machines share: entries, a driver for each, and every effect as one line of text."""

from __future__ import annotations

import pickle
from random import Random
from typing import assert_never

from admission import effects as fx
from admission.backoff import Backoff
from admission.effects import Cause, Entry, Phase, in_order
from admission.events import EventKind
from admission.identity import TaskId
from admission.policy import AdmissionPolicy, RestartPolicy
from admission.rules import Rules
from admission.run import RunMachine
from admission.slot import SlotMachine, Standing
from admission.spec import RunSettings

JITTER = Random(1)  # noqa: S311 - spreads delays
QUEUE, REPLACE, DROP = AdmissionPolicy.QUEUE, AdmissionPolicy.REPLACE, AdmissionPolicy.DROP_IF_RUNNING


def pickled(value):
    """Send a value to another process and back."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


def entry(number, policy=QUEUE):
    return Entry(TaskId(number), policy, f"task-{number}")


class Slot(SlotMachine):
    """A slot's machine; each method returns the effects as text, in order."""

    def __init__(self, max_queue=None):
        super().__init__(Rules(max_queue=max_queue))

    def _do(self, effects):
        return None if effects is None else shown(effects)

    def queue(self, *numbers):
        for number in numbers:
            self._do(self.submit(entry(number)))
        return self

    def do_submit(self, number, policy=QUEUE, **unit):
        return self._do(self.submit(entry(number, policy), **unit))

    def do_register(self, number=1):
        return self._do(self.registered(TaskId(number), epoch=7))

    def do_refuse(self, number=1):
        return self._do(self.refused(TaskId(number)))

    def do_withdraw(self, number, cause=Cause.REMOVE, standing=Standing.FREE, op="op"):
        return self._do(self.withdraw(TaskId(number), op, cause, standing))

    def do_finish(self, *, lingering=False):
        return self._do(self.finished(lingering=lingering))

    def do_release(self):
        return self._do(self.released())

    def do_drain(self, deadline=60.0):
        return self._do(self.drain(deadline))

    @property
    def waiting(self):
        return [int(each.id) for each in self.line]


def slot_in(phase, *waiting, max_queue=None):
    """Make a slot that owner 1 has brought into this phase, with these submissions behind it."""
    slot = Slot(max_queue)
    if phase is Phase.ABSENT:
        return slot
    slot.queue(1)
    if phase in (Phase.RUNNING, Phase.TERMINATING, Phase.IDLE, Phase.CLOSED):
        slot.do_register()
    if phase in (Phase.CANCEL_PENDING, Phase.TERMINATING):
        slot.do_submit(waiting[0] if waiting else 2, REPLACE)
        slot.queue(*waiting[1:])
        if not waiting:
            slot.do_withdraw(2)
    elif phase in (Phase.IDLE, Phase.CLOSED):
        slot.do_finish()
        if phase is Phase.CLOSED:
            slot.do_drain()
    else:
        slot.queue(*waiting)
    return slot


class Run(RunMachine):
    """A run's machine of submission 1; each method returns the effects as text, in order.

    A message that is not current gives None.
    """

    def __init__(
        self,
        restart=RestartPolicy.NEVER,
        *,
        timeout=None,
        max_retries=None,
        backoff=None,
        grace=10.0,
        limited=False,
    ):
        settings = RunSettings(restart, backoff or Backoff.constant(4), timeout, max_retries)
        super().__init__(entry(1), settings, Rules(grace=grace, limited=limited, random=JITTER))
        self.last = []

    def _do(self, effects):
        if effects is None:
            return None
        self.last = effects
        return shown(effects)

    def do_start(self, **cancelled):
        return self._do(self.start(**cancelled))

    def do_grant(self, attempt=None):
        return self._do(self.granted(attempt or self.attempt))

    def do_deny(self, error, attempt=None, now=0.0):
        return self._do(self.denied(attempt or self.attempt, error, now))

    def do_enter(self, at=0.0, attempt=None):
        return self._do(self.started(attempt or self.attempt, at))

    def do_end(self, result, *, now=0.0, released=True, attempt=None):
        return self._do(self.ended(attempt or self.attempt, result, released=released, now=now))

    def do_release(self, *, now=0.0, attempt=None):
        return self._do(self.released(attempt or self.attempt, now=now))

    def do_fire(self, timer, now=0.0):
        return self._do(self.fired(timer, now))

    def do_claim(self, cause=Cause.REMOVE, now=0.0, deadline=None):
        return self._do(self.claim(cause, now, deadline))

    @property
    def outcome(self):
        """The outcome in the last effects, if they hold one."""
        return next((each.outcome for each in self.last if isinstance(each, fx.Finish)), None)


def inside(*args, at=0.0, **settings):
    """Make a run whose first attempt's body is inside since `at`."""
    run = Run(*args, **settings)
    run.do_start()
    if run.rules.limited:
        run.do_grant()
    run.do_enter(at)
    return run


def shown(effects):
    return [show(effect) for effect in in_order(effects)]


def show(effect):  # noqa: C901, PLR0911, PLR0912 - one line per kind of effect
    """Write an effect as one line; texts for people are left out."""
    match effect:
        case fx.SetCancelFlag(cause):
            return f"flag {cause}"
        case fx.ReturnPermit(_, attempt):
            return f"return permit {attempt}"
        case fx.ReturnUnit():
            return "return unit"
        case fx.Emit(kind, who, attempt, fields):
            words = [f"event {kind} {who.id}", *([f"attempt {attempt}"] if attempt is not None else [])]
            for_people = {"reason"} if kind is not EventKind.TASK_REMOVE_REQUESTED else set()
            return " ".join(words + [f"{name}={value}" for name, value in fields.items() if name not in for_people])
        case fx.Edge(before, after, announced, reason):
            return f"edge {before}>{after}" + (f" ({reason})" if reason else "") + (" announced" if announced else "")
        case fx.SetTimer(kind, due):
            return f"set {kind} {due:g}"
        case fx.CancelTimer(kind):
            return f"cancel {kind}"
        case fx.AcquirePermit(attempt):
            return f"acquire permit {attempt}"
        case fx.BeginAttempt(attempt):
            return f"begin {attempt}"
        case fx.StopAttempt(cause):
            return f"stop {cause}"
        case fx.KillAttempt():
            return "kill"
        case fx.StartRun(who, epoch, cancelled):
            return f"start run {who.id} epoch {epoch}" + (" cancelled" if cancelled else "")
        case fx.ClaimRun(cause):
            return f"claim run {cause}"
        case fx.DrainRun(deadline):
            return f"drain run {deadline:g}"
        case fx.AnswerWithdrawal(id_, op, claimed):
            return f"answer {op} {id_} {'claimed' if claimed else 'not claimed'}"
        case fx.Reject(who, kind, _reason, cause_id):
            return f"reject {who.id} {kind}" + (f" by {cause_id}" if cause_id else "")
        case fx.Finish(_, outcome, lingering, forced_by):
            forced = f" forced by {forced_by}" if forced_by else ""
            return f"finish {outcome.label.removeprefix('outcome_')}" + (" lingering" if lingering else "") + forced
        case fx.ReleaseRun():
            return "release run"
        case fx.Vacate(id_):
            return f"vacate {id_}"
        case fx.Register(who):
            return f"register {who.id}"
        case _:
            assert_never(effect)


def state(machine):
    """Write a slot's state as one line: phase, owner, flags, line."""
    words = [str(machine.phase)]
    if machine.owner is not None:
        words.append(str(machine.owner.id))
    if machine.draining:
        words.append("draining")
    if machine.kept:
        words.append(f"kept={len(machine.kept)}")
    if machine.line:
        words += ["|", *(str(each.id) for each in machine.line)]
    return " ".join(words)
