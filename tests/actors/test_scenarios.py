"""What went wrong elsewhere, in libraries that do similar things, and must not go wrong here."""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import sys
import threading
import time
import tracemalloc
import weakref
from itertools import pairwise

import pykka
import pytest

from actors import Supervisor, messages
from actors.runtime import deliver
from admission import (
    AdmissionLimits,
    AttemptTimeoutError,
    Backoff,
    Cancelled,
    Completed,
    Failed,
    Fatal,
    ForceAborted,
    RejectionKind,
    SlotStatus,
    SupervisorClosedError,
    TaskDefaults,
    TaskSpec,
)
from admission.run import AttemptReturned
from tests.actors.support import SOON, Gauge, Log, call_in_thread, eventually, noop, our_threads, outcome_of


def registry_of(supervisor):
    return supervisor.registry._actor_weakref()


# -- admission -----------------------------------------------------------------------------------------------------


def test_what_is_queued_is_not_evicted_by_what_is_queued_later(start, body):
    log = Log()
    supervisor, order = start(logger=log), []
    owner = body()
    handles = [supervisor.submit(TaskSpec.once(owner, name="a"), slot="deploy")]
    handles += [
        supervisor.submit(TaskSpec.once(lambda ctx: order.append(ctx.task), name=name), slot="deploy") for name in "bcd"
    ]
    assert owner.is_inside()
    owner.let_go()
    assert {outcome_of(handle) for handle in handles} == {Completed(None)}
    supervisor.shutdown()
    assert order == ["b", "c", "d"]
    assert "submission_rejected" not in log.events()


def test_a_retry_is_not_refused_by_the_lock_of_its_own_first_attempt(supervisor):
    failed, attempts = threading.Event(), []

    def flaky(ctx):
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            failed.set()
            raise ValueError

    spec = TaskSpec.restartable(flaky, backoff=Backoff.constant(0.1))
    first = supervisor.submit(spec, slot="k", policy="drop_if_running")
    assert failed.wait(SOON)
    during = supervisor.submit(noop, slot="k", policy="drop_if_running")
    assert outcome_of(during).kind is RejectionKind.SLOT_BUSY
    assert outcome_of(first) == Completed(None)
    assert attempts == [1, 2]
    assert outcome_of(supervisor.submit(noop, slot="k", policy="drop_if_running")) == Completed("done")


@pytest.mark.parametrize("repetition", range(5))
def test_a_burst_at_one_new_slot_leaves_nothing_stuck(start, repetition):
    log, gauge, barrier = Log(), Gauge(), threading.Barrier(50)
    supervisor = start(logger=log)

    def submit():
        barrier.wait(SOON)
        return supervisor.submit(gauge(lambda _ctx: time.sleep(0.001)), slot="fresh")

    handles = [join() for join in [call_in_thread(submit) for _ in range(50)]]
    assert {outcome_of(handle, 10) for handle in handles} == {Completed(None)}
    assert gauge.most["fresh"] == 1
    assert outcome_of(supervisor.submit(noop, slot="fresh")) == Completed("done")
    assert supervisor.snapshot().slot("fresh") is None
    supervisor.shutdown()
    assert log.events("fresh").count("slot_created") == 1


# -- a late word about somebody who has left -----------------------------------------------------------------------


def test_what_comes_late_about_an_old_owner_does_not_free_the_slot_of_the_new_one(supervisor, body):
    gauge, owner, last = Gauge(), body(), body()
    old = supervisor.submit(TaskSpec.once(noop, name="old"), slot="k")
    outcome_of(old)
    running = supervisor.submit(gauge(owner), slot="k")
    waiting = supervisor.submit(gauge(last), slot="k")
    assert owner.is_inside()

    assert old.cancel() is False
    assert supervisor.remove(old.id) is False
    assert supervisor.cancel(old.id) is False
    assert supervisor.cancel("old") is False

    registry = registry_of(supervisor)
    slot, ticket = registry.slots["k"].ref, registry.routes[running.id]
    finished = AttemptReturned("once more")
    for late in (
        messages.AttemptEnded(old.id, 1, finished, released=True),
        messages.AttemptReleased(old.id, 1),
        messages.AttemptEnded(running.id, 2, finished, released=True),
        messages.Registered(running.id, 99),
        messages.Refused(running.id, RejectionKind.ALREADY_EXISTS),
        messages.Granted(running.id, 1),
        messages.Denied(running.id, 1, ValueError()),
    ):
        deliver(slot, late)
    old_ticket = messages.Ticket(old.id, ticket.policy, "old", "k", ticket.spec, old, None)
    for late in (
        messages.Finished(old_ticket, Cancelled()),
        messages.Rejection(old_ticket, outcome_of(supervisor.submit(noop, slot="k", policy="drop_if_running"))),
        messages.Register(old_ticket),
        messages.Released(old.id),
        messages.Withdrawn(running.id, object(), claimed=True),
    ):
        deliver(supervisor.registry, late)

    view = supervisor.snapshot().slot("k")
    assert (view.status, view.owner_id, view.queue_depth) == (SlotStatus.RUNNING, running.id, 1)
    assert last.runs == 0
    owner.let_go()
    last.let_go()
    assert [outcome_of(running), outcome_of(waiting), outcome_of(old)] == [Completed(None)] * 2 + [Completed("done")]
    assert gauge.most["k"] == 1


def test_a_cancellation_and_the_end_in_the_same_moment_give_one_outcome_to_all(supervisor):
    chance = random.Random(1)  # noqa: S311
    for _ in range(100):
        handle = supervisor.submit(lambda ctx: ctx.wait(chance.random() * 0.001), slot="k")
        waiters = [call_in_thread(handle.outcome, SOON) for _ in range(2)]
        time.sleep(chance.random() * 0.001)
        claimed = handle.cancel()
        outcomes = [join() for join in waiters]
        assert outcomes[0] is outcomes[1] is handle.outcome(0)
        assert isinstance(outcomes[0], Cancelled if claimed else Completed)
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")


# -- inside a job --------------------------------------------------------------------------------------------------


def test_a_job_that_waits_for_what_waits_behind_it_is_not_stuck(supervisor):
    inner = []

    def outer(ctx):
        inner.append(supervisor.submit(noop, slot="k"))
        try:
            inner[0].outcome(0.05)
        except TimeoutError:
            return supervisor.snapshot().slot("k"), ctx.task_id
        return None

    view, own_id = outcome_of(supervisor.submit(outer, slot="k")).value
    assert (view.owner_id, view.queue_depth) == (own_id, 1)
    assert outcome_of(inner[0]) == Completed("done")


def test_a_job_may_have_itself_removed(supervisor):
    def removes_itself(ctx):
        assert supervisor.remove(ctx.task_id) is True
        assert ctx.cancelled
        assert supervisor.remove(ctx.task_id) is False
        return "to the end"

    assert outcome_of(supervisor.submit(removes_itself, slot="k")) == Cancelled()


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Odd()], ids=repr)
@pytest.mark.parametrize("coroutine", [False, True], ids=["thread", "coroutine"])
def test_a_job_that_exits_ends_itself_only(supervisor, body, error, coroutine):
    class Host(pykka.ThreadingActor):
        def ping(self):
            return "alive"

    host, other = Host.start(), body()
    running = supervisor.submit(other, slot="other")
    assert other.is_inside()
    exits = body(raises=error)
    exits.let_go()
    outcome = outcome_of(supervisor.submit(exits.coroutine if coroutine else exits, slot="k"))
    assert isinstance(outcome, Fatal)
    assert outcome.error is error
    assert host.proxy().ping().get(timeout=SOON) == "alive"
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    other.let_go()
    assert outcome_of(running) == Completed(None)
    host.stop(timeout=SOON)


# -- objects that mean harm ----------------------------------------------------------------------------------------


class Unprintable(Exception):  # noqa: N818
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class UnprintableBase(BaseException):
    __str__ = __repr__ = Unprintable.__str__


class LyingError(Exception):
    @property
    def __class__(self):
        raise RuntimeError("no class")


class Hostile:
    """A value that fails whenever anybody looks at it."""

    def __repr__(self):
        raise RuntimeError("no text")

    __str__ = __bool__ = __len__ = __repr__

    def __eq__(self, other):
        raise RuntimeError("no equality")

    def __hash__(self):
        raise RuntimeError("no hash")

    def __getattr__(self, name):
        raise RuntimeError("no attributes")


HOSTILE_ERRORS = {
    "unprintable": Unprintable,
    "unprintable base": UnprintableBase,
    "lying": LyingError,
    "enormous": lambda: ValueError("x" * 10**7),
    "unspeakable": lambda: ValueError("\ud800\x00\n"),
}


@pytest.mark.parametrize("hostile", HOSTILE_ERRORS)
@pytest.mark.parametrize("coroutine", [False, True], ids=["thread", "coroutine"])
def test_an_exception_that_can_not_be_shown_is_told_of_all_the_same(start, body, hostile, coroutine):
    log, error = Log(), HOSTILE_ERRORS[hostile]()
    supervisor = start(logger=log)
    work = body(raises=error)
    work.let_go()
    outcome = outcome_of(supervisor.submit(work.coroutine if coroutine else work, slot="k"))
    assert isinstance(outcome, Failed | Fatal)
    assert outcome.error is error
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    supervisor.shutdown()
    (record,) = log.of("attempt_failed")
    assert record["reason"]
    assert all(len(repr(record)) < 4096 for _, record in log.records)
    assert not any(set(record["reason"]) & set("\ud800\x00\n") for _, record in log.records if "reason" in record)


@pytest.mark.parametrize("coroutine", [False, True], ids=["thread", "coroutine"])
def test_a_value_that_can_not_be_looked_at_arrives(start, body, coroutine):
    supervisor, value = start(logger=Log()), Hostile()
    work = body(value)
    work.let_go()
    handle = supervisor.submit(work.coroutine if coroutine else work, slot="k")
    assert outcome_of(handle).value is value
    assert handle.result(0) is value
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")


def test_arguments_that_can_not_be_looked_at_arrive(start):
    supervisor, value = start(logger=Log()), Hostile()
    spec = TaskSpec.once(lambda _ctx, first, *, second: first is second, args=(value,), kwargs={"second": value})
    assert outcome_of(supervisor.submit(spec, slot="k")).value is True


def test_a_filter_of_the_log_that_raises_costs_nothing_but_records(start):
    def fail(_record):
        raise RuntimeError("the filter's own fault")

    logger = logging.getLogger("slotkeeper")
    logger.addFilter(fail)
    logger.setLevel(logging.DEBUG)
    try:
        supervisor = start()
        assert {outcome_of(supervisor.submit(noop, slot="k")) for _ in range(10)} == {Completed("done")}
        assert supervisor.shutdown().clean
    finally:
        logger.removeFilter(fail)
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("calls_back", [False, True], ids=["slow", "slow and calling back"])
def test_a_slow_handler_of_the_log_stalls_no_job(start, calls_back):
    log, answers = Log(), []
    write = log.debug

    def slowly(event, **fields):
        time.sleep(0.0005)
        if calls_back and supervisors:
            answers.append(supervisors[0].snapshot())
        write(event, **fields)

    for level in ("debug", "info", "warning", "error"):
        setattr(log, level, slowly)
    supervisors = [start(logger=log)]
    order = []
    handles = [
        supervisors[0].submit(TaskSpec.once(lambda ctx, n: order.append((ctx.slot, n)), args=(n,)), slot=f"s{n % 5}")
        for n in range(100)
    ]
    assert {outcome_of(handle, 10) for handle in handles} == {Completed(None)}
    for slot in range(5):
        assert [n for key, n in order if key == f"s{slot}"] == list(range(slot, 100, 5))
    supervisor, supervisors[:] = supervisors[0], []
    assert supervisor.shutdown().log_dropped == 0
    kinds = [log.events().count(kind) for kind in ("attempt_starting", "attempt_succeeded", "task_finished")]
    assert kinds == [100] * 3
    seqs = [fields["seq"] for _, fields in log.records]
    assert seqs == sorted(seqs)


class FailsOver:
    """A job that fails at everything that may be looked up at it."""

    def __call__(self, _ctx):
        return "ran"

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_nothing_of_a_user_takes_an_actor_with_it(supervisor, body):
    other = supervisor.submit(work := body(), slot="other")
    assert work.is_inside()
    actors = len(pykka.ActorRegistry.get_all())
    fired = threading.Event()

    def fail(_handle):
        fired.set()
        raise RuntimeError

    with contextlib.suppress(RuntimeError):  # refused at the call is as good
        assert outcome_of(supervisor.submit(FailsOver(), slot="k")) == Completed("ran")
    supervisor.submit(noop, slot="k").add_done_callback(fail)
    assert fired.wait(SOON)
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    assert not other.done()
    assert len(pykka.ActorRegistry.get_all()) == actors


# -- keys ----------------------------------------------------------------------------------------------------------


def test_every_key_is_a_slot_of_its_own_and_none_folds_into_another(supervisor, body):
    keys = ["a_b", "a b", "A_B", "a_b ", "None", "0", "é", "e\u0301", "\x00", "\ud800", "k" * 10_000, "#1"]
    works = [body() for _ in keys]
    handles = [supervisor.submit(work, slot=key) for key, work in zip(keys, works, strict=True)]
    assert all(work.is_inside() for work in works)
    assert len(supervisor.snapshot()) == len(keys)
    for work in works:
        work.let_go()
    assert {outcome_of(handle) for handle in handles} == {Completed(None)}


@pytest.mark.parametrize("key", [("a_b", "c"), 0, None.__class__, ["x"], {"x": {}}, b"x"], ids=repr)
def test_a_key_that_is_no_text_is_refused_at_the_call(supervisor, key):
    with pytest.raises(TypeError, match="slot"):
        supervisor.submit(noop, slot=key)
    assert len(supervisor.snapshot()) == 0
    assert outcome_of(supervisor.submit(noop, slot="x")) == Completed("done")


class HostileKey(str):
    __slots__ = ()

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __format__ = __str__


def test_a_key_that_can_not_be_shown_harms_its_own_submission_at_most(start):
    supervisor = start(logger=Log())
    try:
        handle = supervisor.submit(noop, slot=HostileKey("k"))
    except (TypeError, ValueError, RuntimeError):
        pass
    else:
        assert outcome_of(handle)
    assert outcome_of(supervisor.submit(noop, slot="other")) == Completed("done")
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")


# -- time ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pausing(start, body):
    """A supervisor and a run that has failed once and pauses for half a minute."""
    log = Log()
    supervisor = start(logger=log)
    work = body(raises=ValueError())
    work.let_go()
    handle = supervisor.submit(TaskSpec.restartable(work, backoff=Backoff.constant(30)), slot="k")
    assert eventually(lambda: log.of("backoff_scheduled"))
    return supervisor, handle, work


END_A_PAUSE = {
    "cancelled": lambda _supervisor, handle: handle.cancel(),
    "shut down": lambda supervisor, _handle: supervisor.shutdown(),
    "replaced": lambda supervisor, _handle: outcome_of(supervisor.submit(noop, slot="k", policy="replace")),
}


@pytest.mark.parametrize("end", END_A_PAUSE)
def test_a_pause_between_two_attempts_ends_at_once_when_it_is(pausing, end):
    supervisor, handle, work = pausing
    END_A_PAUSE[end](supervisor, handle)
    assert handle.outcome(SOON) == Cancelled()
    assert work.runs == 1


def test_a_delay_that_overflows_is_the_cap_and_a_long_outage_ends(supervisor):
    backoff = Backoff(first=0.0001, factor=2.0, cap=0.0002, jitter="none")

    def recovers(ctx):
        if ctx.attempt <= 1100:
            raise ValueError
        return ctx.attempt

    spec = TaskSpec.restartable(recovers, backoff=backoff, max_retries=None)
    assert outcome_of(supervisor.submit(spec, slot="k"), 20) == Completed(1101)


def test_nobody_enters_while_one_that_timed_out_is_still_inside(supervisor, body):
    gauge, work = Gauge(), body("late", stubborn=True)
    handle = supervisor.submit(TaskSpec.once(gauge(work), attempt_timeout=0.02), slot="k")
    behind = supervisor.submit(gauge(lambda _ctx: work.left.is_set()), slot="k")
    assert work.is_inside()
    assert eventually(lambda: work.ctx.cancelled)
    assert supervisor.snapshot().slot("k").owner_id == handle.id
    assert not behind.done()
    work.let_go()
    assert outcome_of(behind).value is True
    assert isinstance(outcome_of(handle).error, AttemptTimeoutError)
    assert gauge.most["k"] == 1


@pytest.mark.parametrize("forever", [float("inf"), 1e12, 10**30, threading.TIMEOUT_MAX * 2], ids=repr)
def test_practically_for_ever_is_no_limit(start, forever):
    supervisor = start(grace=forever, observer_timeout=forever)
    spec = TaskSpec.restartable(
        noop, attempt_timeout=forever, backoff=Backoff(first=0.001, cap=forever), max_retries=None
    )
    handle = supervisor.submit(spec, slot="k")
    assert handle.outcome(forever) == Completed("done")
    supervisor.join(forever)
    assert supervisor.cancel(handle.id, timeout=forever) is False
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    assert call_in_thread(supervisor.shutdown)().clean


def test_practically_for_ever_does_not_keep_a_shutdown_from_stopping_what_listens(start, body):
    supervisor = start(grace=1e12)
    handle = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    assert call_in_thread(supervisor.shutdown)().clean
    assert handle.outcome(0) == Cancelled()


def test_a_pause_of_practically_for_ever_is_no_trouble_for_the_timers(supervisor, body):
    fails = body(raises=ValueError())
    fails.let_go()
    spec = TaskSpec.restartable(fails, backoff=Backoff(first=1e300, cap=float("inf"), factor=1e300, jitter="none"))
    handle = supervisor.submit(spec, slot="k")
    assert fails.left.wait(SOON)
    flaky = iter([ValueError(), None])

    def fails_once(_ctx):
        error = next(flaky)
        if error:
            raise error

    again = TaskSpec.restartable(fails_once, backoff=Backoff.constant(0.001))
    assert outcome_of(supervisor.submit(again, slot="other")) == Completed(None)
    assert handle.cancel()


# -- zero is not unset ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("retries", "runs"), [(0, 1), (1, 2), (2, 3)])
def test_no_retry_means_none_whatever_the_default_is(start, body, retries, runs):
    supervisor = start(defaults=TaskDefaults(max_retries=5, backoff=Backoff.constant(0)))
    attempts = []

    def fails(ctx):
        attempts.append(ctx.attempt)
        raise ValueError

    assert isinstance(outcome_of(supervisor.submit(TaskSpec.restartable(fails, max_retries=retries), slot="k")), Failed)
    assert attempts == list(range(1, runs + 1))


def test_a_line_of_no_length_takes_nobody(start, body):
    supervisor = start(limits=AdmissionLimits(max_slot_queue=0))
    supervisor.submit(body(), slot="k")
    assert outcome_of(supervisor.submit(noop, slot="k")).kind is RejectionKind.QUEUE_FULL


def test_no_limit_overrides_a_default(start, body):
    supervisor = start(defaults=TaskDefaults(attempt_timeout=0.01))
    inherits, unlimited = body(), body()
    assert isinstance(outcome_of(supervisor.submit(inherits, slot="a")).error, AttemptTimeoutError)
    handle = supervisor.submit(TaskSpec.once(unlimited, attempt_timeout=None), slot="b")
    assert unlimited.is_inside()
    assert not threading.Event().wait(0.03)  # three times the default
    assert not unlimited.ctx.cancelled
    unlimited.let_go()
    assert outcome_of(handle) == Completed(None)


# -- shutdown ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repetition", range(4))
def test_a_shutdown_that_overtakes_submissions_forgets_none(start, body, repetition):
    supervisor, owner, handles, closed = start(grace=0.5), body(), [], []
    supervisor.submit(owner, slot="k")
    waiting = [body(), body()]
    in_line = [supervisor.submit(work, slot="k") for work in waiting]
    assert owner.is_inside()
    started = threading.Semaphore(0)

    def submit(thread):
        for number in range(10_000):
            try:
                handles.append(supervisor.submit(noop, slot=f"t{thread}-{number}"))
            except SupervisorClosedError:
                closed.append(thread)
                return
            if number == 2:
                started.release()

    producers = [call_in_thread(submit, thread) for thread in range(6)]
    assert all(started.acquire(timeout=SOON) for _ in producers)
    assert supervisor.shutdown().stuck == ()
    for join in producers:
        join()
    assert sorted(closed) == list(range(6))
    assert {type(handle.outcome(SOON)).__name__ for handle in handles} <= {"Completed", "Rejected", "Cancelled"}
    assert [handle.outcome(0).kind for handle in in_line] == [RejectionKind.SHUTTING_DOWN] * 2
    assert [work.runs for work in waiting] == [0, 0]


def test_all_share_one_grace_and_the_report_names_who_overran_it(start, body):
    supervisor = start(grace=0.3)
    listening, ignoring = [body(), body()], [body(stubborn=True) for _ in range(4)]
    stops = [supervisor.submit(work, slot=key) for key, work in zip("xy", listening, strict=True)]
    goes_on = [supervisor.submit(work, slot=f"z{number}") for number, work in enumerate(ignoring)]
    assert all(work.is_inside() for work in [*listening, *ignoring])
    begun = time.monotonic()
    report = call_in_thread(supervisor.shutdown)()
    assert 0.3 <= time.monotonic() - begun < 4 * 0.3  # one deadline, not one after the other
    assert report.stuck == ("z0", "z1", "z2", "z3")
    assert {handle.outcome(0) for handle in stops} == {Cancelled()}
    assert {handle.outcome(0) for handle in goes_on} == {ForceAborted()}
    assert supervisor.shutdown() is report


# -- resources -----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_thread(monkeypatch):
    """Let the n-th thread of ours from now on not be started, once."""
    original = threading.Thread.start

    def arm(nth):
        left = [nth]

        def start(thread):
            if thread.name.startswith("slotkeeper"):
                left[0] -= 1
                if left[0] == 0:
                    raise RuntimeError("can't start new thread")
            original(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        return left

    return arm


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_supervisor_that_can_not_be_started_leaves_nothing_behind(no_thread, nothing_is_left, nth):
    left = no_thread(nth)
    supervisor = Supervisor(grace=0.5)
    with contextlib.suppress(RuntimeError):  # a thread that is needed later is tried again
        supervisor.start()
    if not pykka.ActorRegistry.get_all():
        assert eventually(lambda: our_threads() == [])
        supervisor.start()
    assert left[0] <= 0
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    supervisor.shutdown()


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("shape", ["thread", "coroutine", "awaitable"])
def test_a_job_whose_thread_can_not_be_started_fails_and_the_next_runs(supervisor, no_thread, body, shape, nth):
    def work():
        made = body("done")
        made.let_go()
        return {"thread": made, "coroutine": made.coroutine, "awaitable": made.awaitable}[shape]

    no_thread(nth)
    outcome = outcome_of(supervisor.submit(work(), slot="k"))
    assert isinstance(outcome, Failed | Completed)
    if isinstance(outcome, Failed):
        assert "can't start new thread" in str(outcome.error)
    assert outcome_of(supervisor.submit(work(), slot="k")) == Completed("done")
    assert supervisor.shutdown().clean


def test_a_callback_whose_thread_can_not_be_started_is_called_later(supervisor, no_thread):
    handle, called = supervisor.submit(noop, slot="k"), threading.Event()
    outcome_of(handle)
    no_thread(1)
    handle.add_done_callback(lambda _handle: called.set())
    assert called.wait(SOON)


def run_keys(supervisor, number, prefix):
    handles = [supervisor.submit(noop, slot=f"{prefix}{n}") for n in range(number)]
    for handle in handles:
        assert outcome_of(handle, 10) == Completed("done")


def tables_of(registry):
    names = ("routes", "members", "names", "lingering", "lingering_names", "callers", "joining", "idle", "slots")
    return {name: len(getattr(registry, name)) for name in names}


def test_a_key_that_was_used_once_leaves_nothing_behind(start):
    supervisor = start(limits=AdmissionLimits(slot_idle_timeout=0, max_slots=None, max_total_pending=None))
    registry = registry_of(supervisor)
    run_keys(supervisor, 3000, "first")
    empty = dict.fromkeys(tables_of(registry), 0)
    assert eventually(lambda: tables_of(registry) == empty)
    threads = threading.active_count()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run_keys(supervisor, 1500, "second")
        assert eventually(lambda: tables_of(registry) == empty)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2**20
    assert len(supervisor.snapshot()) == 0
    assert len(pykka.ActorRegistry.get_all()) == 1
    assert threading.active_count() <= threads + 2
    assert (registry.at_work, registry.services.budget.out, supervisor._core.intake.inside) == (0, 0, 0)
    assert len(registry.runtime.timers) <= 1


def test_idle_slots_are_kept_up_to_a_number(start):
    supervisor = start(limits=AdmissionLimits(max_warm_slots=10))
    for number in range(100):
        run_keys(supervisor, 1, f"k{number}-")
    registry = registry_of(supervisor)
    assert len(registry.slots) == len(registry.idle) == 10
    assert list(registry.slots) == [f"k{number}-0" for number in range(90, 100)]


def test_a_slot_that_is_retired_at_once_loses_no_submission(start):
    log = Log()
    supervisor = start(limits=AdmissionLimits(slot_idle_timeout=0), logger=log)
    for _ in range(300):
        assert supervisor.submit(noop, slot="k").outcome(SOON) == Completed("done")
    supervisor.shutdown()
    edges = [(fields["from_phase"], fields["to_phase"]) for fields in log.of("slot_transition")]
    assert {(before, after) for (_, before), (after, _) in pairwise(edges)} <= {(phase, phase) for phase, _ in edges}


def test_a_result_is_not_kept_alive_by_us(supervisor):
    class Big:
        pass

    handle = supervisor.submit(lambda _ctx: Big(), slot="k")
    big = weakref.ref(outcome_of(handle).value)
    assert big() is not None
    del handle
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    assert eventually(lambda: gc.collect() is not None and big() is None)


def test_what_a_body_was_given_is_not_kept_alive_by_us(supervisor):
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    handle = supervisor.submit(TaskSpec.once(lambda _ctx, _big: None, args=(big,)), slot="k")
    outcome_of(handle)
    del big
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    assert eventually(lambda: gc.collect() is not None and gone() is None)
    assert handle.done()


def test_nothing_reaches_the_hook_for_lost_exceptions(monkeypatch, start, body):
    lost = []
    monkeypatch.setattr(threading, "excepthook", lost.append)
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    supervisor = start()
    for error in (ValueError(), SystemExit(), KeyboardInterrupt()):
        work = body(raises=error)
        work.let_go()
        for shape in (work, work.coroutine, work.awaitable):
            outcome_of(supervisor.submit(shape, slot="k"))
    supervisor.shutdown()
    gc.collect()
    assert lost == []
