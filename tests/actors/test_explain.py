"""What a supervisor says of what is inside a body, and of what everything else waits for."""

from __future__ import annotations

import asyncio
from contextvars import Context

import pytest

from actors import Explain, RegistryActor, SlotActor, Supervisor, make_runtime, messages
from actors.budget import Budget
from actors.desk import make_ticket
from actors.hands import SlotServices
from actors.lone import LoneSlotActor
from actors.messages import Admit, Registered, View, Viewed
from actors.publisher import Publisher
from actors.runtime import deliver
from actors.testing import Script, Simulation, scripted
from admission import (
    AdmissionLimits,
    Backoff,
    Cancelled,
    Completed,
    Explanation,
    ForceAborted,
    SlotStatus,
    Submission,
    TaskDefaults,
    TaskId,
    TaskSpec,
    WaitsFor,
)
from admission.effects import Phase
from admission.rules import Rules
from tests.actors.support import SOON, call_in_thread, outcome_of

LONG = scripted(Script(1000))
DEAF = scripted(Script(1000, ignores_cancel=True))


@pytest.fixture(params=range(3), ids=lambda seed: f"seed{seed}")
def world(request):
    with Simulation(request.param) as world:
        yield world


@pytest.fixture
def simulated(world):
    """Makes a supervisor in the world."""
    made = []

    def make(**options):
        made.append(world.supervisor(grace=5, **options).start())
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.shutdown()


class HeldSlot:
    """A true slot whose registry is the test: what it tells it is kept and never answered."""

    def __init__(self, world):
        self.world = world
        self.told = []
        self.ref = SlotActor.spawn(
            "held",
            SlotServices(
                runtime=world,
                bodies=world.bodies,
                publisher=Publisher(world),
                budget=Budget(None),
                defaults=TaskDefaults(),
                rules=Rules(grace=5, budgeted=False),
                limiter=None,
                to_registry=self.told.append,
            ),
        )

    def tell(self, message):
        deliver(self.ref, message)
        self.world.run_until_idle()

    def submit(self, work, policy="queue"):
        ticket = make_ticket(Submission(work, "held", policy), self.world, None, Context())
        self.tell(Admit(ticket))
        return ticket

    def explain(self, about=None):
        self.tell(View("look", explain=True, about=about))
        return self.told[-1].view


# -- what there is to say ------------------------------------------------------------------------------------------


def test_a_slot_says_who_has_it_and_who_waits(world, simulated):
    supervisor = simulated()
    owner = supervisor.submit(TaskSpec.once(LONG, name="sync"), slot="k")
    behind = [supervisor.submit(LONG, slot="k") for _ in range(3)]
    world.run_until_idle()
    world.advance(7)
    assert supervisor.explain("k") == Explanation(
        slot="k",
        status=SlotStatus.RUNNING,
        phase=Phase.RUNNING,
        status_for=7.0,
        owner_id=owner.id,
        owner="sync",
        attempt=1,
        waits_for=WaitsFor.BODY,
        due_in=None,
        queue=tuple(handle.id for handle in behind),
        queue_depth=3,
        position=None,
    )


def test_a_submission_says_where_it_stands_in_the_queue(world, simulated):
    supervisor = simulated()
    owner = supervisor.submit(LONG, slot="k")
    behind = [supervisor.submit(LONG, slot="k") for _ in range(3)]
    seen = [supervisor.explain(handle.id) for handle in (owner, *behind)]
    assert [each.position for each in seen] == [None, 0, 1, 2]
    assert [each.displaced_by_next_replace for each in seen] == [False, True, False, False]
    assert {each.owner_id for each in seen} == {owner.id}
    newest = supervisor.submit(LONG, slot="k", policy="replace")
    assert outcome_of(behind[0]).cause_id == newest.id  # as it was said
    assert supervisor.explain(behind[0].id) is None
    assert outcome_of(owner) == Cancelled()
    world.run_until_idle()
    assert supervisor.explain(newest.id).owner_id == newest.id
    assert not supervisor.explain("k").displaced_by_next_replace


def test_of_a_long_queue_only_the_beginning_is_shown(world, simulated):
    supervisor = simulated(limits=AdmissionLimits(max_slot_queue=None))
    supervisor.submit(LONG, slot="k")
    behind = [supervisor.submit(LONG, slot="k") for _ in range(150)]
    seen = supervisor.explain(behind[-1].id)
    assert seen.queue == tuple(handle.id for handle in behind[:100])
    assert (seen.queue_depth, seen.position) == (150, 149)


def test_of_what_is_not_there_nothing_is_said(world, simulated):
    supervisor = simulated()
    over = supervisor.submit(scripted(), slot="k")
    outcome_of(over)
    assert supervisor.explain("k") is None
    assert supervisor.explain(over.id) is None
    assert supervisor.explain("never heard of") is None
    assert supervisor.explain(TaskId(10**9)) is None


@pytest.mark.parametrize("target", [None, 3, b"k", ["k"]])
def test_who_is_meant_is_checked(supervisor, target):
    with pytest.raises(TypeError, match=r"target must be a TaskId or a slot key \(str\), not"):
        supervisor.explain(target)


def test_after_shutdown_there_is_nothing_to_say(start):
    supervisor = start()
    supervisor.shutdown()
    assert supervisor.explain("k") is None
    assert supervisor.alive() == ()


# -- every phase ---------------------------------------------------------------------------------------------------


def test_waiting_for_the_registry(world):
    held = HeldSlot(world)
    assert held.explain() is None
    owner = held.submit(LONG)
    seen = held.explain()
    assert (seen.phase, seen.waits_for, seen.attempt) == (Phase.ADMITTING, WaitsFor.ADMISSION, 0)
    assert seen.owner_id == owner.id
    newest = held.submit(LONG, policy="replace")
    seen = held.explain(newest.id)
    assert (seen.phase, seen.status) == (Phase.CANCEL_PENDING, SlotStatus.TERMINATING)
    assert (seen.waits_for, seen.position) == (WaitsFor.ADMISSION, 0)
    assert held.explain(TaskId(10**9)) is None
    assert held.told[-1].alive is None


def test_a_body_is_inside_before_its_slot_has_been_told(monkeypatch, world):
    held = HeldSlot(world)
    owner = held.submit(LONG)
    monkeypatch.setattr(world.bodies, "start", lambda _job: None)
    held.tell(Registered(owner.id, 1))
    assert (held.explain().waits_for, held.told[-1].alive) == (WaitsFor.BODY_THREAD, None)
    held.ref._actor_weakref().inside.claim_entry()  # as its thread does, before it tells anybody
    assert (held.explain().waits_for, held.told[-1].alive) == (WaitsFor.BODY, "held")


def test_waiting_for_a_permit(world, simulated):
    supervisor = simulated(limits=AdmissionLimits(max_concurrent=1))
    first, second = supervisor.submit(LONG, slot="a"), supervisor.submit(LONG, slot="b")
    world.run_until_idle()
    seen = supervisor.explain("b" if supervisor.explain("a").waits_for is WaitsFor.BODY else "a")
    assert (seen.waits_for, seen.phase, seen.attempt) == (WaitsFor.PERMIT, Phase.RUNNING, 1)
    assert len(supervisor.alive()) == 1
    assert {handle.id for handle in (first, second)} == {id_ for id_, _ in supervisor.tasks()}


def test_waiting_for_a_thread(body, nothing_is_left):
    runtime = make_runtime(max_threads=1)
    with Supervisor(runtime=runtime, grace=1) as supervisor:
        first, second = body(), body()
        supervisor.submit(first, slot="a")
        assert first.is_inside()
        handle = supervisor.submit(second, slot="b")
        supervisor.snapshot()
        seen = supervisor.explain("b")
        assert (seen.waits_for, seen.attempt) == (WaitsFor.BODY_THREAD, 1)
        assert supervisor.alive() == ("a",)
        first.let_go()
        assert second.is_inside()
        assert supervisor.explain(handle.id).waits_for is WaitsFor.BODY
        second.let_go()
        outcome_of(handle)
    runtime.close()
    runtime.join(1)


@pytest.mark.parametrize(
    ("spec", "due"),
    [
        (TaskSpec.restartable(scripted(Script(0, ValueError())), backoff=Backoff.constant(10)), 10),
        (TaskSpec.periodic(scripted(), every=60), 60),
    ],
    ids=["backoff", "interval"],
)
def test_pausing(world, simulated, spec, due):
    supervisor = simulated()
    supervisor.submit(spec, slot="k")
    world.run_until_idle()
    world.advance(4)
    seen = supervisor.explain("k")
    assert (seen.waits_for, seen.attempt, seen.due_in) == (WaitsFor.PAUSE, 1, due - 4)
    assert supervisor.alive() == ()
    world.advance(due)
    assert supervisor.explain("k").attempt == 2


def test_waiting_for_a_body_that_is_overdue(world, simulated):
    supervisor = simulated()
    supervisor.submit(TaskSpec.restartable(DEAF, attempt_timeout=2), slot="k")
    world.run_until_idle()
    world.advance(3)
    seen = supervisor.explain("k")
    assert (seen.phase, seen.status, seen.waits_for) == (Phase.RUNNING, SlotStatus.RUNNING, WaitsFor.RELEASE)
    assert supervisor.alive() == ("k",)


def test_waiting_for_a_body_that_is_asked_to_stop(world, simulated):
    supervisor = simulated()
    supervisor.submit(DEAF, slot="k")
    world.run_until_idle()
    newest = supervisor.submit(LONG, slot="k", policy="replace")
    seen = supervisor.explain(newest.id)
    assert (seen.phase, seen.waits_for, seen.position) == (Phase.TERMINATING, WaitsFor.BODY, 0)


def test_waiting_for_a_body_that_was_given_up(world, simulated):
    supervisor = simulated()
    owner = supervisor.submit(DEAF, slot="k")
    behind = supervisor.submit(LONG, slot="k")
    world.run_until_idle()
    owner.cancel()
    assert outcome_of(owner, None) == ForceAborted()
    for target in ("k", owner.id, behind.id):
        seen = supervisor.explain(target)
        assert (seen.phase, seen.waits_for, seen.owner_id) == (Phase.TERMINATING, WaitsFor.RELEASE, owner.id)
    assert supervisor.tasks() == []
    assert supervisor.alive() == ("k",)
    world.advance(2000)
    assert supervisor.explain(owner.id) is None


def test_a_run_that_was_added_directly(world, simulated):
    supervisor = simulated()
    added = supervisor.add(TaskSpec.once(DEAF, name="alone"))
    world.run_until_idle()
    seen = supervisor.explain(added.id)
    assert (seen.slot, seen.owner, seen.phase, seen.waits_for) == (None, "alone", Phase.RUNNING, WaitsFor.BODY)
    assert supervisor.explain("alone") is None  # a task name is no slot
    added.cancel()
    outcome_of(added, None)
    assert supervisor.explain(added.id).waits_for is WaitsFor.RELEASE
    assert supervisor.alive() == ("alone",)


def test_while_shutdown_goes_on(world):
    supervisor = world.supervisor(grace=5).start()
    owner = supervisor.submit(DEAF, slot="k")
    behind = supervisor.submit(LONG, slot="k")
    world.run_until_idle()
    report = supervisor.registry.ask(messages.Shutdown(), block=False)
    world.run_until_idle()
    assert supervisor.explain(owner.id).waits_for is WaitsFor.BODY
    assert supervisor.explain(behind.id) is None
    assert supervisor.alive() == ("k",)
    assert world.reply(report).still_inside == ("k",)
    assert (supervisor.alive(), supervisor.explain("k")) == ((), None)


@pytest.mark.parametrize("seed", range(40))
def test_at_any_moment_it_is_one_of_these(seed):
    """Whatever step is next, a look says something that can be, and waits for nothing but time."""
    with Simulation(seed) as simulation:
        supervisor = simulation.supervisor(grace=5, limits=AdmissionLimits(max_concurrent=1)).start()
        spec = TaskSpec.restartable(scripted(Script(1, ValueError()), Script(1)), backoff=Backoff.constant(1))
        handles = [supervisor.submit(spec, slot=slot) for slot in "aab"]
        before = simulation.clock.monotonic()
        while any(not handle.done() for handle in handles):
            for handle in handles:
                seen = supervisor.explain(handle.id)
                if seen is None:
                    continue
                assert (seen.owner_id == handle.id) is (seen.position is None)
                assert seen.position is None or seen.queue[seen.position] == handle.id
                assert (seen.due_in is not None) is (seen.waits_for is WaitsFor.PAUSE)
                if seen.waits_for is WaitsFor.BODY:
                    assert seen.phase is Phase.RUNNING
            assert len(supervisor.alive()) <= 1
            if not simulation.step():
                simulation.advance(0.25)
        assert simulation.clock.monotonic() - before < 20
        supervisor.shutdown()


# -- alive ---------------------------------------------------------------------------------------------------------


def test_whoever_is_inside_is_named_at_once_and_once(supervisor, body):
    bodies = [body() for _ in range(3)]
    handles = [supervisor.submit(each, slot=slot) for each, slot in zip(bodies, "cab", strict=True)]
    assert all(each.is_inside() for each in bodies)
    assert supervisor.alive() == ("a", "b", "c")
    bodies[1].let_go()
    outcome_of(handles[1])
    assert supervisor.alive() == ("b", "c")


def test_a_name_that_two_bodies_have_is_named_once(lone_slot, runtime, body):
    other = SlotActor.start("other", runtime=runtime)
    first = body()
    handle = lone_slot.ask(messages.Submit(TaskSpec.once(first, name="twin")), timeout=SOON)
    assert first.is_inside()
    assert lone_slot.ask(messages.Alive(), timeout=SOON) == ("twin",)
    assert other.ask(messages.Alive(), timeout=SOON) == ()
    first.let_go()
    outcome_of(handle)
    assert lone_slot.ask(messages.Alive(), timeout=SOON) == ()


@pytest.mark.parametrize("shape", ["__call__", "coroutine", "awaitable"])
def test_every_kind_of_body_is_named_as_soon_as_it_is_inside(supervisor, body, shape):
    for _ in range(30):
        work = body("done")
        handle = supervisor.submit(getattr(work, shape), slot="k")
        assert work.is_inside()
        assert supervisor.alive() == ("k",)
        assert supervisor.explain("k").waits_for is WaitsFor.BODY
        work.let_go()
        outcome_of(handle)
        assert supervisor.alive() == ()


def test_it_may_be_asked_from_inside_a_body(supervisor):
    def look(ctx):
        return supervisor.alive(), supervisor.explain(ctx.task_id).waits_for

    assert outcome_of(supervisor.submit(look, slot="k")).value == (("k",), WaitsFor.BODY)


# -- other faces ---------------------------------------------------------------------------------------------------


def test_the_face_for_event_loops(supervisor, face, body):
    async def look(target):
        return await face.alive(), await face.explain(target)

    work = body()
    handle = supervisor.submit(work, slot="k")
    assert work.is_inside()
    alive, seen = asyncio.run(look("k"))
    assert alive == ("k",)
    assert (seen.owner_id, seen.waits_for) == (handle.id, WaitsFor.BODY)
    with pytest.raises(TypeError, match="target"):
        asyncio.run(look(3))
    work.let_go()
    supervisor.shutdown()
    assert asyncio.run(look("k")) == ((), None)


def test_a_slot_alone_explains_itself(lone_slot, body):
    work = body()
    handle = lone_slot.ask(messages.Submit(TaskSpec.once(work)), timeout=SOON)
    assert work.is_inside()
    seen = lone_slot.ask(Explain("alone"), timeout=SOON)
    assert (seen.slot, seen.owner_id, seen.waits_for) == ("alone", handle.id, WaitsFor.BODY)
    assert lone_slot.ask(Explain(handle.id), timeout=SOON).position is None
    assert lone_slot.ask(Explain("other"), timeout=SOON) is None
    work.let_go()
    outcome_of(handle)
    assert lone_slot.ask(Explain("alone"), timeout=SOON) is None


def test_an_actor_may_ask_the_registry(registry):
    assert registry.ask(Explain("k"), timeout=SOON) is None
    assert registry.ask(messages.Alive(), timeout=SOON) == ()


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", ["explain", "alive"])
def test_a_look_that_fails_costs_nobody_a_job(monkeypatch, supervisor, body, ask):
    looks, original = [], SlotActor.handlers[View]

    def fails_once(slot, message):
        looks.append(message)
        if len(looks) == 1:
            raise RuntimeError
        original(slot, message)

    monkeypatch.setitem(SlotActor.handlers, View, fails_once)
    work = body("done")
    handle = supervisor.submit(work, slot="k")
    assert work.is_inside()
    look = supervisor.alive if ask == "alive" else lambda: supervisor.explain("k")
    assert not call_in_thread(look)()  # it can not be said
    assert call_in_thread(look)()
    work.let_go()
    assert outcome_of(handle).value == "done"


def test_a_registry_that_fails_over_a_look_answers_with_the_error(monkeypatch, supervisor, body):
    def fail(*_args, **_kwargs):
        raise LookupError

    work = body("done")
    handle = supervisor.submit(work, slot="k")
    assert work.is_inside()
    with monkeypatch.context() as patch:
        patch.setattr(RegistryActor, "_look", fail)
        for look in (supervisor.alive, lambda: supervisor.explain("k")):
            with pytest.raises(LookupError):
                call_in_thread(look)()
    work.let_go()
    assert outcome_of(handle).value == "done"


def test_a_slot_alone_that_fails_over_a_look_keeps_its_job(monkeypatch, lone_slot, body):
    def fail(*_args, **_kwargs):
        raise LookupError

    work = body("done")
    handle = lone_slot.ask(messages.Submit(TaskSpec.once(work)), timeout=SOON)
    assert work.is_inside()
    with monkeypatch.context() as patch:
        patch.setattr(LoneSlotActor, "_look", fail)
        for look in (messages.Alive(), Explain("alone")):
            with pytest.raises(LookupError):
                lone_slot.ask(look, timeout=SOON)
    work.let_go()
    assert outcome_of(handle) == Completed("done")


def test_an_answer_that_nobody_asked_for_is_dropped(supervisor):
    supervisor.registry.tell(Viewed("nobody", None))
    assert supervisor.alive() == ()
