from __future__ import annotations

import queue
import sys
import threading
import weakref
from typing import Any

import pytest
from pykka import ActorDeadError, ThreadingFuture

from actors.runtime import Deferred, RuntimeActor
from tests.actors.runtime.support import WAIT, HandRuntime, Pause, without_collector
from tests.actors.support import call_in_thread


class Promising(RuntimeActor):
    """Promises a reply to everything, and keeps the promises."""

    def __init__(self, runtime, make=Deferred):
        super().__init__(runtime)
        self.make = make
        self.promises: queue.SimpleQueue[Deferred] = queue.SimpleQueue()

    def on_receive(self, message):
        if message == "end":
            self.end()
            return None
        deferred = self.make()
        self.promises.put(deferred)
        return deferred

    def next_promise(self):
        return self.promises.get(timeout=WAIT)


@pytest.fixture
def promising(runtime):
    actor = Promising(runtime)
    actor._start_actor_loop()
    yield actor
    actor.end()


def forget(deferred):
    pass


def new_future() -> ThreadingFuture[Any]:
    return ThreadingFuture()


# -- the reply -------------------------------------------------------------------------------------------------------


def test_the_asker_gets_what_is_set_later(promising):
    future = promising.actor_ref.ask("question", block=False)
    deferred = promising.next_promise()
    assert not deferred.done
    deferred.set("answer")
    assert deferred.done
    assert future.get(timeout=WAIT) == "answer"


def test_the_asker_gets_the_error_with_which_it_fails(promising):
    future = promising.actor_ref.ask("question", block=False)
    error = LookupError("no answer")
    promising.next_promise().fail(error)
    with pytest.raises(LookupError) as raised:
        future.get(timeout=WAIT)
    assert raised.value is error


def test_the_actor_goes_on_while_a_promise_is_open(promising):
    first = promising.actor_ref.ask("first", block=False)
    second = promising.actor_ref.ask("second", block=False)
    of_first, of_second = promising.next_promise(), promising.next_promise()
    of_second.set(2)
    assert second.get(timeout=WAIT) == 2
    of_first.set(1)
    assert first.get(timeout=WAIT) == 1


def test_it_may_be_set_before_it_is_promised(runtime):
    def made_good():
        deferred = Deferred()
        deferred.set("early")
        return deferred

    ref = Promising.spawn(runtime, made_good)
    assert ref.ask("question", timeout=WAIT) == "early"


def test_a_promise_to_nobody_is_no_promise(promising):
    promising.actor_ref.tell("not a question")
    deferred = promising.next_promise()
    deferred.set("unheard")
    assert deferred.done


# -- once ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [False, True], ids=["before-it-is-promised", "afterwards"])
@pytest.mark.parametrize("again", [lambda it: it.set(2), lambda it: it.fail(ValueError())], ids=["set", "fail"])
def test_to_set_it_again_does_nothing(bound, again):
    deferred, future = Deferred(), new_future()
    if bound:
        deferred.bind(future, forget)
    deferred.set(1)
    again(deferred)
    if not bound:
        deferred.bind(future, forget)
    again(deferred)
    assert future.get(timeout=WAIT) == 1


def test_a_reply_that_somebody_else_gave_stays():
    deferred, future = Deferred(), new_future()
    deferred.bind(future, forget)
    future.set("the other one")
    deferred.set("mine")
    assert future.get(timeout=WAIT) == "the other one"


def test_two_threads_that_set_it_at_once_give_one_reply_and_no_error():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            deferred, future, barrier = Deferred(), new_future(), threading.Barrier(3)

            def settle(value, deferred=deferred, barrier=barrier):
                barrier.wait(WAIT)
                deferred.set(value)

            joins = [call_in_thread(settle, value) for value in ("one", "other")]
            barrier.wait(WAIT)
            deferred.bind(future, forget)
            for join in joins:
                join(WAIT)
            reply = future.get(timeout=WAIT)
            assert reply in ("one", "other")
            assert future.get(timeout=WAIT) is reply
    finally:
        sys.setswitchinterval(interval)


def test_two_threads_that_have_both_found_it_open_give_one_reply_and_no_error():
    class Slow(ThreadingFuture[Any]):
        """Lets the second thread come in while the first one sets it."""

        def set(self, value=None):
            pause()
            super().set(value)

    pause = Pause()
    deferred, future = Deferred(), Slow()
    deferred.bind(future, forget)
    first = call_in_thread(deferred.set, "one")
    assert pause.reached.wait(WAIT)
    deferred._outcome = None  # what the second thread saw
    second = call_in_thread(deferred.set, "other")
    pause.let_go()
    first(WAIT)
    second(WAIT)
    assert future.get(timeout=WAIT) in ("one", "other")


# -- the end of the actor --------------------------------------------------------------------------------------------


def test_an_actor_that_stops_answers_its_open_promises(promising):
    futures = [promising.actor_ref.ask(number, block=False) for number in range(3)]
    first, *_ = [promising.next_promise() for _ in futures]
    first.set("in time")
    promising.actor_ref.tell("end")
    assert futures[0].get(timeout=WAIT) == "in time"
    for future in futures[1:]:
        with pytest.raises(ActorDeadError, match="Promising stopped before it replied"):
            future.get(timeout=WAIT)


def test_what_is_set_after_its_actor_has_stopped_is_set_in_vain(promising):
    future = promising.actor_ref.ask("question", block=False)
    deferred = promising.next_promise()
    promising.actor_ref.tell("end")
    with pytest.raises(ActorDeadError):
        future.get(timeout=WAIT)
    deferred.set("late")
    with pytest.raises(ActorDeadError):
        future.get(timeout=WAIT)


def test_a_promise_that_is_set_while_its_actor_stops_keeps_none_open():
    """Another thread has set one of two and is about to have it forgotten while the actor gives up the other one."""

    class Promises(dict[Deferred, None]):
        def pop(self, *args):
            forgetting()
            return super().pop(*args)

    class Answered(ThreadingFuture[Any]):
        def set_exception(self, exc_info=None):
            forgetting.let_go()
            join(WAIT)
            super().set_exception(exc_info)

    runtime = HandRuntime()
    forgetting = Pause()
    actor = Promising(runtime)
    given_up, answered = Deferred(), Deferred()
    given_up.bind(Answered(), actor._forget)
    answered.bind(ThreadingFuture(), actor._forget)
    actor._promised = Promises({given_up: None, answered: None})
    join = call_in_thread(answered.set, "in time")
    assert forgetting.reached.wait(WAIT)
    actor.end()
    assert given_up.done
    assert not actor.actor_ref.is_alive()


# -- what is kept alive ----------------------------------------------------------------------------------------------


def test_an_actor_forgets_a_promise_that_was_kept(promising):
    future = promising.actor_ref.ask("question", block=False)
    promising.next_promise().set("answer")
    assert future.get(timeout=WAIT) == "answer"
    promising.actor_ref.ask("another", block=False)
    promising.next_promise()
    assert len(promising._promised) == 1


def test_an_actor_forgets_a_promise_that_is_kept_at_the_moment_at_which_it_is_made():
    class Crossing(Deferred):
        """Another thread sets it as soon as it can see the future."""

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "_future" and value is not None:
                self.set("early")

    forgotten: list[Deferred] = []
    deferred, future = Crossing(), new_future()
    deferred.bind(future, forgotten.append)
    assert future.get(timeout=WAIT) == "early"
    assert forgotten == [deferred]


def test_a_promise_that_was_kept_keeps_neither_the_asker_nor_the_actor_alive():
    class Actor:
        def forget(self, deferred):
            pass

    with without_collector():
        deferred, future, actor = Deferred(), new_future(), Actor()
        future_left, actor_left = weakref.ref(future), weakref.ref(actor)
        deferred.bind(future, actor.forget)
        deferred.set("answer")
        del future, actor
        assert (future_left(), actor_left()) == (None, None)
