"""What fresh eyes found: batches that fail half-way, hostile names, unknown messages, work that outlives its body."""

from __future__ import annotations

import asyncio
import threading

import pykka
import pytest

from actors import Add, SlotActor, Submit, Subscription
from actors.adding import Adding
from actors.testing import Script, Simulation, scripted
from admission import Completed, ForceAborted, Submission, TaskSpec
from tests.actors.support import SOON, call_in_thread, eventually, noop, outcome_of


class Hostile(str):
    """A text that fails at whatever it overrides."""

    __slots__ = ()

    def __hash__(self):
        raise ZeroDivisionError

    def __lt__(self, other):
        raise ZeroDivisionError

    __eq__ = __lt__


def test_a_name_of_a_hostile_kind_of_text_is_a_plain_text(start, body):
    supervisor = start(grace=0.01)
    for name in ("a", "b"):
        supervisor.add(TaskSpec.once(work := body(stubborn=True), name=Hostile(name)))
        assert work.is_inside()
    supervisor.submit(noop, slot=Hostile("k"))
    assert supervisor.alive() == ("a", "b")
    report = call_in_thread(supervisor.shutdown)()
    assert report.stuck == ("a", "b")
    body.let_all_go()


def test_a_batch_that_fails_half_way_leaves_nothing(monkeypatch, supervisor):
    index, struck = Adding._index, []

    def fails_half_way(self, tickets):
        if struck:
            return index(self, tickets)
        struck.append(index(self, tickets[:1]))
        raise MemoryError

    monkeypatch.setattr(Adding, "_index", fails_half_way)
    batch = [TaskSpec.once(noop, name=name) for name in "abc"]
    with pytest.raises(MemoryError):
        supervisor.add_batch(batch)
    assert supervisor.tasks() == []
    supervisor.join(SOON)
    assert [outcome_of(handle) for handle in supervisor.add_batch(batch)] == [Completed("done")] * 3
    assert eventually(lambda: not supervisor.registry._actor_weakref().private)


def test_a_message_that_a_slot_alone_does_not_know_costs_its_job_nothing(runtime, body):
    slot = SlotActor.start("alone", runtime=runtime, grace=1)
    handle = slot.ask(Submit(Submission(work := body("ran"))), timeout=SOON)
    assert work.is_inside()
    for unknown in ("hello", Add(TaskSpec.once(noop))):
        with pytest.raises(KeyError):
            slot.ask(unknown, timeout=SOON)
    work.let_go()
    assert outcome_of(handle) == Completed("ran")
    slot.stop(timeout=SOON)


def test_whoever_told_several_is_notified_of_each(registry):
    class Listener(pykka.ThreadingActor):
        def __init__(self):
            super().__init__()
            self.heard = []

        def on_receive(self, message):
            self.heard.append(message)

    listener = Listener.start()
    try:
        registry.stop(timeout=SOON)
        message = Add(*[TaskSpec.once(noop)] * 3, notify=listener, token=("t",))
        message.undelivered()
        heard = listener._actor_weakref().heard
        assert eventually(lambda: len(heard) == 3)
        assert {each.token for each in heard} == {("t",)}
    finally:
        listener.stop()


def test_what_a_body_awaits_until_it_is_cancelled_never_outlives_it(start):
    supervisor = start(grace=0.05)
    inside, seen = threading.Event(), []

    async def work():
        inside.set()
        try:
            await asyncio.sleep(30)
        finally:
            try:
                await asyncio.sleep(0.3)  # longer than its grace
            finally:
                seen.append("work has left")

    async def body(ctx):
        await ctx.run_until_cancelled(work())

    handle = supervisor.submit(body, slot="k")
    behind = supervisor.submit(lambda _ctx: seen.append("next"), slot="k")
    assert inside.wait(SOON)
    handle.cancel()
    assert outcome_of(handle) == ForceAborted()
    assert outcome_of(behind) == Completed(None)
    assert seen == ["work has left", "next"]


def test_a_subscription_may_be_closed_from_inside_its_own_callback(supervisor):
    heard = []

    def once(event):
        heard.append(event)
        box[0].close()

    box: list[Subscription] = [supervisor.subscribe(once)]
    for _ in range(3):
        outcome_of(supervisor.submit(noop, slot="k"))
    assert eventually(lambda: box[0].closed)
    assert len(heard) == 1


@pytest.mark.parametrize("seed", range(50))
def test_a_natural_end_and_a_request_for_it_are_one_shutdown(seed):
    simulation = Simulation(seed)
    supervisor = simulation.supervisor(grace=1).start()
    supervisor.add(scripted(Script(seconds=1)))
    simulation.post("shut down", lambda: supervisor.registry.tell(__import__("actors").Shutdown()))
    assert supervisor.run() == supervisor.shutdown()
