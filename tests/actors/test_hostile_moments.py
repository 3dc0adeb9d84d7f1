"""What may happen at a bad moment: finalizers, calls after the close, races of the first and the last call."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import suppress

import pytest

from actors import Shutdown, SlotActor, Supervisor, make_runtime
from actors.testing import Simulation, Verdict, check
from admission import Cancelled, Completed, ShutdownReport, SupervisorClosedError, TaskSpec
from tests.actors.support import SOON, noop


class Finalized:
    """Calls what it was given when nothing refers to it any more."""

    def __init__(self, call):
        self.call = call

    def __del__(self):
        self.call()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_finalizer_that_waits_for_the_actors_on_their_own_thread_is_refused_and_harms_nobody():
    with Supervisor(grace=1) as supervisor:
        gate = threading.Event()
        owner = supervisor.submit(lambda ctx: gate.wait(10), slot="s")
        told = []

        def call():
            try:
                owner.cancel()
            except RuntimeError as error:
                told.append(str(error))

        def submit():
            argument = Finalized(call)
            return supervisor.submit(lambda ctx, argument=argument: None, slot="s")

        waiting = submit()
        assert waiting.cancel()  # the last reference to the argument goes with the job
        waiting.outcome(SOON)
        gc.collect()
        gate.set()
        assert owner.outcome(SOON) in (Completed(True), Cancelled())  # noqa: FBT003
        assert supervisor.submit(noop, slot="s").outcome(SOON) == Completed("done")


def test_a_callback_that_is_added_after_the_close_is_called():
    with Supervisor(grace=1) as supervisor:
        handle = supervisor.submit(noop, slot="s")
        supervisor.join(SOON)
    called = threading.Event()
    handle.add_done_callback(lambda _handle: called.set())
    assert called.wait(SOON)
    assert handle.future.result(timeout=SOON) == Completed("done")


def test_a_body_that_is_given_up_before_it_was_entered_is_let_go_at_once():
    runtime = make_runtime(max_threads=1)
    gate = threading.Event()
    with Supervisor(grace=1, runtime=runtime) as supervisor:
        supervisor.submit(lambda ctx: gate.wait(10), slot="busy")

        class Argument:
            pass

        refs = []
        for _ in range(20):
            argument = Argument()
            refs.append(weakref.ref(argument))
            handle = supervisor.submit(lambda ctx, argument=argument: None, slot="s")
            del argument
            handle.cancel(wait=True, timeout=SOON)
        del handle
        supervisor.snapshot()
        gc.collect()
        assert [ref() for ref in refs] == [None] * 20
        gate.set()
    runtime.close()


def test_what_a_failed_body_was_given_is_freed_without_the_collector():
    class Argument:
        pass

    def fails(ctx, argument):
        raise ValueError("no")

    argument = Argument()
    ref = weakref.ref(argument)
    gc.collect()
    gc.disable()
    try:
        with Supervisor(grace=1) as supervisor:
            handle = supervisor.submit(TaskSpec.once(fails, args=(argument,)), slot="s")
            del argument
            outcome = handle.outcome(SOON)
            outcome.error.__traceback__ = None  # that is the user's own frame
            del outcome, handle
        assert ref() is None
    finally:
        gc.enable()


def test_started_and_shut_down_at_once_it_is_either_closed_or_never_was():
    for _ in range(200):
        supervisor = Supervisor(grace=0)
        barrier = threading.Barrier(2)

        def start(supervisor=supervisor, barrier=barrier):
            barrier.wait(SOON)
            with suppress(SupervisorClosedError):
                supervisor.start()

        thread = threading.Thread(target=start)
        thread.start()
        barrier.wait(SOON)
        report = supervisor.shutdown()
        thread.join(SOON)
        supervisor.shutdown()
        assert isinstance(report, ShutdownReport)
        with pytest.raises(SupervisorClosedError):
            supervisor.submit(noop, slot="s")
        registry = supervisor._core.registry
        assert registry is None or not registry.is_alive()


def test_a_lone_slot_that_was_never_used_leaves_an_honest_log():
    with Simulation() as simulation:
        slot = SlotActor.start("s", runtime=simulation, logger=simulation.log)
        simulation.reply(slot.ask(Shutdown(), block=False))
        assert check(simulation.records).verdict is Verdict.HOLDS
