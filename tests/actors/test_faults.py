"""Whatever of ours fails, once, at any message, effect or decision: nobody waits for ever, and other slots go on.

Every test plays the same scene: an owner and a line behind it, a run that waits for a permit, and then everything that
can happen to a submission. In the middle of it one thing fails. The scene tells whether it noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from functools import partial

import pytest

from actors import Runtime, SlotActor, Submit, TaskHandle, closing, ending, messages, orders
from actors.bodies.coroutine import CoroutineRunner
from actors.bodies.job import BodyJob
from actors.bodies.thread import ThreadRunner
from actors.budget import Budget, Intake
from actors.desk import Desk
from actors.hands import ACTIONS
from actors.limiter import LimiterActor
from actors.lone import LoneSlotActor
from actors.observers.log import LogObserver
from actors.publisher import Publisher
from actors.registry import RegistryActor
from actors.runtime import Mailbox, RuntimeActor, TimerFired
from actors.worker import WorkerActor
from admission import (
    AdmissionLimits,
    Backoff,
    Completed,
    ForceAborted,
    Panicked,
    RejectionKind,
    SlotStatus,
    Submission,
    SupervisorClosedError,
    TaskExistsError,
    TaskSpec,
)
from admission.events import Event
from admission.run import RunMachine
from admission.slot import LEGAL_EDGES, SlotMachine
from tests.actors.support import SOON, Gauge, Log, call_in_thread, eventually, noop

ERRORS = [ValueError("boom"), SystemExit(3), MemoryError()]
ACTORS = {
    SlotActor: [
        messages.Admit,
        messages.Adopt,
        messages.Registered,
        messages.Refused,
        messages.Withdraw,
        messages.View,
        messages.Drain,
        messages.Retire,
        messages.Granted,
        messages.AttemptStarted,
        messages.AttemptEnded,
        TimerFired,
    ],
    RegistryActor: [
        messages.Ticket,
        messages.Submit,
        messages.Add,
        messages.RunOut,
        messages.Remove,
        messages.Cancel,
        messages.Tasks,
        messages.Alive,
        messages.Snapshot,
        messages.Explain,
        messages.Join,
        messages.Shutdown,
        messages.Register,
        messages.Withdrawn,
        messages.Rejection,
        messages.Finished,
        messages.Released,
        messages.Viewed,
        messages.Flushed,
        TimerFired,
    ],
    WorkerActor: [
        messages.Begin,
        messages.BodyEntered,
        messages.BodyReturned,
        messages.Stop,
        messages.Kill,
    ],
    LimiterActor: [messages.Acquire, messages.Return, messages.Retire],
    LogObserver: [Event, messages.Flush, messages.Retire],
}
NOT_SENT_TO_OURS = {messages.Lifecycle, messages.Ended}
AFTER_A_FAULT = {
    messages.Denied: (LimiterActor, messages.Acquire),
    messages.AttemptReleased: (WorkerActor, messages.BodyEntered),
}
"""Sent to a slot only when that actor has failed over that message."""

NOT_ALONE = {
    messages.Ticket,
    messages.Add,
    messages.Adopt,
    messages.RunOut,
    messages.Refused,
    messages.Retire,
    messages.Granted,
    messages.Denied,
}
ALONE = [
    kind
    for kind in dict.fromkeys([*ACTORS[SlotActor], *ACTORS[RegistryActor], *AFTER_A_FAULT])
    if kind not in NOT_ALONE
]


class Fault:
    """Raises its error once, at the first chance after it is armed."""

    def __init__(self, error):
        self.error = error
        self.armed = False
        self.fired = False
        self._once = threading.Lock()

    def at(self, monkeypatch, owner, name, kind=None):
        """Strike at this method; with `kind`, only where its last argument is of that type."""
        monkeypatch.setattr(owner, name, self.in_front_of(getattr(owner, name), kind))

    def at_message(self, monkeypatch, actor, kind):
        """Strike at this actor's handler of this type of message."""
        if kind in actor.handlers:
            monkeypatch.setitem(actor.handlers, kind, self.in_front_of(actor.handlers[kind]))
        else:
            self.at(monkeypatch, actor, "on_receive", kind)

    def in_front_of(self, original, kind=None):
        def faulty(*args, **kwargs):
            if self.armed and (kind is None or type(args[-1]) is kind) and self._once.acquire(blocking=False):
                self.fired = True
                raise self.error
            return original(*args, **kwargs)

        return faulty


class Scene:
    """Everything that can happen to a submission, with one job waiting, one running and one in line before it."""

    def __init__(self, body, fault):
        self.body = body
        self.fault = fault
        self.gauge = Gauge()
        self.handles = []

    def submit(self, work, slot, *, policy="queue", **settings):
        spec = TaskSpec.once(self.gauge(work), **settings)
        handle = self.call(self.hand_in, Submission(spec, slot=slot, policy=policy))
        if handle is not None:
            self.handles.append(handle)
        return handle

    def call(self, function, *args, **kwargs):
        """Call it, within bounds; the fault may come out, nothing else."""
        try:
            return call_in_thread(function, *args, **kwargs)()
        except BaseException as error:
            if error is not self.fault.error:
                raise
            return None

    def insist(self, function, *args, **kwargs):
        """Call it, and once more if the fault came out."""
        answer = self.call(function, *args, **kwargs)
        return self.call(function, *args, **kwargs) if answer is None else answer

    def settled(self, handle):
        assert handle is None or handle.outcome(SOON)

    def one_on_its_own(self, slot, **settings):
        handle = self.submit(noop, slot, **settings)
        if handle is None:  # the fault came out of the submission itself
            handle = self.submit(noop, slot, **settings)
        return handle.outcome(SOON)

    def set_up(self):
        self.owner, self.holder = self.body(), self.body()
        self.owners_handle = self.submit(self.owner, "faulty")
        self.in_line = [self.submit(noop, "faulty", name=f"line-{number}") for number in range(3)]
        self.submit(self.holder, "holder")
        assert self.owner.is_inside()
        assert self.holder.is_inside()
        self.waits = self.submit(noop, "waits")

    def play(self):
        """Let everything happen. Of what is not hit by the fault, everything goes well."""
        self.look()
        self.submit(noop, "twin", name="faulty")  # where names are compared: refused
        self.withdraw(self.in_line[1])
        self.submit(noop, "faulty", policy="drop_if_running")
        self.holder.let_go()
        self.settled(self.waits)

        listening = self.body()
        asked_to_stop = self.submit(listening, "listening")
        self.inside_or_over(listening, asked_to_stop)
        self.withdraw(asked_to_stop)
        self.settled(asked_to_stop)

        stubborn = self.body(stubborn=True)
        given_up = self.submit(stubborn, "stubborn")
        self.inside_or_over(stubborn, given_up)
        self.call_off(given_up)
        self.settled(given_up)
        stubborn.let_go()

        flaky = iter([ValueError("the first time"), None])
        self.call(self.hand_in_retried, flaky, "flaky")
        self.submit(self.body(), "timed", attempt_timeout=0.01)
        self.submit(self.body(), "replaced")
        self.submit(noop, "replaced", policy="replace", name="replacer")
        self.owner.let_go()
        self.call(self.join)

    def hand_in_retried(self, errors, slot):
        def flaky(_ctx):
            error = next(errors)
            if error is not None:
                raise error

        spec = TaskSpec.restartable(self.gauge(flaky), backoff=Backoff.constant(0))
        self.handles.append(self.hand_in(Submission(spec, slot=slot)))

    def inside_or_over(self, body, handle):
        assert handle is None or eventually(lambda: body.entered.is_set() or handle.done())

    def finale(self, last="last"):
        """All that was handed in is over, and everything works again."""
        for handle in self.handles:
            self.settled(handle)
        assert self.one_on_its_own("another") == Completed("done")
        assert self.one_on_its_own("faulty") == Completed("done")
        running = self.body()
        inside = self.submit(running, last)
        self.inside_or_over(running, inside)
        behind = self.submit(noop, last)
        self.end()
        for handle in (inside, behind):
            self.settled(handle)
        assert self.fault.fired, "the scene has nothing of this kind"
        assert set(self.gauge.most.values()) <= {1}


class SupervisedScene(Scene):
    def __init__(self, start, body, fault, log=None):
        super().__init__(body, fault)
        self.log = log or Log()
        self.supervisor = start(
            grace=0.02,
            observer_timeout=0.1,
            limits=AdmissionLimits(max_concurrent=2, slot_idle_timeout=0),
            logger=self.log,
        )
        self.hand_in = self.supervisor.submit
        self.join = self.supervisor.join
        self.set_up()

    def look(self):
        asked = self.call(self.supervisor.registry.ask, Submit(Submission(noop, slot="asked")))
        self.handles.append(asked)
        for name in ("added", "added", "added too"):  # the second one may find the name taken
            with contextlib.suppress(TaskExistsError):
                self.handles.append(self.call(self.supervisor.add, TaskSpec.once(noop, name=name)))
        self.call(self.supervisor.snapshot)
        self.call(self.supervisor.tasks)
        self.call(self.supervisor.alive)
        self.call(self.supervisor.explain, "faulty")

    def withdraw(self, handle):
        if handle is not None:
            self.insist(self.supervisor.remove, handle.id)

    def call_off(self, handle):
        if handle is not None:
            self.insist(self.supervisor.cancel, handle.id)

    def end(self):
        self.supervisor.registry.tell(messages.RunOut())
        self.report = self.insist(self.supervisor.shutdown)
        assert self.report is not None

    def holds(self):
        """What is still taken by somebody, now that nothing is at work."""
        registry = self.supervisor.registry._actor_weakref()
        limiter = registry.limiter._actor_weakref()
        numbers = {
            "places in the intake": self.supervisor._core.intake.inside,
            "units of the line": registry.services.budget.out,
            "permits": len(limiter.held) + len(limiter.waiting),
            "names": len(registry.names) + len(registry.members) + len(registry.lingering_names),
            "routes": len(registry.routes),
            "callers": len(registry.callers),
            "slots at work": registry.at_work,
        }
        return {what: number for what, number in numbers.items() if number}


class LoneScene(Scene):
    """The same in a slot without a registry: one thing after the other."""

    def __init__(self, runtime, body, fault):
        super().__init__(body, fault)
        self.slot = SlotActor.start("faulty", runtime=runtime, grace=0.02, observer_timeout=0.1, logger=Log())
        self.neighbour = SlotActor.start("another", runtime=runtime)
        self.owner = self.body()
        self.owners_handle = self.submit(self.owner, "faulty")
        self.in_line = [self.submit(noop, "faulty") for _ in range(3)]
        assert self.owner.is_inside()

    def hand_in(self, submission):
        return (self.neighbour if submission.slot == "another" else self.slot).ask(Submit(submission))

    def join(self):
        self.slot.ask(messages.Join())

    def play(self):
        self.call(self.slot.ask, messages.Snapshot())
        self.call(self.slot.ask, messages.Tasks())
        self.call(self.slot.ask, messages.Alive())
        self.call(self.slot.ask, messages.Explain("faulty"))
        self.insist(self.slot.ask, messages.Remove(self.in_line[1].id))
        self.submit(noop, "faulty", policy="drop_if_running")
        listening, stubborn = self.body(), self.body(stubborn=True)
        asked_to_stop = self.submit(listening, "faulty")
        self.owner.let_go()
        self.inside_or_over(listening, asked_to_stop)
        given_up = self.submit(stubborn, "faulty", policy="replace")
        self.inside_or_over(stubborn, given_up)
        if given_up is not None:
            self.insist(self.slot.ask, messages.Cancel(given_up.id))
        behind = self.submit(noop, "faulty")
        stubborn.let_go()
        self.settled(behind)
        errors = iter([ValueError("the first time"), None])
        self.call(self.hand_in_retried, errors, "faulty")
        self.submit(self.body(), "faulty", attempt_timeout=0.01)
        self.call(self.join)

    def finale(self):
        super().finale(last="faulty")

    def end(self):
        assert self.insist(self.slot.ask, messages.Shutdown()) is not None


@pytest.fixture
def scene(start, body):
    return partial(SupervisedScene, start, body)


def ids(value):
    return value if isinstance(value, str) else getattr(value, "__name__", None) or type(value).__name__


def every(table):
    return [(owner, each) for owner, kinds in table.items() for each in kinds]


# -- a message -----------------------------------------------------------------------------------------------------


def test_the_scene_goes_well_where_nothing_fails(scene):
    fault = Fault(ValueError())
    played = scene(fault)
    played.play()
    fault.fired = True
    played.finale()
    assert "runtime_failure" not in played.log.events()


def test_every_message_of_the_protocol_is_among_those_that_fail():
    named = {getattr(messages, name) for name in messages.__all__ if isinstance(getattr(messages, name), type)}
    failing = {kind for kinds in ACTORS.values() for kind in kinds} | set(AFTER_A_FAULT)
    assert named - NOT_SENT_TO_OURS <= failing


@pytest.mark.parametrize("error", ERRORS, ids=ids)
@pytest.mark.parametrize(("actor", "kind"), every(ACTORS), ids=ids)
def test_a_message_that_fails_costs_only_what_it_stood_for(monkeypatch, scene, actor, kind, error):
    fault = Fault(error)
    fault.at_message(monkeypatch, actor, kind)
    played = scene(fault)
    fault.armed = True
    played.play()
    assert eventually(lambda: played.holds() == {}), played.holds()
    played.finale()
    if actor is SlotActor or actor is RegistryActor:
        assert not played.report.clean
        assert played.log.of("runtime_failure") or kind is messages.Flushed  # after the last record


@pytest.mark.parametrize("error", ERRORS, ids=ids)
@pytest.mark.parametrize("kind", AFTER_A_FAULT, ids=ids)
def test_a_message_that_tells_of_a_fault_may_fail_as_well(monkeypatch, scene, kind, error):
    before, fault = Fault(error), Fault(error)
    before.at_message(monkeypatch, *AFTER_A_FAULT[kind])
    fault.at_message(monkeypatch, SlotActor, kind)
    played = scene(fault)
    before.armed = fault.armed = True
    played.play()
    played.finale()


@pytest.mark.parametrize("kind", ALONE, ids=ids)
def test_a_message_that_fails_in_a_slot_alone_costs_only_what_it_stood_for(monkeypatch, runtime, body, kind):
    before, fault = Fault(SystemExit()), Fault(SystemExit())
    if kind in AFTER_A_FAULT:
        before.at_message(monkeypatch, *AFTER_A_FAULT[kind])
    fault.at_message(monkeypatch, LoneSlotActor, kind)
    played = LoneScene(runtime, body, fault)
    before.armed = fault.armed = True
    played.play()
    played.finale()


# -- an effect, a decision -----------------------------------------------------------------------------------------

DESK_EFFECTS = [
    orders.Tell,
    orders.Publish,
    orders.Settle,
    orders.Answer,
    ending._Conclude,
    closing.FlushSubscribers,
    closing._FlushLog,
]
OF_PERMITS = [each for each in ACTIONS if each.__name__ in ("AcquirePermit", "ReturnPermit")]
DECISIONS = {
    SlotMachine: ["submit", "registered", "refused", "withdraw", "finished", "released", "drain"],
    RunMachine: ["start", "granted", "started", "ended", "released", "fired", "claim"],
    Desk: ["answer_callers", "look_for_the_end", "unregister_member", "_withdraw"],
    RegistryActor: ["find_slot", "opened", "closed", "refusal", "slots_at_work", "_retire", "watch_idle"],
}

DECISIONS_ALONE = {
    SlotMachine: ["submit", "registered", "withdraw", "finished", "drain"],
    RunMachine: ["start", "started", "ended", "fired", "claim"],
}


@pytest.mark.parametrize("effect", ACTIONS, ids=ids)
def test_an_effect_of_a_slot_that_fails_does_not_cost_the_ones_behind_it(monkeypatch, scene, effect):
    fault = Fault(SystemExit())
    monkeypatch.setitem(ACTIONS, effect, fault.in_front_of(ACTIONS[effect]))
    played = scene(fault)
    fault.armed = True
    played.play()
    played.finale()


@pytest.mark.parametrize("effect", [messages.Ticket, *(each for each in ACTIONS if each not in OF_PERMITS)], ids=ids)
def test_an_effect_that_fails_in_a_slot_alone_does_not_cost_the_ones_behind_it(monkeypatch, runtime, body, effect):
    fault = Fault(SystemExit())
    if effect in ACTIONS:
        monkeypatch.setitem(ACTIONS, effect, fault.in_front_of(ACTIONS[effect]))
    else:
        fault.at(monkeypatch, effect, "settle")
    played = LoneScene(runtime, body, fault)
    fault.armed = True
    played.play()
    played.finale()


@pytest.mark.parametrize("effect", DESK_EFFECTS, ids=ids)
def test_an_effect_of_the_registry_that_fails_does_not_cost_the_ones_behind_it(monkeypatch, scene, effect):
    fault = Fault(SystemExit())
    fault.at(monkeypatch, effect, "perform")
    played = scene(fault)
    fault.armed = True
    played.play()
    played.finale()


@pytest.mark.parametrize(("machine", "method"), every(DECISIONS), ids=ids)
def test_a_decision_that_fails_costs_only_what_it_was_about(monkeypatch, scene, machine, method):
    fault = Fault(MemoryError())
    fault.at(monkeypatch, machine, method)
    played = scene(fault)
    fault.armed = True
    played.play()
    played.finale()


@pytest.mark.parametrize(("machine", "method"), every(DECISIONS_ALONE), ids=ids)
def test_a_decision_that_fails_in_a_slot_alone_costs_only_what_it_was_about(
    monkeypatch, runtime, body, machine, method
):
    fault = Fault(MemoryError())
    fault.at(monkeypatch, machine, method)
    played = LoneScene(runtime, body, fault)
    fault.armed = True
    played.play()
    played.finale()


PARTS = {
    BodyJob: ["claim_entry", "call", "entered", "left"],
    Budget: ["take", "give"],
    Intake: ["take", "give"],
    Publisher: ["publish"],
    Runtime: ["schedule", "cancel"],
    TaskHandle: ["resolve"],
    ThreadRunner: ["start", "stop", "kill", "enter", "take"],
    messages.Ticket: ["decided", "settle"],
}


@pytest.mark.parametrize(("part", "method"), every(PARTS), ids=ids)
def test_a_part_that_fails_costs_only_what_it_was_needed_for(monkeypatch, scene, part, method):
    fault = Fault(MemoryError())
    fault.at(monkeypatch, part, method)
    played = scene(fault)
    fault.armed = True
    played.play()
    played.finale()


def test_records_that_nobody_wants_and_that_can_not_be_counted_cost_nothing_else(monkeypatch, scene):
    fault, log = Fault(MemoryError()), Log()
    log.is_enabled_for = lambda _level: False
    fault.at(monkeypatch, Publisher, "passes_over")
    played = scene(fault, log=log)
    fault.armed = True
    played.play()
    played.finale()
    assert log.records == []


def test_a_fault_that_can_not_be_told_of_is_settled_all_the_same(monkeypatch, scene):
    fault = Fault(MemoryError())
    fault.at_message(monkeypatch, SlotActor, messages.AttemptEnded)
    played = scene(fault)
    monkeypatch.setattr(Publisher, "publish", lambda *_args, **_kwargs: {}["no memory"])
    fault.armed = True
    played.play()
    played.finale()


# -- what a fault costs --------------------------------------------------------------------------------------------


def slot_of(supervisor, key):
    return supervisor.registry._actor_weakref().slots[key].ref


def test_a_slot_that_failed_stays_taken_until_its_body_has_left(monkeypatch, start, body):
    fault = Fault(RuntimeError())
    fault.at_message(monkeypatch, SlotActor, messages.Withdraw)
    log = Log()
    supervisor = start(logger=log)
    owner = body(stubborn=True)
    running = supervisor.submit(owner, slot="k")
    in_line = supervisor.submit(noop, slot="k")
    assert owner.is_inside()
    fault.armed = True
    assert supervisor.remove(in_line.id) is False
    assert isinstance(running.outcome(SOON), Panicked)
    assert in_line.outcome(SOON).kind is RejectionKind.ADMISSION_FAILED

    view = supervisor.snapshot().slot("k")
    assert (view.status, view.owner_id, view.queue_depth) == (SlotStatus.TERMINATING, running.id, 0)
    behind = supervisor.submit(noop, slot="k", policy="queue")
    dropped = supervisor.submit(noop, slot="k", policy="drop_if_running")
    assert dropped.outcome(SOON).kind is RejectionKind.SLOT_BUSY
    assert not behind.done()
    owner.let_go()
    assert behind.outcome(SOON) == Completed("done")
    supervisor.shutdown()
    edges = [(fields["from_phase"], fields["to_phase"]) for fields in log.of("slot_transition")]
    assert set(edges) <= {(str(before), str(after)) for before, after in LEGAL_EDGES}
    assert [before for before, _ in edges[1:]] == [after for _, after in edges[:-1]]


def test_a_look_that_fails_costs_nobody_a_job(monkeypatch, supervisor, body):
    fault = Fault(RuntimeError())
    fault.at_message(monkeypatch, SlotActor, messages.View)
    handle = supervisor.submit(work := body("done"), slot="k")
    assert work.is_inside()
    fault.armed = True
    assert supervisor.snapshot().slot("k") is None  # it can not be said
    assert supervisor.snapshot().slot("k").owner_id == handle.id
    work.let_go()
    assert handle.outcome(SOON) == Completed("done")


def test_the_name_of_a_run_that_panicked_is_taken_until_its_body_has_left(monkeypatch, start, body):
    fault = Fault(RuntimeError())
    fault.at_message(monkeypatch, WorkerActor, messages.Stop)
    supervisor = start()
    owner = body(stubborn=True)
    running = supervisor.submit(TaskSpec.once(owner, name="only-one"), slot="k")
    assert owner.is_inside()
    fault.armed = True
    running.cancel()
    assert isinstance(running.outcome(SOON), Panicked)
    namesake = TaskSpec.once(noop, name="only-one")
    assert supervisor.submit(namesake, slot="other").outcome(SOON).kind is RejectionKind.ALREADY_EXISTS
    owner.let_go()
    assert supervisor.submit(noop, slot="k").outcome(SOON) == Completed("done")
    assert supervisor.submit(namesake, slot="other").outcome(SOON) == Completed("done")


def test_a_worker_may_fail_over_the_beginning_and_the_end_of_its_body(monkeypatch, supervisor, body):
    faults = [Fault(RuntimeError()), Fault(RuntimeError())]
    for fault, kind in zip(faults, (messages.BodyEntered, messages.BodyReturned), strict=True):
        fault.at_message(monkeypatch, WorkerActor, kind)
        fault.armed = True
    handle = supervisor.submit(work := body(stubborn=True), slot="k")
    assert isinstance(handle.outcome(SOON), Panicked)
    behind = supervisor.submit(lambda _ctx: work.left.is_set(), slot="k")
    assert not behind.done()
    work.let_go()
    assert behind.outcome(SOON).value is True
    assert all(fault.fired for fault in faults)


@pytest.mark.parametrize("error", ERRORS, ids=ids)
def test_a_worker_that_can_not_be_made_is_an_attempt_that_failed(monkeypatch, supervisor, error):
    fault = Fault(error)
    fault.at(monkeypatch, WorkerActor, "begin")
    fault.armed = True
    assert supervisor.submit(noop, slot="k").outcome(SOON).error is error
    assert supervisor.submit(noop, slot="k").outcome(SOON) == Completed("done")


@pytest.mark.parametrize("error", ERRORS, ids=ids)
def test_a_body_that_can_not_be_started_is_an_attempt_that_failed(monkeypatch, supervisor, error):
    fault = Fault(error)
    fault.at(monkeypatch, ThreadRunner, "start")
    fault.armed = True
    spec = TaskSpec.restartable(noop, max_retries=1, backoff=Backoff.constant(0))
    assert supervisor.submit(spec, slot="k").outcome(SOON) == Completed("done")
    fault = Fault(error)
    fault.at(monkeypatch, ThreadRunner, "start")
    fault.armed = True
    assert supervisor.submit(noop, slot="k").outcome(SOON).error is error


def test_a_told_submission_that_can_not_be_taken_gives_its_place_in_the_intake_back(monkeypatch, start):
    fault = Fault(RuntimeError())
    fault.at(monkeypatch, RegistryActor, "find_slot")
    supervisor = start(limits=AdmissionLimits(intake=1))
    fault.armed = True
    supervisor.registry.tell(Submit(Submission(noop, slot="k")))
    assert supervisor.snapshot().slots == ()  # it has been handled
    assert fault.fired
    assert supervisor.try_submit(noop, slot="k").outcome(SOON) == Completed("done")


def test_a_timer_of_the_registry_that_fails_retires_all_the_same(monkeypatch, start):
    fault = Fault(RuntimeError())
    fault.at_message(monkeypatch, RegistryActor, TimerFired)
    supervisor = start(limits=AdmissionLimits(slot_idle_timeout=0.01))
    registry = supervisor.registry._actor_weakref()
    fault.armed = True
    assert supervisor.submit(noop, slot="k").outcome(SOON) == Completed("done")
    assert eventually(lambda: not registry.slots)
    assert fault.fired


@pytest.mark.parametrize("fails", [False, True], ids=["", "and its timer fails"])
def test_what_a_slot_leaves_behind_at_shutdown_is_given_up_after_the_deadline(monkeypatch, start, body, fails):
    fault = Fault(RuntimeError())
    fault.at_message(monkeypatch, RegistryActor, TimerFired)
    monkeypatch.setitem(SlotActor.handlers, messages.Drain, lambda _slot, _drain: None)
    supervisor = start(grace=0)
    owner = body(stubborn=True)
    running = supervisor.submit(TaskSpec.once(owner, name="lost"), slot="k")
    in_line = supervisor.submit(noop, slot="k")
    assert owner.is_inside()
    fault.armed = fails
    report = call_in_thread(supervisor.shutdown)()
    assert (report.clean, report.stuck) == (False, ("k", "lost"))
    assert isinstance(running.outcome(0), ForceAborted)
    assert isinstance(in_line.outcome(0), ForceAborted)
    assert fault.fired is fails


@pytest.mark.parametrize("fails", [False, True], ids=["", "and its timer fails"])
def test_a_log_that_blocks_delays_a_shutdown_no_longer_than_its_timeout(monkeypatch, start, fails):
    fault, release = Fault(RuntimeError()), threading.Event()
    fault.at_message(monkeypatch, RegistryActor, TimerFired)
    log = Log()
    monkeypatch.setattr(log, "info", lambda *_args, **_kwargs: release.wait(SOON))
    supervisor = start(logger=log, observer_timeout=0.05)
    assert supervisor.submit(noop, slot="k").outcome(SOON) == Completed("done")
    fault.armed = fails
    try:
        report = call_in_thread(supervisor.shutdown)()
    finally:
        release.set()
    assert report.log_dropped > 0
    assert fault.fired is fails


# -- stopped from outside ------------------------------------------------------------------------------------------


@pytest.fixture
def children():
    def find(supervisor):
        registry = supervisor.registry._actor_weakref()
        slot = registry.slots["faulty"].ref
        return {
            "slot": slot,
            "worker": slot._actor_weakref().inside.inbox.owner.actor_ref,
            "limiter": registry.limiter,
            "log": registry.publisher.log,
        }

    return find


@pytest.mark.parametrize("child", ["slot", "worker", "limiter", "log"])
def test_stopping_a_child_counts_as_a_fault_and_ends_nothing_else(scene, children, child):
    fault = Fault(ValueError())
    played = scene(fault)
    played.owner.stubborn = True
    ref = children(played.supervisor)[child]
    assert call_in_thread(ref.stop)()
    assert ref.is_alive()
    if child in ("slot", "worker"):
        assert isinstance(played.owners_handle.outcome(SOON), Panicked)
        assert played.owner.is_inside()
    played.play()
    fault.fired = True
    played.finale()


def test_stopping_the_registry_resolves_everything(scene):
    played = scene(Fault(ValueError()))
    assert call_in_thread(played.supervisor.registry.stop)()
    for handle in played.handles:
        played.settled(handle)
    assert played.supervisor.shutdown().clean in (True, False)
    with pytest.raises(SupervisorClosedError):
        played.supervisor.submit(noop, slot="k")


# -- the threads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ERRORS, ids=ids)
@pytest.mark.parametrize(
    ("part", "method"), [(RuntimeActor, "run_turn"), (Mailbox, "run")], ids=["in a turn", "before a turn"]
)
def test_a_turn_that_fails_does_not_end_the_dispatcher_or_lose_a_message(monkeypatch, scene, part, method, error):
    fault = Fault(error)
    fault.at(monkeypatch, part, method)
    played = scene(fault)
    fault.armed = True
    played.play()
    played.finale()


@pytest.mark.parametrize("error", ERRORS, ids=ids)
def test_a_timer_that_fails_does_not_end_the_timers(scene, error):
    fault = Fault(error)
    played = scene(fault)
    fired = threading.Event()

    def fail():
        fired.set()
        raise error

    played.supervisor._core.runtime.timers.call_at(0.0, fail)
    assert fired.wait(SOON)
    played.play()
    fault.fired = True
    played.finale()


@pytest.mark.parametrize("error", [*ERRORS, KeyboardInterrupt(), GeneratorExit()], ids=ids)
def test_a_task_of_a_body_that_fails_does_not_end_the_event_loop(supervisor, error):
    inside, go_on = threading.Event(), threading.Event()

    async def spawns(_ctx):
        async def fails():
            raise error

        task = asyncio.get_running_loop().create_task(fails())
        with contextlib.suppress(BaseException):
            await asyncio.wait([task])
        return task.exception() if not task.cancelled() else None

    async def runs(_ctx):
        inside.set()
        while not go_on.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.001)
        return "unharmed"

    running = supervisor.submit(runs, slot="running")
    assert inside.wait(SOON)
    spawning = supervisor.submit(spawns, slot="spawning")
    assert spawning.outcome(SOON) == Completed(error)
    go_on.set()
    assert running.outcome(SOON) == Completed("unharmed")

    async def last(_ctx):
        return "last"

    assert supervisor.submit(last, slot="spawning").outcome(SOON) == Completed("last")


@pytest.mark.parametrize("error", ERRORS, ids=ids)
@pytest.mark.parametrize("method", ["_body", "start", "adopt", "stop"])
def test_a_coroutine_that_can_not_be_entered_or_stopped_is_settled_all_the_same(monkeypatch, supervisor, method, error):
    fault = Fault(error)
    fault.at(monkeypatch, CoroutineRunner, method)
    inside, release = threading.Event(), threading.Event()

    async def listens(_ctx):
        inside.set()
        while not release.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.001)

    def returns_an_awaitable(ctx):
        return listens(ctx)

    fault.armed = True
    body = returns_an_awaitable if method == "adopt" else listens
    handle = supervisor.submit(body, slot="k")
    assert eventually(lambda: inside.is_set() or handle.done())
    handle.cancel()
    assert handle.outcome(SOON)
    assert fault.fired
    assert supervisor.submit(noop, slot="other").outcome(SOON) == Completed("done")
    release.set()
    assert supervisor.submit(noop, slot="k").outcome(SOON) == Completed("done")


@pytest.mark.parametrize("error", ERRORS, ids=ids)
def test_a_log_handler_that_fails_loses_its_records_and_nothing_else(monkeypatch, start, error):
    def fail(*_args, **_kwargs):
        raise error

    log = Log()
    for level in ("debug", "info", "warning", "error"):
        monkeypatch.setattr(log, level, fail)
    supervisor = start(logger=log)
    assert {supervisor.submit(noop, slot="k").outcome(SOON) for _ in range(20)} == {Completed("done")}
    assert supervisor.shutdown().clean


# -- all at once ---------------------------------------------------------------------------------------------------


class Storm:
    """Lets any message and any effect fail by chance; what settles a fault does not fail as well."""

    def __init__(self, monkeypatch, seed):
        self.raging = False
        self.faults = 0
        self._monkeypatch = monkeypatch
        self._chance = random.Random(seed)  # noqa: S311
        self._settling = threading.local()
        for table in (SlotActor.handlers, RegistryActor.handlers, WorkerActor.handlers, ACTIONS):
            for kind, handler in table.items():
                monkeypatch.setitem(table, kind, self._may_fail(handler))
        for actor in (LimiterActor, LogObserver):
            monkeypatch.setattr(actor, "on_receive", self._may_fail(actor.on_receive))
        for actor in (SlotActor, RegistryActor, WorkerActor, LimiterActor, LogObserver):
            for name in ("on_fault", "on_effect_fault"):
                monkeypatch.setattr(actor, name, self._settles(getattr(actor, name)))

    def _may_fail(self, original):
        def failing(*args):
            if self.raging and not getattr(self._settling, "now", False) and self._chance.random() < 0.1:
                self.faults += 1
                raise self._chance.choice(ERRORS)
            return original(*args)

        return failing

    def _settles(self, original):
        def settling(*args):
            before, self._settling.now = getattr(self._settling, "now", False), True
            try:
                return original(*args)
            finally:
                self._settling.now = before

        return settling


@pytest.mark.parametrize("seed", range(10))
def test_in_a_storm_of_faults_nothing_is_lost_doubled_or_left_behind(monkeypatch, scene, seed):
    storm, chance, quiet = Storm(monkeypatch, seed), random.Random(seed), Fault(None)  # noqa: S311
    played = scene(quiet)
    supervisor = played.supervisor

    def works(ctx):
        what = chance.random()
        if what < 0.3:
            raise ValueError
        if what < 0.5:
            ctx.sleep(0.005)
        elif what < 0.6:
            time.sleep(0.03)  # longer than its grace

    async def works_on_the_loop(ctx):
        await ctx.sleep(0.003)

    storm.raging = True
    for number in range(100):
        spec = TaskSpec.restartable(
            played.gauge(works) if chance.random() < 0.8 else works_on_the_loop,
            name=f"n{number}",
            max_retries=2,
            backoff=Backoff.constant(0.001),
            attempt_timeout=chance.choice([None, 0.004]),
        )
        policy = chance.choice(["queue", "queue", "replace", "drop_if_running"])
        played.handles.append(supervisor.submit(spec, slot=f"s{number % 5}", policy=policy))
        if chance.random() < 0.2:
            with contextlib.suppress(*map(type, ERRORS)):
                chance.choice(played.handles).cancel(wait=chance.random() < 0.2, timeout=SOON)
        if chance.random() < 0.1:
            with contextlib.suppress(*map(type, ERRORS)):
                call_in_thread(supervisor.snapshot)()
    played.owner.let_go()
    played.holder.let_go()
    for handle in played.handles:
        played.settled(handle)
    storm.raging = False
    assert eventually(lambda: played.holds() == {}), played.holds()
    assert storm.faults
    quiet.fired = True
    played.finale()
