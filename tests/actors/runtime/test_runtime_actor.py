from __future__ import annotations

import gc
import logging
import threading
import tracemalloc
import weakref
from typing import Any, ClassVar

import pykka
import pytest
from pykka import ActorDeadError

from actors.runtime import RuntimeActor, deliver
from actors.runtime.ref import RuntimeRef
from tests.actors.runtime.support import (
    ESCAPING,
    WAIT,
    Bystander,
    Collector,
    HandRuntime,
    Hostile,
    Letter,
    Pause,
    Unprintable,
    threads_named,
    without_collector,
)

pytestmark = pytest.mark.usefixtures("empty_registry")


class Actor(RuntimeActor):
    """Answers what it is asked; raises, stops or waits when told to."""

    greeting = "hello"

    def __init__(self, runtime):
        super().__init__(runtime)
        self.faults = []
        self.got = []

    def on_receive(self, message):
        self.got.append(message)
        if isinstance(message, BaseException):
            raise message
        if callable(message):
            return message()
        if message == "end":
            self.end()
        return message

    def on_fault(self, message, error):
        self.faults.append((message, error))
        return super().on_fault(message, error)

    def greet(self, name):
        return f"{self.greeting}, {name}"


@pytest.fixture
def actor(runtime):
    actor = Actor(runtime)
    actor._start_actor_loop()
    yield actor
    actor.end()


@pytest.fixture
def ref(actor):
    return actor.actor_ref


# -- messages --------------------------------------------------------------------------------------------------------


def test_what_one_sender_tells_asks_and_delivers_is_handled_in_that_order(actor, ref):
    ref.tell(1)
    deliver(ref, 2)
    future = ref.ask(3, block=False)
    deliver(ref, 4)
    ref.tell(5)
    assert future.get(timeout=WAIT) == 3
    assert ref.ask(6, timeout=WAIT) == 6
    assert actor.got == [1, 2, 3, 4, 5, 6]


def test_order_is_kept_through_a_third_actor(runtime):
    """What is put before another message is put, also by somebody else, is handled before it."""

    class Forwarding(RuntimeActor):
        def on_receive(self, message):
            deliver(last.actor_ref, message)

    last = Collector(runtime, enough=600)
    last._start_actor_loop()
    via = Forwarding.spawn(runtime)
    for number in range(300):
        deliver(last.actor_ref, ("straight", number))
        deliver(via, ("around", number))
    assert last.done.wait(WAIT)
    when = {message: place for place, message in enumerate(last.got)}
    assert all(when["straight", number] < when["around", number] for number in range(300))
    for way in ("straight", "around"):
        assert [number for kind, number in last.got if kind == way] == list(range(300))


def test_a_message_finds_the_handler_of_its_type_and_any_other_goes_to_on_receive(runtime):
    class Sorting(RuntimeActor):
        def on_text(self, message):
            return ("text", message)

        def on_receive(self, message):
            return super().on_receive(message) if isinstance(message, str) else ("other", message)

        handlers: ClassVar = {str: on_text}

    ref = Sorting.spawn(runtime)
    assert ref.ask("a", timeout=WAIT) == ("text", "a")
    assert ref.ask(1, timeout=WAIT) == ("other", 1)


def test_a_told_message_finds_the_handler_of_its_type(runtime):
    told = threading.Event()

    class Sorting(RuntimeActor):
        handlers: ClassVar = {str: lambda self, message: told.set()}

    deliver(Sorting.spawn(runtime), "a")
    assert told.wait(WAIT)


def test_a_message_that_nobody_handles_is_a_fault(runtime):
    ref = RuntimeActor.spawn(runtime)
    deliver(ref, "a word")
    with pytest.raises(KeyError):
        ref.ask("a question", timeout=WAIT)


def test_proxies_work_as_everywhere_in_pykka(ref):
    proxy = ref.proxy()
    proxy.greeting = "good day"
    assert proxy.greeting.get(timeout=WAIT) == "good day"
    assert proxy.greet("you").get(timeout=WAIT) == "good day, you"


def test_its_urn_is_made_once(actor, ref):
    assert ref.actor_urn == ref.actor_urn == actor.actor_urn
    assert ref.actor_urn.startswith("urn:uuid:")
    assert str(ref) == f"Actor ({ref.actor_urn})"


# -- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [*ESCAPING, Unprintable()], ids=lambda error: type(error).__name__)
def test_a_handler_that_raises_costs_one_message_and_stops_nobody(actor, ref, error):
    bystander = Bystander.start()
    try:
        ref.tell(error)
        deliver(ref, error)
        with pytest.raises(type(error)) as raised:
            ref.ask(error, timeout=WAIT)
        assert raised.value is error
        assert ref.ask("still there?", timeout=WAIT) == "still there?"
        assert actor.faults == [(error, error)] * 3
        assert bystander.is_alive()
        assert pykka.ActorRegistry.get_all() == [bystander]
    finally:
        bystander.stop()


def test_what_the_fault_handler_returns_answers_the_asker(runtime):
    class Settling(Actor):
        def on_fault(self, message, error):
            return "settled"

    assert Settling.spawn(runtime).ask(ValueError(), timeout=WAIT) == "settled"


@pytest.mark.parametrize("error", ESCAPING, ids=repr)
def test_a_fault_handler_that_raises_costs_no_more_than_the_handler(runtime, error):
    class Worse(Actor):
        def on_fault(self, message, _):
            raise error

    ref = Worse.spawn(runtime)
    ref.tell(ValueError())
    with pytest.raises(type(error)) as raised:
        ref.ask(ValueError(), timeout=WAIT)
    assert raised.value is error
    assert ref.ask("still there?", timeout=WAIT) == "still there?"


def test_a_returned_error_is_the_asker_s_and_no_fault(actor, ref):
    error = LookupError()
    with pytest.raises(LookupError) as raised:
        ref.ask(lambda: error, timeout=WAIT)
    assert raised.value is error
    assert actor.faults == []


def test_a_message_that_hides_its_class_is_handled_like_any_other(actor, ref):
    message = Hostile()
    deliver(ref, message)
    assert ref.ask("still there?", timeout=WAIT) == "still there?"
    assert actor.got[0] is message


def test_a_reply_that_somebody_else_gave_is_left_alone():
    """A second `set` on Pykka's future raises."""
    runtime = HandRuntime()
    ref = Actor.spawn(runtime)
    asked, failing = ref.ask("question", block=False), ref.ask(ValueError(), block=False)
    for future in (asked, failing):
        future.set("the other one")
    last = ref.ask("still there?", block=False)
    runtime.dispatcher.run_next()  # one turn, which raises nothing
    assert last.get(timeout=WAIT) == "still there?"
    assert asked.get(timeout=WAIT) == failing.get(timeout=WAIT) == "the other one"


# -- effects ---------------------------------------------------------------------------------------------------------


class Effect:
    def __init__(self, done, error=None):
        self.done = done
        self.error = error

    def perform(self):
        self.done.append(self)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", ESCAPING, ids=repr)
@pytest.mark.parametrize("worse", [False, True], ids=["", "and-so-does-what-settles-it"])
def test_an_effect_that_raises_costs_none_of_the_ones_behind_it(runtime, error, worse):
    settled = []

    class Settling(RuntimeActor):
        def on_effect_fault(self, effect, error):
            settled.append((effect, error))
            if worse:
                raise error

    done: list[Effect] = []
    effects = [Effect(done), Effect(done, error), Effect(done)]
    runtime.perform(Settling(runtime), effects)
    assert done == effects
    assert settled == [(effects[1], error)]


def test_an_effect_is_carried_out_by_the_action_of_its_type_or_by_itself(runtime):
    done: list[Any] = []

    class Acting(RuntimeActor):
        actions: ClassVar = {str: lambda self, effect: done.append(("action", effect))}

    effect = Effect(done)
    actor = Acting(runtime)
    runtime.perform(actor, ["a", effect])
    runtime.perform(actor, ["b"])
    runtime.perform(actor, [effect])
    assert done == [("action", "a"), effect, ("action", "b"), effect]


def test_an_effect_that_nobody_settles_is_given_up(runtime):
    done: list[Effect] = []
    runtime.perform(RuntimeActor(runtime), [Effect(done, ValueError()), Effect(done)])
    assert len(done) == 2


# -- the end ---------------------------------------------------------------------------------------------------------


def test_a_stopped_actor_refuses_what_is_told_answers_what_is_asked_and_gives_back_what_is_delivered(ref):
    assert ref.is_alive()
    assert ref.stop(timeout=WAIT) is True
    assert not ref.is_alive()
    with pytest.raises(ActorDeadError):
        ref.tell("anybody there?")
    with pytest.raises(ActorDeadError):
        ref.ask("anybody there?", timeout=WAIT)
    with pytest.raises(ActorDeadError):
        ref.proxy()
    assert ref.stop(timeout=WAIT) is False
    letter = Letter()
    deliver(ref, letter)
    assert letter.returned == 1


def test_what_waits_when_an_actor_ends_is_answered_and_given_back(actor, ref):
    pause = Pause()
    letter = Letter()
    ref.tell(pause)
    assert pause.reached.wait(WAIT)
    ref.tell("end")
    question = ref.ask("question", block=False)
    told = Letter()
    ref.tell(told)
    deliver(ref, letter)
    stop = ref.stop(block=False)
    pause.let_go()
    with pytest.raises(ActorDeadError):
        question.get(timeout=WAIT)
    assert stop.get(timeout=WAIT) is True
    assert (letter.returned, told.returned) == (1, 1)
    assert "question" not in actor.got


@pytest.mark.parametrize("asks", [False, True], ids=["told", "asked"])
def test_what_is_put_between_the_look_whether_an_actor_lives_and_its_end_is_given_back(actor, ref, asks):
    """Pykka looks first and puts then; here the actor ends in between."""

    class EndsAfterTheLook(RuntimeRef[Any]):
        def is_alive(self):
            alive = super().is_alive()
            actor.end()
            return alive

    letter = Letter()
    late = EndsAfterTheLook(actor)
    if asks:
        with pytest.raises(ActorDeadError):
            late.ask(letter, timeout=WAIT)
    else:
        late.tell(letter)
    assert letter.returned == 1
    assert actor.got == []


def test_an_actor_may_refuse_to_stop(runtime):
    class Staying(Actor):
        def on_stop_requested(self):
            return "noted"

    ref = Staying.spawn(runtime)
    assert ref.stop(timeout=WAIT) is True
    assert ref.ask("still there?", timeout=WAIT) == "still there?"


def test_an_actor_may_stop_itself(actor, ref):
    actor.stop()
    with pytest.raises(ActorDeadError):
        ref.ask("anybody there?", timeout=WAIT)


def test_to_end_twice_is_to_end_once(actor):
    actor.end()
    actor.end()
    assert not actor.actor_ref.is_alive()
    assert actor.actor_stopped.is_set()


# -- Pykka's registry ------------------------------------------------------------------------------------------------


def test_a_started_actor_is_registered_until_it_ends(runtime):
    ref = Actor.start(runtime)
    assert pykka.ActorRegistry.get_all() == [ref]
    assert pykka.ActorRegistry.get_by_class(Actor) == [ref]
    ref.stop(timeout=WAIT)
    assert pykka.ActorRegistry.get_all() == []


def test_a_child_is_in_no_registry_and_in_no_log(runtime, caplog):
    with caplog.at_level(logging.DEBUG, "pykka"):
        ref = Actor.spawn(runtime)
        assert pykka.ActorRegistry.get_all() == []
        ref.tell(ValueError())
        ref.stop(timeout=WAIT)
    assert caplog.records == []


def test_to_end_a_child_looks_at_no_registry(actor, monkeypatch):
    """`ActorRegistry.unregister` scans a list of all that are registered."""

    looked = []

    class Watched:
        def __getattribute__(self, name):
            looked.append(name)
            raise AttributeError

    with monkeypatch.context() as patch:
        patch.setattr(pykka.ActorRegistry, "_actor_refs", Watched())
        patch.setattr(pykka.ActorRegistry, "_actor_refs_lock", Watched())
        patch.setattr(pykka.ActorRegistry, "unregister", looked.append)
        patch.setattr(pykka.ActorRegistry, "get_all", lambda: looked.append("all"))
        actor.end()
    assert not actor.actor_ref.is_alive()
    assert looked == []


@pytest.mark.usefixtures("raising_log_filter")
def test_a_log_filter_that_raises_keeps_no_actor_from_starting_working_and_stopping(runtime):
    ref = Actor.start(runtime)
    assert pykka.ActorRegistry.get_all() == [ref]
    ref.tell(ValueError())
    assert ref.ask("still there?", timeout=WAIT) == "still there?"
    assert ref.stop(timeout=WAIT) is True
    assert pykka.ActorRegistry.get_all() == []


@pytest.mark.parametrize("error", [RuntimeError("no thread"), KeyboardInterrupt()], ids=repr)
def test_a_start_that_fails_leaves_nothing_registered_and_nobody_waiting(runtime, error):
    started = []

    class Unstartable(Actor):
        def _choose_dispatcher(self):
            started.append((self.actor_ref, self.actor_ref.ask("early", block=False)))
            raise error

    with pytest.raises(type(error)):
        Unstartable.start(runtime)
    assert pykka.ActorRegistry.get_all() == []
    ((ref, future),) = started
    assert not ref.is_alive()
    with pytest.raises(ActorDeadError):
        future.get(timeout=WAIT)


def test_stop_all_reaches_the_started_and_not_the_children(runtime):
    child = Actor.spawn(runtime)
    Actor.start(runtime)
    Actor.start(runtime)
    assert pykka.ActorRegistry.stop_all(timeout=WAIT) == [True, True]
    assert child.is_alive()
    child.stop(timeout=WAIT)


# -- what is kept alive ----------------------------------------------------------------------------------------------


def test_an_actor_that_ends_is_freed_by_reference_counting(runtime):
    with without_collector():
        actor = Actor(runtime)
        gone = threading.Event()
        weakref.finalize(actor, gone.set)
        ref = actor.actor_ref
        actor._start_actor_loop()
        del actor
        ref.tell("a word")
        assert ref.ask("a question", timeout=WAIT) == "a question"
        assert not gone.is_set()
        ref.tell("end")
        assert gone.wait(WAIT)
        assert ref._actor_weakref() is None


@pytest.mark.parametrize("send", [lambda ref, it: ref.tell(it), deliver, lambda ref, it: ref.ask(it, timeout=WAIT)])
def test_an_idle_actor_keeps_nothing_alive_of_its_last_message(runtime, send):
    class Message:
        pass

    class Forgetful(RuntimeActor):
        def on_receive(self, message):
            pass

    ref = Forgetful.spawn(runtime)
    with without_collector():
        message = Message()
        gone = threading.Event()
        weakref.finalize(message, gone.set)
        send(ref, message)
        del message
        assert gone.wait(WAIT)


def test_a_fault_that_nobody_keeps_keeps_nothing_alive(runtime):
    class Message:
        pass

    class Failing(RuntimeActor):
        def on_receive(self, message):
            raise ValueError

    ref = Failing.spawn(runtime)
    with without_collector():
        message = Message()
        gone = threading.Event()
        weakref.finalize(message, gone.set)
        deliver(ref, message)
        del message
        assert gone.wait(WAIT)


def test_twenty_thousand_children_leave_nothing_behind(runtime):
    class Child(RuntimeActor):
        def on_receive(self, message):
            self.end()
            message()

    def live_and_die(number):
        ended = threading.Semaphore(0)
        for _ in range(number):
            deliver(Child.spawn(runtime), ended.release)
        for _ in range(number):
            assert ended.acquire(timeout=WAIT)

    live_and_die(1000)
    threads = len(threads_named("slotkeeper-"))
    with without_collector():
        tracemalloc.start()
        try:
            live_and_die(1000)
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(20):
                live_and_die(1000)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
    assert grown < 40_000  # two bytes an actor: the dispatcher's own queue
    assert len(threads_named("slotkeeper-")) == threads
    assert pykka.ActorRegistry.get_all() == []


def test_an_idle_actor_is_light():
    runtime = HandRuntime()
    RuntimeActor.spawn(runtime)
    gc.collect()
    tracemalloc.start()
    try:
        refs = [RuntimeActor.spawn(runtime) for _ in range(2000)]
        runtime.dispatcher.run_all()
        weight = tracemalloc.get_traced_memory()[0] / len(refs)
    finally:
        tracemalloc.stop()
    assert weight < 2000
