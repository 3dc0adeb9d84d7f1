"""Wrong calls: each is refused where it is made, says what is wrong and what is right, and has changed nothing."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from datetime import timedelta

import pytest

from actors import AsyncSupervisor, Supervisor, TaskContext, make_runtime, open_runtime
from admission import (
    INHERIT,
    AdmissionLimits,
    AlreadyRunningError,
    Backoff,
    Completed,
    IntakeFullError,
    NotStartedError,
    RestartPolicy,
    Submission,
    SupervisorClosedError,
    TaskDefaults,
    TaskExistsError,
    TaskId,
    TaskSpec,
)
from tests.actors.support import SOON, Log, noop, outcome_of

NAN, INFINITE = math.nan, math.inf
BUSY = TaskSpec.once(noop, name="busy")
SECONDS = "seconds (int or float) or a timedelta"
NEGATIVE = "must not be negative or NaN"
COUNT = "an int or None (no limit)"
CONTEXT = TaskContext.detached()


class World:
    """A supervisor with one job inside and one in line, and everything that a wrong call might change."""

    def __init__(self, supervisor, body):
        self.supervisor = supervisor
        self.inside = body()
        self.handle = supervisor.submit(TaskSpec.once(self.inside, name="busy"), slot="k")
        self.waiting = supervisor.submit(noop, slot="k")
        assert self.inside.is_inside()
        self.prepared = supervisor.prepare(noop, slot="k", policy="drop_if_running")
        outcome_of(self.prepared.submit())

    def state(self):
        """Return what there is, and how many records have been written about it."""
        core = self.supervisor._core
        registry = core.registry._actor_weakref()
        slots = [(view.slot, view.status, view.owner_id, view.queue_depth) for view in self.supervisor.snapshot().slots]
        return {
            "tasks": self.supervisor.tasks(),
            "slots": slots,
            "alive": self.supervisor.alive(),
            "records": core.publisher._number,
            "subscribers": core.publisher._listeners,
            "intake": core.intake.inside,
            "routes": list(registry.routes),
            "callers": dict(registry.callers),
            "draining": registry.deadline,
            "done": (self.handle.done(), self.waiting.done()),
        }


@pytest.fixture
def world(start, body):
    return World(start(logger=Log(), limits=AdmissionLimits(intake=2)), body)


def supervise(**options):
    return lambda _: Supervisor(**options)


def once(**options):
    return lambda _: TaskSpec.once(noop, **options)


def restartable(**options):
    return lambda _: TaskSpec.restartable(noop, **options)


def limits(**options):
    return lambda _: AdmissionLimits(**options)


def defaults(**options):
    return lambda _: TaskDefaults(**options)


def on(call):
    """Call something on the supervisor."""
    return lambda world: call(world.supervisor)


REFUSED = [
    # what is submitted, where to, and how
    (
        on(lambda it: it.submit(None)),
        TypeError,
        "work must be a TaskSpec or a callable as body(ctx, *args, **kwargs), not NoneType",
    ),
    (on(lambda it: it.submit("noop", slot="k")), TypeError, "work must be a TaskSpec or a callable"),
    (on(lambda it: it.try_submit(3)), TypeError, "work must be a TaskSpec or a callable"),
    (on(lambda it: it.submit(noop, slot=3)), TypeError, "slot must be a str, not int"),
    (on(lambda it: it.submit(noop, slot=b"k")), TypeError, "slot must be a str, not bytes"),
    (on(lambda it: it.submit(noop, slot="")), ValueError, "slot must not be empty"),
    (on(lambda it: it.try_submit(noop, slot="")), ValueError, "slot must not be empty"),
    (on(lambda it: it.submit(noop, policy="wait")), ValueError, "policy must be an AdmissionPolicy or one of 'queue'"),
    (on(lambda it: it.submit(noop, policy=None)), ValueError, "policy must be an AdmissionPolicy"),
    (on(lambda it: it.try_submit(noop, policy=True)), ValueError, "policy must be an AdmissionPolicy"),
    (on(lambda it: it.submit(Submission(noop), slot="k")), TypeError, "a Submission has its slot and policy already"),
    (on(lambda it: it.submit(Submission(noop), policy="replace")), TypeError, "pass it alone"),
    (lambda _: Submission(noop, slot=""), ValueError, "slot must not be empty"),
    (lambda _: Submission(noop, policy="wait"), ValueError, "one of 'queue', 'replace', 'drop_if_running'"),
    (lambda _: Submission(3), TypeError, "work must be a TaskSpec or a callable"),
    # prepared
    (on(lambda it: it.prepare(3)), TypeError, "work must be a TaskSpec or a callable"),
    (on(lambda it: it.prepare(noop, slot="")), ValueError, "slot must not be empty"),
    (on(lambda it: it.prepare(noop, policy="wait")), ValueError, "policy must be an AdmissionPolicy"),
    (lambda world: world.prepared.submit(), RuntimeError, "is submitted once, prepare another one"),
    (lambda world: world.prepared.try_submit(), RuntimeError, "is submitted once, prepare another one"),
    # added
    (on(lambda it: it.add(None)), TypeError, "work must be a TaskSpec or a callable"),
    (on(lambda it: it.add(Submission(noop))), TypeError, "work takes a TaskSpec or a callable; a Submission"),
    (on(lambda it: it.add_batch(None)), TypeError, "works must be an iterable of TaskSpecs"),
    (on(lambda it: it.add_batch(noop)), TypeError, "works must be an iterable of TaskSpecs"),
    (on(lambda it: it.add_batch([noop, 3])), TypeError, "each of works must be a TaskSpec or a callable"),
    (on(lambda it: it.add_batch([noop, Submission(noop)])), TypeError, "each of works takes a TaskSpec or a callable"),
    (on(lambda it: it.run(3)), TypeError, "works must be an iterable of TaskSpecs"),
    (on(lambda it: it.run([3])), TypeError, "each of works must be a TaskSpec or a callable"),
    (on(lambda it: it.run_until([noop], None)), TypeError, "stop must be a threading.Event, not NoneType"),
    (on(lambda it: it.run_until([noop], 5)), TypeError, "stop must be a threading.Event, not int"),
    (on(lambda it: it.run_with_os_signals([noop, None])), TypeError, "each of works must be a TaskSpec or a callable"),
    # who is meant, and how long to wait
    (on(lambda it: it.cancel(3)), TypeError, "target must be a TaskId or a task name (str), not int"),
    (on(lambda it: it.cancel(None)), TypeError, "target must be a TaskId or a task name (str)"),
    (lambda world: world.supervisor.cancel(world.handle), TypeError, "target must be a TaskId or a task name (str)"),
    (on(lambda it: it.remove(3.0)), TypeError, "target must be a TaskId or a task name (str), not float"),
    (on(lambda it: it.explain(3)), TypeError, "target must be a TaskId or a slot key (str), not int"),
    (on(lambda it: it.cancel("busy", timeout=-1)), ValueError, f"timeout {NEGATIVE}"),
    (on(lambda it: it.cancel("busy", timeout=NAN)), ValueError, f"timeout {NEGATIVE}"),
    (on(lambda it: it.cancel("busy", timeout="5")), TypeError, f"timeout must be {SECONDS}, not str"),
    (on(lambda it: it.join(timeout=True)), TypeError, f"timeout must be {SECONDS}, not bool"),
    (on(lambda it: it.join(timedelta(-1))), ValueError, f"timeout {NEGATIVE}"),
    (lambda world: world.handle.outcome("5"), TypeError, f"timeout must be {SECONDS}, not str"),
    (lambda world: world.handle.result(-1), ValueError, f"timeout {NEGATIVE}"),
    (lambda world: world.handle.cancel(timeout=NAN), ValueError, f"timeout {NEGATIVE}"),
    (lambda world: world.handle.cancel(wait=True, timeout=True), TypeError, f"timeout must be {SECONDS}, not bool"),
    (lambda world: world.handle.add_done_callback(None), TypeError, "callback must be callable, not NoneType"),
    # subscribers
    (on(lambda it: it.subscribe(None)), TypeError, "subscriber must be callable with an Event, have a method on_event"),
    (on(lambda it: it.subscribe("print")), TypeError, "subscriber must be callable with an Event"),
    (on(lambda it: it.subscribe(asyncio.sleep)), TypeError, "subscriber must not be a coroutine function"),
    (on(lambda it: it.subscribe(print, capacity=0)), ValueError, "capacity must be at least 1"),
    (on(lambda it: it.subscribe(print, capacity=True)), TypeError, "capacity must be an int"),
    (on(lambda it: it.subscribe(print, capacity=1.5)), TypeError, "capacity must be an int"),
    (on(lambda it: it.subscribe(print, capacity=None)), TypeError, "capacity must be an int, not None"),
    (on(lambda it: it.subscribe(print, name="")), ValueError, "name must not be empty"),
    (on(lambda it: it.subscribe(print, name=3)), TypeError, "name must be a str, not int"),
    # a supervisor
    (supervise(grace=-1), ValueError, f"grace {NEGATIVE}"),
    (supervise(grace=NAN), ValueError, f"grace {NEGATIVE}"),
    (supervise(grace=True), TypeError, f"grace must be {SECONDS}, not bool"),
    (supervise(grace=None), TypeError, f"grace must be {SECONDS}, not NoneType"),
    (supervise(observer_timeout=-INFINITE), ValueError, f"observer_timeout {NEGATIVE}"),
    (supervise(limits={"intake": 3}), TypeError, "limits must be AdmissionLimits, not dict"),
    (supervise(defaults=Backoff()), TypeError, "defaults must be TaskDefaults, not Backoff"),
    (supervise(subscribers=3), TypeError, "subscribers must be an iterable of subscribers"),
    (supervise(subscribers=[3]), TypeError, "subscriber must be callable with an Event"),
    (supervise(runtime=3), TypeError, "runtime must be Runtime, not int"),
    (supervise(logger=3), TypeError, "logger must have structlog's methods, as in debug(event, **fields), not int"),
    (supervise(logger=logging.getLogger("x")), TypeError, "logger must have structlog's methods"),
    (lambda _: make_runtime(max_threads=0), ValueError, "max_threads must be at least 1"),
    (lambda _: make_runtime(max_threads=True), TypeError, "max_threads must be an int"),
    (lambda _: open_runtime(dispatchers=None), TypeError, "dispatchers must be an int, not None"),
    # a spec
    (once(attempt_timeout=0), ValueError, "attempt_timeout must be more than 0 seconds; pass None for no limit"),
    (once(attempt_timeout=-0.5), ValueError, f"attempt_timeout {NEGATIVE}"),
    (once(attempt_timeout=True), TypeError, f"attempt_timeout must be {SECONDS}, not bool"),
    (once(args="abc"), TypeError, "args must be a sequence of positional arguments, not str; write args=(value,)"),
    (once(args=3), TypeError, "args must be a sequence of positional arguments, not int"),
    (once(kwargs=[1]), TypeError, "kwargs must be a mapping of str keys to keyword arguments"),
    (once(kwargs={1: 2}), TypeError, "kwargs must be a mapping of str keys to keyword arguments"),
    (once(name=""), ValueError, "name must not be empty"),
    (once(name=3), TypeError, "name must be a str, not int"),
    (once(timeout=3), TypeError, "unexpected keyword argument 'timeout'"),
    (restartable(max_retries=-1), ValueError, "max_retries must be at least 0 or None (no limit), got -1"),
    (restartable(max_retries=True), TypeError, f"max_retries must be {COUNT}, not bool"),
    (restartable(max_retries=INFINITE), TypeError, f"max_retries must be {COUNT}, not float"),
    (restartable(backoff=3), TypeError, "backoff must be a Backoff, not int"),
    (lambda _: TaskSpec.periodic(noop, every=NAN), ValueError, f"every {NEGATIVE}"),
    (lambda _: TaskSpec.periodic(noop, every="1"), TypeError, f"every must be {SECONDS}, not str"),
    (lambda _: TaskSpec(noop, restart="always"), TypeError, "restart must be a RestartPolicy, not str"),
    (lambda _: RestartPolicy.always(-1), ValueError, f"interval {NEGATIVE}"),
    # limits, defaults, backoff, ids
    (limits(intake=0), ValueError, "intake must be at least 1 or None (no limit), got 0"),
    (limits(max_concurrent=0), ValueError, "max_concurrent must be at least 1"),
    (limits(max_slots=-1), ValueError, "max_slots must be at least 0"),
    (limits(max_tasks=True), TypeError, f"max_tasks must be {COUNT}, not bool"),
    (limits(max_slot_queue=1.5), TypeError, f"max_slot_queue must be {COUNT}, not float"),
    (limits(slot_idle_timeout=NAN), ValueError, f"slot_idle_timeout {NEGATIVE}"),
    (limits(max_everything=1), TypeError, "unexpected keyword argument 'max_everything'"),
    (defaults(restart=None), TypeError, "restart must be a RestartPolicy, not NoneType"),
    (defaults(attempt_timeout=0), ValueError, "attempt_timeout must be more than 0 seconds"),
    (defaults(attempt_timeout=INHERIT), TypeError, f"attempt_timeout must be {SECONDS}"),
    (defaults(max_retries="3"), TypeError, f"max_retries must be {COUNT}, not str"),
    (defaults(backoff=1.0), TypeError, "backoff must be a Backoff, not float"),
    (lambda _: Backoff(factor=0.5), ValueError, "factor must be finite and at least 1, got 0.5"),
    (lambda _: Backoff(factor=True), TypeError, "factor must be a number, not bool"),
    (lambda _: Backoff(first=9, cap=1), ValueError, "first (9.0 s) must not exceed cap (1.0 s)"),
    (lambda _: Backoff.constant(-1), ValueError, f"delay {NEGATIVE}"),
    (lambda _: Backoff.exponential("1"), TypeError, f"first must be {SECONDS}, not str"),
    (lambda _: Backoff().with_floor(NAN), ValueError, f"floor {NEGATIVE}"),
    (lambda _: TaskId(0), ValueError, "TaskId starts at 1, got 0"),
    (lambda _: TaskId(number=True), TypeError, "TaskId takes an int, not bool"),
    # what a body does
    (lambda _: CONTEXT.wait(-1), ValueError, f"timeout {NEGATIVE}"),
    (lambda _: CONTEXT.sleep(None), TypeError, f"seconds must be {SECONDS}, not NoneType"),
    (lambda _: CONTEXT.run_until_cancelled(3), TypeError, "function must be callable, not int"),
]


def texts(table):
    return [f"{number}: {text}" for number, (_, _, text) in enumerate(table)]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED, ids=texts(REFUSED))
def test_a_wrong_call_says_what_is_wrong_and_changes_nothing(world, call, error, text):
    before, number = world.state(), TaskId.allocate()
    with pytest.raises(error) as refused:
        call(world)
    assert type(refused.value) is error
    assert text in str(refused.value)
    assert TaskId.allocate() == number + 1
    assert world.state() == before
    world.inside.let_go()
    assert outcome_of(world.waiting) == Completed("done")


ASYNC = [
    (lambda it: it.submit(3), TypeError, "work must be a TaskSpec or a callable"),
    (lambda it: it.submit(noop, slot=""), ValueError, "slot must not be empty"),
    (lambda it: it.submit(noop, policy="wait"), ValueError, "policy must be an AdmissionPolicy"),
    (lambda it: it.try_submit(noop, slot=3), TypeError, "slot must be a str"),
    (lambda it: it.prepare(None), TypeError, "work must be a TaskSpec or a callable"),
    (lambda it: it.add(Submission(noop)), TypeError, "work takes a TaskSpec or a callable"),
    (lambda it: it.add_batch(3), TypeError, "works must be an iterable"),
    (lambda it: it.run(3), TypeError, "works must be an iterable"),
    (lambda it: it.run_until([noop], None), TypeError, "stop must be an asyncio.Event, not NoneType"),
    (lambda it: it.cancel(3), TypeError, "target must be a TaskId or a task name (str)"),
    (lambda it: it.cancel("busy", timeout=NAN), ValueError, f"timeout {NEGATIVE}"),
    (lambda it: it.remove(None), TypeError, "target must be a TaskId or a task name (str)"),
    (lambda it: it.explain(None), TypeError, "target must be a TaskId or a slot key (str)"),
    (lambda it: it.join(timeout=True), TypeError, f"timeout must be {SECONDS}"),
    (lambda it: it.subscribe(3), TypeError, "subscriber must be callable with an Event"),
]


def awaited(face, call):
    """Make a call of the face for event loops, on a loop."""

    async def make():
        made = call(face)
        return await made if asyncio.iscoroutine(made) else made

    return asyncio.run(make())


@pytest.mark.parametrize(("call", "error", "text"), ASYNC, ids=texts(ASYNC))
def test_on_an_event_loop_it_is_refused_in_the_same_way(world, call, error, text):
    before, number = world.state(), TaskId.allocate()
    with pytest.raises(error) as refused:
        awaited(AsyncSupervisor(world.supervisor._core), call)
    assert type(refused.value) is error
    assert text in str(refused.value)
    assert TaskId.allocate() == number + 1
    assert world.state() == before


# -- at the wrong time ---------------------------------------------------------------------------------------------

AT_WORK = {
    "submit": lambda it: it.submit(noop),
    "try_submit": lambda it: it.try_submit(noop),
    "prepared": lambda it: it.prepare(noop).submit(),
    "add": lambda it: it.add(noop),
    "add_batch": lambda it: it.add_batch([noop, noop]),
    "an empty batch": lambda it: it.add_batch([]),
    "cancel": lambda it: it.cancel("busy"),
    "remove": lambda it: it.remove(TaskId(1)),
    "join": lambda it: it.join(),
    "subscribe": lambda it: it.subscribe(print),
    "registry": lambda it: it.registry,
}
LOOKS = {
    "tasks": lambda it: it.tasks(),
    "snapshot": lambda it: it.snapshot(),
    "alive": lambda it: it.alive(),
    "explain": lambda it: it.explain("k"),
}


def numbers_of(call):
    """Return how many numbers a call takes."""
    return 1 if call is AT_WORK["prepared"] else 0


@pytest.mark.parametrize("call", [*AT_WORK.values(), *LOOKS.values()], ids=[*AT_WORK, *LOOKS])
def test_before_the_start_it_says_how_to_start(nothing_is_left, call):
    supervisor, number = Supervisor(), TaskId.allocate()
    how = r"has not been started; use `with Supervisor\(\.\.\.\).*or call start\(\)"
    with pytest.raises(NotStartedError, match=how):
        call(supervisor)
    assert TaskId.allocate() == number + 1 + numbers_of(call)
    supervisor.shutdown()


@pytest.mark.parametrize("call", [*AT_WORK.values(), Supervisor.start], ids=[*AT_WORK, "start"])
def test_after_the_shutdown_it_says_so(start, call):
    supervisor = start()
    report, number = supervisor.shutdown(), TaskId.allocate()
    with pytest.raises(SupervisorClosedError, match="shutdown has begun; nothing more is accepted"):
        call(supervisor)
    assert TaskId.allocate() == number + 1 + numbers_of(call)
    assert supervisor.shutdown() is report


def test_after_the_shutdown_there_is_nothing_to_see(start):
    supervisor = start()
    supervisor.shutdown()
    assert [look(supervisor) for look in LOOKS.values()] == [[], supervisor.snapshot(), (), None]
    assert len(supervisor.snapshot()) == 0


def test_a_second_run_is_refused_and_the_first_one_goes_on(start):
    supervisor = start()
    ran = supervisor.run([noop])
    with pytest.raises(AlreadyRunningError, match=r"work once for a supervisor; use add\(\) or submit\(\)"):
        supervisor.run([noop])
    assert supervisor.shutdown() is ran


@pytest.mark.parametrize("add", [lambda it: it.add(BUSY), lambda it: it.add_batch([noop, BUSY])], ids=["add", "batch"])
def test_a_name_that_is_taken_is_named(world, add):
    before = world.supervisor.tasks(), world.supervisor.alive()
    with pytest.raises(TaskExistsError, match="'busy' is registered"):
        add(world.supervisor)
    assert (world.supervisor.tasks(), world.supervisor.alive()) == before


def test_where_the_intake_is_full_it_says_which_limit_that_is(world):
    before = world.state()
    intake = world.supervisor._core.intake
    assert intake.take()
    assert intake.take()
    with pytest.raises(IntakeFullError, match=r"2 submissions wait for a decision \(AdmissionLimits.intake\)"):
        world.supervisor.try_submit(noop)
    intake.give()
    intake.give()
    assert world.state() == before


# -- in the wrong place --------------------------------------------------------------------------------------------

OWN = {
    "outcome": lambda it, own: own.outcome(SOON),
    "result": lambda it, own: own.result(SOON),
    "cancel and wait": lambda it, own: own.cancel(wait=True, timeout=SOON),
    "cancel by id": lambda it, own: it.cancel(own.id, timeout=SOON),
    "cancel by name": lambda it, own: it.cancel("own", timeout=SOON),
    "join": lambda it, own: it.join(SOON),
    "shutdown": lambda it, own: it.shutdown(),
    "run": lambda it, own: it.run([noop]),
    "run_until": lambda it, own: it.run_until([noop], threading.Event()),
}


def told(call):
    """Return the error that a call raises, which must be one about bodies."""
    with pytest.raises(RuntimeError, match="body") as refused:
        call()
    return str(refused.value)


@pytest.mark.parametrize("call", OWN.values(), ids=OWN)
def test_a_body_that_would_wait_for_itself_is_told_so(supervisor, body, call):
    first, handles = body(), []
    supervisor.submit(first, slot="k")
    spec = TaskSpec.once(lambda _ctx: told(lambda: call(supervisor, handles[0])), name="own")
    handles.append(supervisor.submit(spec, slot="k"))  # there before its body is entered
    first.let_go()
    outcome = outcome_of(handles[0])
    assert isinstance(outcome, Completed), outcome
    assert supervisor.submit(noop, slot="k").outcome(SOON) == Completed("done")


OWN_ON_A_LOOP = {
    "await": lambda it, own: own,
    "cancel by id": lambda it, own: it.cancel(own.id, timeout=SOON),
    "cancel by name": lambda it, own: it.cancel("own", timeout=SOON),
    "join": lambda it, own: it.join(SOON),
    "shutdown": lambda it, own: it.shutdown(),
    "run": lambda it, own: it.run([noop]),
}


@pytest.mark.parametrize("call", OWN_ON_A_LOOP.values(), ids=OWN_ON_A_LOOP)
def test_a_coroutine_that_would_wait_for_itself_is_told_so(supervisor, body, call):
    async def asks(_ctx):
        with pytest.raises(RuntimeError, match="body"):
            await call(AsyncSupervisor(supervisor._core), handles[0])
        return "told"

    first, handles = body(), []
    supervisor.submit(first, slot="k")
    handles.append(supervisor.submit(TaskSpec.once(asks, name="own"), slot="k"))
    first.let_go()
    assert outcome_of(handles[0]) == Completed("told")


def test_a_body_may_cancel_another_by_name(supervisor, body):
    other = body()
    handle = supervisor.submit(TaskSpec.once(other, name="other"), slot="other")
    assert other.is_inside()
    asking = supervisor.submit(lambda _ctx: supervisor.cancel("other", timeout=SOON), slot="k")
    assert outcome_of(asking) == Completed(value=True)
    assert handle.done()
