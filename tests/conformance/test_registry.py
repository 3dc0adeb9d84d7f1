"""Runs that are added directly: one, many at once, a batch of which all or none are taken."""

from __future__ import annotations

import asyncio
import threading
from itertools import chain

import pykka
import pytest

from actors import AsyncSupervisor, Ended, Submit, Supervisor
from actors.messages import Add, Remove, Shutdown
from actors.testing import scripted
from admission import (
    AdmissionLimits,
    AlreadyRunningError,
    Completed,
    IntakeFullError,
    RejectionKind,
    ResourceLimitError,
    SupervisorClosedError,
    TaskExistsError,
    TaskSpec,
)
from tests.actors.support import SOON, Log, call_in_thread, eventually, noop, our_threads, outcome_of
from tests.conformance.direct import LONG, ask, is_pending, named, slow_to_stop
from tests.conformance.support import COOP, OK, gate, seeds
from tests.conformance.verdicts import adapted


@pytest.fixture
def full(start):
    """A supervisor with a log whose intake has one place, which is taken."""
    supervisor = start(limits=AdmissionLimits(intake=1), logger=Log())
    assert supervisor._core.intake.take()
    return supervisor


@seeds
def test_s080_what_is_added_runs_and_is_listed(simulate, seed):
    """An added run has an id, is listed under it, is soon inside its body, and its attempt is told under that id."""
    world, supervisor = simulate(seed)
    handle = supervisor.add(named("svc", COOP))
    assert supervisor.tasks() == [(handle.id, "svc")]
    world.run_until_idle()
    assert supervisor.alive() == ("svc",)
    assert world.count("attempt_starting", handle) == 1


@seeds
def test_s081_adding_is_confirmed_however_fast_the_body_ends(simulate, seed):
    """Adding a run that ends at once is confirmed like any other."""
    world, supervisor = simulate(seed)
    handle = supervisor.add(named("quick", OK))
    assert handle.outcome() == Completed("ok")
    assert world.count("task_added", handle) == 1


def test_s082_a_name_is_taken_once(simulate):
    """Adding a name that is registered is refused; its body never runs and the first run is not touched."""
    world, supervisor = simulate()
    first = supervisor.add(named("dup", COOP))
    with pytest.raises(TaskExistsError) as refused:
        supervisor.add(named("dup", OK))
    assert refused.value.name == "dup"
    assert supervisor.tasks() == [(first.id, "dup")]
    assert world.count("body_entered") == 1
    assert supervisor.alive() == ("dup",)


def test_s083_of_many_who_add_one_name_at_once_one_succeeds(start, body):
    """64 threads add one name at the same time: one run is added and 63 are refused."""
    log, barrier, work = Log(), threading.Barrier(64), body()
    supervisor = start(logger=log)

    def add():
        barrier.wait(LONG)
        try:
            return supervisor.add(TaskSpec.once(work, name="one"))
        except TaskExistsError as error:
            return error

    results = [join(LONG) for join in [call_in_thread(add) for _ in range(64)]]
    refused = [result for result in results if isinstance(result, TaskExistsError)]
    assert len(refused) == 63
    assert {error.name for error in refused} == {"one"}
    supervisor.shutdown()
    assert (len(log.of("task_added")), len(log.of("task_add_failed"))) == (1, 63)
    assert work.runs == 1


def test_s084_many_names_are_added_at_once(start):
    """256 adds of different names at the same time give 256 ids, all listed; removing all empties the list."""
    supervisor, barrier = start(grace=LONG), threading.Barrier(16)

    def add(thread):
        barrier.wait(LONG)
        return [
            supervisor.add(TaskSpec.once(lambda ctx: ctx.wait(), name=f"t{thread}-{number}")) for number in range(16)
        ]

    handles = list(chain.from_iterable(join(LONG) for join in [call_in_thread(add, thread) for thread in range(16)]))
    assert len({handle.id for handle in handles}) == 256
    assert [id_ for id_, _ in supervisor.tasks()] == sorted(handle.id for handle in handles)
    assert all(supervisor.remove(handle.id) for handle in handles)
    supervisor.join(LONG)
    assert supervisor.tasks() == []


@seeds
def test_s085_a_name_is_taken_until_its_run_has_ended(simulate, seed):
    """While a removed run still stops, its name can not be added; afterwards it can, under a new id."""
    world, supervisor = simulate(seed)
    old = supervisor.add(named("svc", slow_to_stop(3)))
    world.run_until_idle()
    assert supervisor.remove(old.id) is True
    with pytest.raises(TaskExistsError):
        supervisor.add(named("svc", OK))
    assert world.count("body_entered") == 1
    old.outcome()
    new = supervisor.add(named("svc", OK))
    assert new.id != old.id
    assert new.outcome() == Completed("ok")


@seeds
def test_s086_a_name_is_free_when_cancel_returns(simulate, seed):
    """A name whose run has been cancelled can be added again at once, under another id."""
    _, supervisor = simulate(seed)
    old = supervisor.add(named("svc", COOP))
    assert supervisor.cancel(old.id) is True
    new = supervisor.add(named("svc", COOP))
    assert new.id != old.id
    assert supervisor.tasks() == [(new.id, "svc")]


def test_s087_a_run_is_told_of_before_its_attempt(start):
    """Of 4096 runs that several threads add, each is told as added before its attempt starts."""
    log = Log()
    supervisor = start(logger=log)

    def add(thread):
        return [supervisor.add(TaskSpec.once(noop, name=f"t{thread}-{number}")) for number in range(512)]

    handles = list(chain.from_iterable(join(LONG) for join in [call_in_thread(add, thread) for thread in range(8)]))
    supervisor.join(LONG)
    supervisor.shutdown()
    added = {fields["id"]: fields["seq"] for fields in log.of("task_added")}
    starting = {fields["id"]: fields["seq"] for fields in log.of("attempt_starting")}
    assert set(added) == set(starting) == {handle.id for handle in handles}
    assert all(added[id_] < starting[id_] for id_ in added)


def test_s088_an_observer_that_lags_delays_no_add(start, body, lagging):
    """With a subscriber that is stuck and a queue of one, adding is answered and the run is a member."""
    supervisor = start()
    subscription = supervisor.subscribe(lagging, capacity=1)
    for number in range(20):
        outcome_of(supervisor.add(TaskSpec.once(noop, name=f"noise{number}")))
    assert lagging.inside.wait(SOON)
    handle = supervisor.add(TaskSpec.once(body(), name="svc"))
    assert supervisor.tasks() == [(handle.id, "svc")]
    assert lagging.told == 0
    assert subscription.dropped > 0


@seeds
def test_s089_a_reply_that_nobody_waits_for_stops_nothing(simulate, seed):
    """A run whose adder has gone is registered all the same, and so is the next one."""
    world, supervisor = simulate(seed)
    ask(supervisor, Add(named("left", COOP)))  # and nobody keeps the future
    supervisor.registry.tell(Add(named("told", COOP)))
    kept = ask(supervisor, Add(named("kept", COOP)))
    (handle,) = world.reply(kept)
    assert [name for _, name in supervisor.tasks()] == ["left", "told", "kept"]
    assert supervisor.tasks()[-1][0] == handle.id
    assert world.count("task_added") == 3


@adapted("The queue that can be full is the intake of submissions; `add` needs no place.", rule="dropped")
def test_s090_who_finds_no_place_waits_for_one(full):
    """A call that finds the bounded way to the registry full waits; when there is a place, it is registered."""
    waiting = call_in_thread(full.submit, noop, slot="k")
    assert eventually(lambda: full._core.intake._waiters)
    assert full.tasks() == []
    full._core.intake.give()
    assert outcome_of(waiting()) == Completed("done")


@adapted("It is `try_submit` that fails where there is no place, with `IntakeFullError`.", rule="dropped")
def test_s091_who_will_not_wait_is_told_that_there_is_no_place(full, body):
    """A call that does not wait for a place fails without an event, a name or a body; later there is place again."""
    work = body()
    work.let_go()
    with pytest.raises(IntakeFullError):
        full.try_submit(TaskSpec.once(work, name="svc"))
    assert full.tasks() == []
    full._core.intake.give()
    handle = full.try_submit(TaskSpec.once(work, name="svc"))
    assert outcome_of(handle) == Completed(None)
    full.shutdown()
    log = full._core.logger
    assert [fields["id"] for fields in log.of("task_add_requested")] == [handle.id]
    assert work.runs == 1


def test_s092_adding_waits_for_the_decision_only(simulate):
    """An add that the registry has not come to yet is pending, and answered when it is decided."""
    world, supervisor = simulate()
    added = ask(supervisor, Add(named("svc", OK)))
    assert is_pending(added)
    (handle,) = world.reply(added)
    assert handle.outcome() == Completed("ok")


@adapted("The caller waits at the intake of submissions.", rule="dropped")
def test_s093_who_leaves_while_there_is_no_place_has_done_nothing(full, body):
    """A caller that is cancelled while it waits for a place has registered nothing, and no body runs."""
    work = body()

    async def leave():
        submitting = asyncio.ensure_future(AsyncSupervisor(full._core).submit(TaskSpec.once(work, name="svc")))
        await asyncio.sleep(0)
        assert full._core.intake._waiters
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting

    asyncio.run(leave())
    full._core.intake.give()
    assert full._core.intake.inside == 0
    assert outcome_of(full.submit(noop, slot="next")) == Completed("done")
    assert full.shutdown().clean
    assert work.runs == 0
    assert "svc" not in {fields.get("task") for _, fields in full._core.logger.records}


def test_s094_who_leaves_after_handing_in_has_added_it(start, body):
    """A run whose adder is cancelled after it has been handed in is registered and starts."""
    supervisor, work = start(), body()

    async def leave():
        adding = asyncio.ensure_future(AsyncSupervisor(supervisor._core).add(TaskSpec.once(work, name="svc")))
        await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding

    asyncio.run(leave())
    assert work.is_inside()
    assert [name for _, name in supervisor.tasks()] == ["svc"]


@adapted("Who waits for a place waits at the intake of submissions.", rule="dropped")
def test_s095_who_waits_when_it_closes_is_told_so(simulate):
    """Who waits for a place when shutdown begins gets a closed error, nothing runs; a removal behind it is silent."""
    world, supervisor = simulate(limits=AdmissionLimits(intake=1))
    handle = supervisor.add(named("svc", COOP))
    world.run_until_idle()
    assert supervisor._core.intake.take()
    closing, removing = ask(supervisor, Shutdown()), ask(supervisor, Remove(handle.id))
    with pytest.raises(SupervisorClosedError):
        supervisor.submit(scripted(OK), slot="late")
    with pytest.raises(SupervisorClosedError):
        world.reply(removing)
    assert world.reply(closing).clean
    assert world.count("task_remove_requested") == 0
    assert world.count("body_entered") == 1


def test_s096_registered_runs_have_a_limit(simulate):
    """With one run allowed and one registered, another name is refused by the limit, and that is told."""
    world, supervisor = simulate(limits=AdmissionLimits(max_tasks=1))
    supervisor.add(named("first", COOP))
    with pytest.raises(ResourceLimitError) as refused:
        supervisor.add(named("second", OK))
    assert (refused.value.resource, refused.value.limit) == ("max_tasks", 1)
    (failed,) = world.of("task_add_failed")
    assert (failed["task"], failed["rejection_kind"]) == ("second", RejectionKind.RESOURCE_LIMIT)


@seeds
def test_s097_a_batch_runs_to_its_end(simulate, seed):
    """Running a batch of three returns when all have ended, and tells of each the same steps."""
    world, supervisor = simulate(seed)
    assert supervisor.run([named(name, OK) for name in "abc"]).clean
    for event in ("task_added", "attempt_starting", "attempt_succeeded", "task_finished", "task_removed"):
        assert sorted(record["task"] for record in world.of(event)) == list("abc"), event
    assert {record["outcome_kind"] for record in world.of("task_finished")} == {"outcome_completed"}


def test_s098_a_batch_with_a_name_twice_is_refused_as_a_whole(simulate):
    """A batch that names one task twice adds nothing; who is to blame is told apart from who is not, in order."""
    world, supervisor = simulate()
    with pytest.raises(TaskExistsError) as refused:
        supervisor.run([named("unique", OK), named("dup", OK), named("dup", OK)])
    assert refused.value.name == "dup"
    assert world.count("body_entered") == world.count("task_added") == 0
    assert [(record["task"], record["rejection_kind"]) for record in world.of("task_add_failed")] == [
        ("unique", RejectionKind.BATCH_REJECTED),
        ("dup", RejectionKind.BATCH_REJECTED),
        ("dup", RejectionKind.ALREADY_EXISTS),
    ]


@pytest.mark.parametrize("call", [Supervisor.run, Supervisor.add_batch], ids=["run", "add_batch"])
@pytest.mark.parametrize("removing", [False, True], ids=["registered", "being removed"])
def test_s099_a_batch_with_a_name_that_is_taken_is_refused_as_a_whole(simulate, removing, call):
    """A batch that holds the name of a run that is registered, or being removed, adds nothing."""
    world, supervisor = simulate()
    handle = supervisor.add(named("taken", slow_to_stop(3)))
    world.run_until_idle()
    if removing:
        supervisor.remove(handle.id)
    with pytest.raises(TaskExistsError) as refused:
        call(supervisor, [named("peer", OK), named("taken", OK)])
    assert refused.value.name == "taken"
    assert supervisor.tasks() == [(handle.id, "taken")]
    assert world.count("body_entered") == 1


@seeds
@pytest.mark.parametrize("told", [False, True], ids=["asked", "nobody waits for the reply"])
def test_s100_no_body_of_a_batch_starts_before_the_whole_batch_is_added(simulate, seed, told):
    """All of a batch are listed, in order, and each is told as added before any of them starts."""
    world, supervisor = simulate(seed)
    batch = [named(name, COOP) for name in "cab"]
    if told:
        supervisor.registry.tell(Add(*batch))
    else:
        supervisor.add_batch(batch)
    listed = supervisor.tasks()
    assert [name for _, name in listed] == list("cab")
    assert listed == sorted(listed)
    assert world.count("task_added") == world.count("attempt_starting") == 3
    last = max(record["seq"] for record in world.of("task_added"))
    assert last < min(record["seq"] for record in world.of("attempt_starting"))


def test_s102_after_a_refused_batch_the_supervisor_goes_on(simulate):
    """A supervisor whose batch was refused takes submissions as ever and ends cleanly; it can not run another batch."""
    _, supervisor = simulate()
    with pytest.raises(TaskExistsError):
        supervisor.run([named("dup", OK), named("dup", OK)])
    assert supervisor.submit(scripted(OK), slot="k").outcome() == Completed("ok")
    with pytest.raises(AlreadyRunningError):
        supervisor.run([named("other", OK)])
    assert supervisor.shutdown().clean


@seeds
def test_s302_one_id_from_the_first_event_to_the_last(simulate, seed):
    """Every event about a run, from adding it to its cancellation, carries the same id."""
    world, supervisor = simulate(seed)
    handle = supervisor.add(named("svc", COOP))
    supervisor.add(named("other", gate(1)))
    world.run_until_idle()
    assert supervisor.cancel("svc") is True
    world.run_until_idle()
    about = [record for record in world.records if record.get("task") == "svc" and record.get("id") is not None]
    assert {record["id"] for record in about} == {handle.id}
    assert [record["event"] for record in about if not record["event"].startswith(("body_", "attempt_released"))] == [
        "task_add_requested",
        "task_added",
        "attempt_starting",
        "task_remove_requested",
        "attempt_succeeded",
        "task_finished",
        "task_removed",
    ]


class Listener(pykka.ThreadingActor):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def on_receive(self, message):
        self.messages.append(message)


@pytest.fixture
def listener(nothing_is_left):
    ref = Listener.start()
    yield ref
    ref.stop()


def told(listener):
    """Return the tokens and types of what a listener was told; asked behind everything before it."""
    return [(message.token, type(message)) for message in listener.proxy().messages.get(timeout=SOON)]


@pytest.mark.parametrize("message", [Add, Submit])
def test_whoever_is_notified_is_told_of_the_end_last(start, listener, message):
    """The last that a listener is told of a run is how it ended."""
    supervisor = start()
    supervisor.registry.tell(message(TaskSpec.once(noop, name="svc"), notify=listener, token=1))
    assert eventually(lambda: (1, Ended) in told(listener))
    supervisor.shutdown()
    assert eventually(lambda: not our_threads())  # all has been passed on
    assert [kind for _, kind in told(listener)].index(Ended) == len(told(listener)) - 1


def test_whoever_is_notified_is_told_of_a_closed_registry(start, listener, body):
    """A told add that comes after the shutdown has begun is answered like any other: it was rejected."""
    supervisor, work = start(grace=LONG), body(stubborn=True)
    supervisor.add(TaskSpec.once(work, name="svc"))
    assert work.is_inside()
    closing = ask(supervisor, Shutdown())
    for message in (Submit, Add):
        supervisor.registry.tell(message(TaskSpec.once(noop, name="late"), notify=listener, token=message))
    work.let_go()
    closing.get(timeout=LONG)
    assert eventually(lambda: (Submit, Ended) in told(listener))
    assert (Add, Ended) in told(listener)
