from __future__ import annotations

import contextvars
import logging
import statistics
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pykka
import pytest
from pykka import ActorDeadError

from actors.runtime import DispatchedActor, DispatchedRef, deliver
from actors.runtime.application import ApplicationDispatcher
from tests.actors.runtime.support import (
    WAIT,
    Bystander,
    Letter,
    Pause,
    Unprintable,
    failing_thread_starts,
    without_collector,
)
from tests.actors.support import eventually

pytestmark = pytest.mark.usefixtures("empty_registry")

STOPS_ALL = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("x"), Unprintable()]


class Actor(DispatchedActor):
    """Answers what it is asked; raises or waits when told to; notes which of its hooks were called."""

    def __init__(self, **hooks):
        super().__init__()
        self.hooks = hooks
        self.called = []
        self.got = []

    def _call(self, name):
        self.called.append(name)
        self.hooks.get(name, lambda: None)()

    def on_start(self):
        self._call("on_start")

    def on_stop(self):
        self._call("on_stop")

    def on_failure(self, *exc_info):
        self._call("on_failure")

    def on_receive(self, message):
        self.got.append(message)
        if isinstance(message, BaseException):
            raise message
        return message() if callable(message) else message


def raising(error):
    def function():
        raise error

    return function


@pytest.fixture
def start():
    """Starts actors and gives them with their refs."""
    refs = []

    def start(actor_class=Actor, **hooks):
        refs.append(actor_class.start(**hooks))
        return refs[-1], refs[-1]._actor_weakref()

    yield start
    for ref in refs:
        ref.stop(timeout=WAIT)


@pytest.fixture
def fresh_dispatcher(monkeypatch):
    """The application's dispatcher as it is before its first use."""
    with monkeypatch.context() as patch:
        patch.setattr(ApplicationDispatcher, "_current", None)
        yield
        if ApplicationDispatcher._current is not None:
            made = ApplicationDispatcher._current
            made.close()
            made.join(WAIT)
            made._timers.close()
            made._timers.join(WAIT)


def is_dead(ref):
    """An actor that has failed is dead a moment later."""
    return eventually(lambda: not ref.is_alive() and ref.actor_inbox.closed, WAIT)


# -- as everywhere in Pykka ------------------------------------------------------------------------------------------


def test_messages_are_handled_in_order_by_one_thread_at_a_time(start):
    ref, actor = start()
    for number in range(1000):
        ref.tell(number)
    deliver(ref, "delivered")
    assert ref.ask("asked", timeout=WAIT) == "asked"
    assert actor.got == [*range(1000), "delivered", "asked"]
    assert actor.called == ["on_start"]


def test_a_told_message_whose_handler_raises_ends_the_actor(start):
    ref, actor = start()
    ref.tell(ValueError())
    assert is_dead(ref)
    assert actor.called == ["on_start", "on_failure"]
    assert pykka.ActorRegistry.get_all() == []
    with pytest.raises(ActorDeadError):
        ref.tell("anybody there?")


def test_an_asked_message_whose_handler_raises_costs_that_message(start):
    ref, _ = start()
    error = LookupError()
    with pytest.raises(LookupError) as raised:
        ref.ask(error, timeout=WAIT)
    assert raised.value is error
    assert ref.ask("still there?", timeout=WAIT) == "still there?"


@pytest.mark.parametrize("hook", ["on_start", "on_stop"])
def test_a_hook_that_raises_ends_the_actor_only(start, hook):
    bystander, _ = start()
    ref, _ = start(**{hook: raising(ValueError())})
    ref.stop(timeout=WAIT)
    assert is_dead(ref)
    assert bystander.ask("still there?", timeout=WAIT) == "still there?"


def test_what_waits_when_an_actor_fails_is_answered_and_given_back(start):
    ref, actor = start()
    pause, letter = Pause(), Letter()
    ref.tell(pause)
    assert pause.reached.wait(WAIT)
    ref.tell(ValueError())
    question = ref.ask("question", block=False)
    ref.tell(letter)
    stop = ref.stop(block=False)
    pause.let_go()
    with pytest.raises(ActorDeadError):
        question.get(timeout=WAIT)
    assert stop.get(timeout=WAIT) is True
    assert letter.returned == 1
    assert "question" not in actor.got


@pytest.mark.parametrize("asks", [False, True], ids=["told", "asked"])
def test_what_is_put_between_the_look_whether_an_actor_lives_and_its_end_is_given_back(start, asks):
    """Pykka looks first and puts then; there `ask` waits for ever."""
    ref, actor = start()
    letter = Letter()

    class StopsAfterTheLook(DispatchedRef[Any]):
        def is_alive(self):
            alive = super().is_alive()
            if alive:
                ref.stop(timeout=WAIT)
                assert is_dead(ref)
            return alive

    late = StopsAfterTheLook(actor)
    if asks:
        with pytest.raises(ActorDeadError):
            late.ask(letter, timeout=WAIT)
    else:
        late.tell(letter)
    assert letter.returned == 1


def test_a_reply_that_somebody_else_gave_is_no_failure(start, caplog):
    """A second `set` on Pykka's future raises."""
    caplog.set_level(logging.INFO, "pykka")
    ref, actor = start()
    pause = Pause()
    ref.tell(pause)
    asked, failing = ref.ask("question", block=False), ref.ask(ValueError("mine"), block=False)
    for future in (asked, failing):
        future.set("the other one")
    pause.let_go()
    assert ref.ask("still there?", timeout=WAIT) == "still there?"
    assert asked.get(timeout=WAIT) == failing.get(timeout=WAIT) == "the other one"
    assert actor.called == ["on_start"]
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["mine"]


# -- what is no `Exception` ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", STOPS_ALL, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("asks", [False, True], ids=["told", "asked"])
def test_what_is_no_exception_stops_every_actor_and_answers_the_asker(start, error, asks):
    bystanders = [start()[0], Bystander.start()]
    ref, actor = start()
    if asks:
        with pytest.raises(type(error)) as raised:
            ref.ask(error, timeout=WAIT)
        assert raised.value is error
    else:
        ref.tell(error)
    assert is_dead(ref)
    assert eventually(lambda: not any(each.is_alive() for each in bystanders), WAIT)
    assert actor.called == ["on_start", "on_stop"]
    assert start()[0].ask("the next one?", timeout=WAIT) == "the next one?"


@pytest.mark.usefixtures("fresh_dispatcher")
def test_the_thread_on_which_all_are_stopped_is_no_thread_that_they_need(start):
    """An actor that is to be stopped waits for the one that stops all; both end."""
    ref, _ = start()
    pause = Pause()
    waiting, _ = start(on_stop=lambda: ref.stop(timeout=WAIT))
    waiting.tell(pause)
    assert pause.reached.wait(WAIT)
    ref.tell(SystemExit())
    assert is_dead(ref)
    pause.let_go()
    assert is_dead(waiting)


@pytest.mark.parametrize("hook", ["on_start", "on_failure"])
@pytest.mark.parametrize("error", STOPS_ALL, ids=lambda error: type(error).__name__)
def test_a_hook_that_raises_what_is_no_exception_ends_the_actor_and_answers_who_waits(start, hook, error):
    """It ends Pykka's thread, and leaves an actor that is alive as long as nobody asks."""
    bystander, _ = start()
    pause = Pause()
    ref, _ = start(**{hook: lambda: (pause(), raising(error)())})
    if hook == "on_failure":
        ref.tell(ValueError())
    assert pause.reached.wait(WAIT)
    question = ref.ask("question", block=False) if ref.is_alive() else None
    pause.let_go()
    assert is_dead(ref)
    if question is not None:
        with pytest.raises(ActorDeadError):
            question.get(timeout=WAIT)
    assert pykka.ActorRegistry.get_all() == [bystander]
    assert bystander.ask("still there?", timeout=WAIT) == "still there?"


@pytest.mark.parametrize("error", STOPS_ALL, ids=lambda error: type(error).__name__)
def test_an_on_stop_that_raises_what_is_no_exception_stops_every_actor(start, error):
    bystander, _ = start()
    ref, _ = start(on_stop=raising(error))
    with pytest.raises(type(error)):
        ref.stop(timeout=WAIT)
    assert is_dead(ref)
    assert is_dead(bystander)


# -- logging ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("raising_log_filter")
class TestALogFilterThatRaises:
    """Pykka logs on every one of these paths, and trusts its log to return."""

    def test_keeps_no_actor_from_starting_and_stopping(self, start):
        ref, actor = start()
        assert pykka.ActorRegistry.get_all() == [ref]
        assert ref.ask("there?", timeout=WAIT) == "there?"
        assert ref.stop(timeout=WAIT) is True
        assert is_dead(ref)
        assert actor.called == ["on_start", "on_stop"]
        assert pykka.ActorRegistry.get_all() == []

    def test_keeps_no_failing_actor_alive(self, start):
        ref, actor = start()
        ref.tell(ValueError())
        assert is_dead(ref)
        assert actor.called == ["on_start", "on_failure"]
        assert pykka.ActorRegistry.get_all() == []
        assert start()[0].ask("the next one?", timeout=WAIT) == "the next one?"

    def test_keeps_no_asker_from_the_error(self, start):
        ref, _ = start()
        error = LookupError()
        with pytest.raises(LookupError) as raised:
            ref.ask(error, timeout=WAIT)
        assert raised.value is error
        assert ref.ask("still there?", timeout=WAIT) == "still there?"

    def test_keeps_no_actor_alive_that_could_not_be_set_up(self, start):
        ref, _ = start(on_start=raising(ValueError()))
        assert is_dead(ref)
        assert pykka.ActorRegistry.get_all() == []

    def test_keeps_nobody_from_stopping_all(self, start):
        bystander, _ = start()
        ref, _ = start()
        with pytest.raises(SystemExit):
            ref.ask(SystemExit(), timeout=WAIT)
        assert is_dead(ref)
        assert is_dead(bystander)


def test_an_actor_without_a_text_can_be_used_like_any_other(start):
    class Textless(Actor):
        def __str__(self):
            raise RuntimeError

    ref, actor = start(Textless)
    with pytest.raises(LookupError):
        ref.ask(LookupError(), timeout=WAIT)
    ref.tell(ValueError())
    assert is_dead(ref)
    assert actor.called == ["on_start", "on_failure"]


# -- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh_dispatcher")
def test_a_start_without_a_thread_leaves_nothing_registered_and_nobody_waiting(start, monkeypatch):
    """Pykka leaves a registered actor behind for which `ask` and `stop_all` wait for ever."""
    futures = []

    class Eager(Actor):
        def __init__(self):
            super().__init__()
            futures.append(self.actor_ref.ask("early", block=False))

    with (
        failing_thread_starts(monkeypatch, "slotkeeper-application", lambda n: n == 1),
        pytest.raises(RuntimeError, match="can't start new thread"),
    ):
        Eager.start()
    assert pykka.ActorRegistry.get_all() == []
    with pytest.raises(ActorDeadError):
        futures[0].get(timeout=WAIT)
    assert pykka.ActorRegistry.stop_all(timeout=WAIT) == []
    assert start()[0].ask("the next one?", timeout=WAIT) == "the next one?"


@pytest.mark.usefixtures("fresh_dispatcher")
def test_while_no_thread_can_be_started_an_ask_times_out_and_afterwards_all_is_handled(start, monkeypatch):
    def no_turns(n):
        return n > 1  # the first is the timers'

    with failing_thread_starts(monkeypatch, "slotkeeper-application", no_turns):
        ref, actor = start()
        with pytest.raises(pykka.Timeout):
            ref.ask("first", timeout=0.05)
        assert "can't start" in str(ApplicationDispatcher.get().start_failure)
    assert ref.ask("second", timeout=WAIT) == "second"
    assert actor.got == ["first", "second"]
    assert eventually(lambda: ApplicationDispatcher.get().start_failure is None)


def test_a_handler_that_blocks_holds_up_the_other_actors_for_milliseconds_only(start):
    """Also one that waits for the reply of another actor."""
    late = []
    pauses = []
    try:
        for _ in range(9):
            pause = Pause()
            pauses.append(pause)
            blocked, _ = start()
            asked, _ = start()
            blocked.tell(lambda asked=asked, pause=pause: asked.ask(pause, timeout=WAIT))
            assert pause.reached.wait(WAIT)
            other, _ = start()
            since = time.monotonic()
            assert other.ask("there?", timeout=WAIT) == "there?"
            late.append(time.monotonic() - since)
    finally:
        for pause in pauses:
            pause.let_go()
    assert statistics.median(late) < 0.05


def test_actors_that_wait_for_one_another_in_a_long_row_all_answer(start):
    refs = [start()[0] for _ in range(30)]

    def ask_next(place):
        return place if place == len(refs) else refs[place].ask(lambda: ask_next(place + 1), timeout=WAIT)

    assert ask_next(0) == 30


@pytest.mark.usefixtures("fresh_dispatcher")
def test_an_actor_handles_no_more_than_its_throughput_before_the_others(start):
    order = []
    pause = Pause()

    class Greedy(Actor):
        throughput = 2

    first, _ = start(Greedy)
    second, _ = start(Greedy)
    first.tell(pause)
    assert pause.reached.wait(WAIT)
    with ApplicationDispatcher.get()._guard:  # one thread for all
        for number in range(4):
            first.tell(lambda number=number: order.append(("first", number)))
        second.tell(lambda: order.append(("second", 0)))
        pause.let_go()
        second.ask("over?", timeout=WAIT)
        first.ask("over?", timeout=WAIT)
    assert order.index(("second", 0)) < order.index(("first", 3))


@pytest.mark.parametrize("throughput", [0, -1])
def test_a_throughput_of_nothing_is_one_message_a_turn(start, throughput):
    class Idle(Actor):
        pass

    Idle.throughput = throughput
    assert start(Idle)[0].ask("there?", timeout=WAIT) == "there?"


def test_any_name_that_is_not_pykka_s_is_free_for_the_application(start):
    class Game(Actor):
        def __init__(self):
            super().__init__()
            self._context = self._log = self._mailbox = self._loop = self._set_up = "mine"

        def run_turn(self, items=None, throughput=None):
            return "my turn"

    ref, _ = start(Game)
    assert ref.proxy().run_turn().get(timeout=WAIT) == "my turn"


@pytest.mark.usefixtures("fresh_dispatcher")
def test_what_one_message_binds_the_next_one_sees_and_no_other_actor(start):
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("of the one who started them")
    ref, _ = start()
    other, _ = start()
    assert ref.ask(variable.get, timeout=WAIT) == "default"
    ref.ask(lambda: variable.set("mine"), timeout=WAIT)
    assert ref.ask(variable.get, timeout=WAIT) == "mine"
    assert other.ask(variable.get, timeout=WAIT) == "default"
    assert variable.get() == "of the one who started them"


def test_an_actor_that_was_not_stopped_does_not_keep_the_interpreter_from_ending():
    script = (
        "from actors.runtime import DispatchedActor as A; A.on_receive = lambda self, it: it; print(A.start().ask(7))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, timeout=30, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")


# -- what is kept alive ----------------------------------------------------------------------------------------------


class Forgetful(DispatchedActor):
    """Keeps nothing; fails when told to."""

    def on_receive(self, message):
        return message() if callable(message) else message


def fail():
    raise ValueError


@pytest.mark.parametrize(
    "end", [lambda ref: ref.stop(timeout=WAIT), lambda ref: ref.tell(fail)], ids=["stops", "fails"]
)
def test_an_actor_that_ends_is_freed_by_reference_counting(caplog, end):
    caplog.set_level(logging.CRITICAL, "pykka")  # or the record would keep it
    with without_collector():
        ref = Forgetful.start()
        gone = threading.Event()
        weakref.finalize(ref._actor_weakref(), gone.set)
        ref.tell("a word")
        assert ref.ask("a question", timeout=WAIT) == "a question"
        end(ref)
        assert gone.wait(WAIT)


def test_an_idle_actor_keeps_nothing_alive_of_its_last_message(start):
    class Message:
        pass

    ref, _ = start(Forgetful)
    with without_collector():
        message = Message()
        gone = threading.Event()
        weakref.finalize(message, gone.set)
        ref.tell(message)
        del message
        assert gone.wait(WAIT)
