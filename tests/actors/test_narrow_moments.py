"""Faults and users' code at narrow moments: between two assignments, between a message and its reply."""

from __future__ import annotations

import gc
import threading
import weakref

import pykka
import pytest

from actors import Join, SlotActor, Submit, desk
from actors.messages import AttemptEnded
from actors.observers.forward import Forwarders
from actors.registry import RegistryActor
from actors.runtime import Clock, Deferred
from actors.worker import WorkerActor
from admission import Completed, Failed, Panicked, Submission, TaskSpec
from admission import effects as fx
from tests.actors.support import SOON, eventually, noop, outcome_of


def once(monkeypatch, owner, name, error=MemoryError):
    """Have this fail at its next call and never again; returns the event that says that it has."""
    original, struck = getattr(owner, name), threading.Event()

    def failing(*args, **kwargs):
        if not struck.is_set():
            struck.set()
            raise error
        return original(*args, **kwargs)

    static = isinstance(vars(owner).get(name), staticmethod)
    monkeypatch.setattr(owner, name, staticmethod(failing) if static else failing)
    return struck


def test_a_bodys_name_is_read_by_whoever_makes_the_message(registry):
    threads = []

    class Proxy:
        def __call__(self, _ctx):
            return "ran"

        def __getattr__(self, name):
            if name == "__qualname__":
                threads.append(threading.current_thread())
            raise AttributeError(name)

    handle = registry.ask(Submit(Submission(Proxy())), timeout=SOON)
    assert outcome_of(handle) == Completed("ran")
    assert set(threads) == {threading.current_thread()}


@pytest.mark.parametrize(("owner", "name"), [(Clock, "monotonic"), (fx, "in_order")])
def test_a_fault_after_all_is_decided_loses_no_outcome(monkeypatch, supervisor, body, owner, name):
    handle = supervisor.submit(work := body("value"), slot="k")
    behind = supervisor.submit(noop, slot="k", policy="queue")
    assert work.is_inside()
    slot = supervisor.registry._actor_weakref().slots["k"].ref._actor_weakref()
    follow, struck = slot._follow, []

    def armed(effects):
        if effects and type(effects[0]) is fx.Finish and not struck:
            struck.append(once(monkeypatch, owner, name))
        follow(effects)

    slot._follow = armed
    work.let_go()
    assert isinstance(outcome_of(handle), Completed | Panicked)
    assert isinstance(outcome_of(behind), Completed | Panicked)
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    assert supervisor.tasks() == []


def test_a_failed_outcome_keeps_nothing_but_the_error(supervisor):
    def fails(_ctx):
        raise ValueError("boom")

    gc.collect()
    gc.disable()
    try:
        handle = supervisor.submit(fails, slot="k")
        seen = weakref.ref(handle._runtime), weakref.WeakSet([])
        outcome = outcome_of(handle)
        assert isinstance(outcome, Failed)
        names = []
        trace = outcome.error.__traceback__
        while trace is not None:
            names.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        assert names == ["fails"]
        assert seen[0]() is not None
    finally:
        gc.enable()


def test_the_same_message_told_twice_is_two_submissions(monkeypatch, registry, body):
    message = Submit(Submission(work := body("ran"), slot="k"))
    first = registry.ask(message, timeout=SOON)
    assert work.is_inside()
    once(monkeypatch, desk, "make_ticket")
    with pytest.raises(MemoryError):
        registry.ask(message, timeout=SOON)
    assert not first.done()
    work.let_go()
    assert outcome_of(first) == Completed("ran")


def test_who_told_is_notified_though_the_way_to_it_failed_at_first(monkeypatch, registry):
    class Listener(pykka.ThreadingActor):
        ended = threading.Event()

        def on_receive(self, _message):
            self.ended.set()

    listener = Listener.start()
    try:
        once(monkeypatch, Forwarders, "towards")
        registry.tell(Submit(Submission(noop, slot="k"), notify=listener, token=("t",)))
        assert Listener.ended.wait(SOON)
    finally:
        listener.stop()


def test_a_reply_that_fails_costs_the_running_job_nothing(monkeypatch, runtime, body):
    slot = SlotActor.start("alone", runtime=runtime, grace=1)
    handle = slot.ask(Submit(Submission(work := body("ran"))), timeout=SOON)
    assert work.is_inside()
    once(monkeypatch, Deferred, "bind")
    with pytest.raises(MemoryError):
        slot.ask(Join(), timeout=SOON)
    work.let_go()
    assert outcome_of(handle) == Completed("ran")
    slot.stop(timeout=SOON)


def test_a_worker_that_fails_to_say_how_it_ended_says_that_it_failed(monkeypatch, supervisor, body):
    handle = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    module = __import__(WorkerActor.__module__, fromlist=["AttemptEnded"])
    once(monkeypatch, module, "AttemptEnded")
    work.let_go()
    assert isinstance(outcome_of(handle), Panicked)
    assert module.AttemptEnded is not AttemptEnded
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")


def test_a_timer_that_can_not_be_set_loses_no_count(monkeypatch, supervisor):
    once(monkeypatch, RegistryActor, "watch_idle")
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    registry = supervisor.registry._actor_weakref()
    assert eventually(lambda: registry.at_work == 0)
    assert registry.retire_timer is not None or registry.idle
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")


def test_callbacks_added_from_everywhere_are_all_called_and_in_order(supervisor, body):
    handle = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    called, together = [], threading.Barrier(5)

    def add(number):
        together.wait(SOON)
        for each in range(200):
            handle.add_done_callback(lambda _handle, what=(number, each): called.append(what))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    together.wait(SOON)
    work.let_go()
    for thread in threads:
        thread.join(SOON)
    assert eventually(lambda: len(called) == 800)
    for number in range(4):
        assert [each for who, each in called if who == number] == list(range(200))


def test_timers_outlive_a_fault_of_their_own_thread(supervisor):
    timers, struck = supervisor._core.runtime.timers, threading.Event()
    clock = timers._clock

    class FailsOnce:
        @staticmethod
        def monotonic():
            if threading.current_thread().name == "slotkeeper-timers" and not struck.is_set():
                struck.set()
                raise MemoryError
            return clock.monotonic()

    timers._clock = FailsOnce()
    spec = TaskSpec.once(lambda ctx: ctx.wait(SOON), attempt_timeout=0.01)
    for _ in range(3):  # a timer each; the fault comes with one of them
        assert isinstance(outcome_of(supervisor.submit(spec, slot="k")), Failed)
    assert struck.is_set()
