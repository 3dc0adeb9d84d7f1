from __future__ import annotations

import queue
import signal
import sys
import threading
import weakref
from collections import Counter
from typing import Any, cast

import pytest
from pykka import ActorDeadError, ThreadingFuture
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from actors.runtime import Dispatcher, Mailbox
from tests.actors.runtime.support import (
    ESCAPING,
    WAIT,
    HandDispatcher,
    Hostile,
    Letter,
    Pause,
    drained,
    without_collector,
)
from tests.actors.support import call_in_thread


class Taker:
    """An owner that takes what there is, and counts its turns."""

    def __init__(self):
        self.got = []
        self.turns = 0

    def run_turn(self, items, throughput):
        self.turns += 1
        while throughput and not items.empty():
            throughput -= 1
            self.got.append(items.get_nowait())


@pytest.fixture
def hand():
    return HandDispatcher()


@pytest.fixture
def owner():
    return Taker()


@pytest.fixture
def mailbox(owner, hand):
    mailbox = Mailbox()
    mailbox.attach(owner, hand)
    hand.run_all()
    owner.turns = 0
    return mailbox


# -- turns -----------------------------------------------------------------------------------------------------------


def test_items_are_handled_in_order_of_arrival(mailbox, owner, hand):
    for item in "abc":
        mailbox.put(item)
    hand.run_all()
    assert owner.got == ["a", "b", "c"]


def test_items_that_arrive_together_cost_one_turn(mailbox, owner, hand):
    for item in "abc":
        mailbox.put(item)
    assert len(hand.ready) == 1
    hand.run_all()
    assert owner.turns == 1


def test_the_owner_has_a_first_turn_even_if_nothing_arrives(owner, hand):
    Mailbox().attach(owner, hand)
    hand.run_all()
    assert owner.turns == 1


def test_what_arrives_before_the_owner_is_handled_by_its_first_turn(owner, hand):
    mailbox = Mailbox()
    mailbox.put("early")
    mailbox.attach(owner, hand)
    hand.run_all()
    assert owner.got == ["early"]


def test_a_turn_handles_no_more_than_its_throughput_and_the_rest_is_scheduled_again(mailbox, owner, hand):
    for item in range(5):
        mailbox.put(item)
    hand.run_next(throughput=2)
    assert owner.got == [0, 1]
    hand.run_all(throughput=2)
    assert owner.got == [0, 1, 2, 3, 4]
    assert owner.turns == 3


def test_what_arrives_during_a_turn_is_handled(mailbox, owner, hand):
    class Sender(Taker):
        def run_turn(self, items, throughput):
            super().run_turn(items, throughput)
            if self.got == ["a"]:
                mailbox.put("b")  # after the last look of this turn

    sender = Sender()
    mailbox.attach(sender, hand)
    mailbox.put("a")
    hand.run_all()
    assert sender.got == ["a", "b"]


@pytest.mark.parametrize("error", ESCAPING, ids=repr)
def test_a_turn_that_raises_leaves_the_next_items_to_the_next_turn(hand, error):
    class Raising(Taker):
        def run_turn(self, items, throughput):
            super().run_turn(items, 1)
            if self.got[-1:] == ["bad"]:
                raise error

    owner = Raising()
    mailbox = Mailbox()
    mailbox.attach(owner, hand)
    mailbox.put("bad")
    mailbox.put("good")
    with pytest.raises(type(error)):
        hand.run_next()
    hand.run_all()
    assert owner.got == ["bad", "good"]


def test_turns_never_overlap_even_if_scheduled_twice(hand):
    inside = Pause()

    class Slow(Taker):
        def run_turn(self, items, throughput):
            super().run_turn(items, throughput)
            if self.got:
                inside()

    owner = Slow()
    mailbox = Mailbox()
    mailbox.attach(owner, hand)
    hand.run_all()
    mailbox.put("a")
    join = call_in_thread(hand.run_next)
    assert inside.reached.wait(WAIT)
    turns = owner.turns
    mailbox.put("b")
    mailbox.run(64)  # another thread of the dispatcher: turned away
    assert owner.turns == turns
    inside.let_go()
    join()
    hand.run_all()
    assert owner.got == ["a", "b"]


class WatchedLock:
    """A lock that calls a function just before it is released by a thread of this name."""

    def __init__(self, name, function):
        self._lock = threading.Lock()
        self._name = name
        self._function = function

    def acquire(self, blocking):
        return self._lock.acquire(blocking)

    def release(self):
        if threading.current_thread().name == self._name:
            self._function()
        self._lock.release()


class WatchedItems(queue.SimpleQueue[Any]):
    """A queue that calls a function when a thread of this name has looked at it and found something."""

    def __init__(self, name, function):
        super().__init__()
        self._name = name
        self._function = function

    def empty(self):
        empty = super().empty()
        if threading.current_thread().name == self._name and not empty:
            self._function()
        return empty


def test_a_turn_that_is_turned_away_by_one_about_to_end_costs_no_wake_up(hand):
    """One turn is about to schedule what it left behind; a second takes all and is about to end; the first goes on, and
    what it scheduled is turned away by the second. Whoever puts then must not take the mailbox for scheduled."""
    leaving, ending = Pause(), Pause()

    class Lazy(Taker):
        def run_turn(self, items, throughput):
            if threading.current_thread().name != "first":
                super().run_turn(items, throughput)

    owner = Lazy()
    mailbox = Mailbox()
    mailbox._turn = cast("Any", WatchedLock("second", ending))
    mailbox._items = WatchedItems("first", leaving)
    mailbox.attach(owner, hand)
    hand.run_all()

    mailbox.put("x")
    first = threading.Thread(target=hand.run_next, name="first")
    first.start()
    assert leaving.reached.wait(WAIT)
    mailbox.put("y")
    second = threading.Thread(target=hand.run_next, name="second")
    second.start()
    assert ending.reached.wait(WAIT)
    leaving.let_go()
    first.join(WAIT)
    hand.run_next()
    ending.let_go()
    second.join(WAIT)
    hand.run_all()
    mailbox.put("z")
    hand.run_all()
    assert owner.got == ["x", "y", "z"]


def test_no_wake_up_is_lost_between_many_senders_and_many_threads():
    """Each item is put when the one before has been handled, so each is a wake-up of its own."""
    dispatcher = Dispatcher("test-mailbox", threads=3)
    dispatcher.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    class Waker(Taker):
        def run_turn(self, items, throughput):
            super().run_turn(items, throughput)
            for event in drained_events(self.got):
                event.set()

    def drained_events(got):
        while got:
            yield got.pop()

    def send_one_by_one():
        for _ in range(1500):
            event = threading.Event()
            mailbox.put(event)
            assert event.wait(WAIT)

    try:
        mailbox = Mailbox()
        mailbox.attach(Waker(), dispatcher)
        for join in [call_in_thread(send_one_by_one) for _ in range(3)]:
            join(30)
    finally:
        sys.setswitchinterval(interval)
        dispatcher.close()
        dispatcher.join(WAIT)


# -- an interrupted put ----------------------------------------------------------------------------------------------


class Interrupting(HandDispatcher):
    """Ctrl-C arrives while a mailbox is being scheduled: before it is, or after."""

    def __init__(self, *, after):
        super().__init__()
        self.after = after
        self.armed = False

    def schedule(self, runnable):
        armed, self.armed = self.armed, False
        if armed and not self.after:
            raise KeyboardInterrupt
        super().schedule(runnable)
        if armed:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True], ids=["before-it-is-scheduled", "after-it-was"])
def test_a_put_that_is_interrupted_leaves_a_mailbox_that_still_works(owner, after):
    hand: Any = Interrupting(after=after)
    mailbox = Mailbox()
    mailbox.attach(owner, hand)
    hand.run_all()
    hand.armed = True
    with pytest.raises(KeyboardInterrupt):
        mailbox.put("interrupted")
    mailbox.put("next")
    hand.run_all()
    assert owner.got == ["interrupted", "next"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an interval timer")
def test_signal_handlers_that_raise_at_any_instruction_of_put_leave_a_mailbox_that_still_works():
    class Interrupt(Exception):  # noqa: N818
        pass

    class Waker:
        def run_turn(self, items, throughput):
            for item in drained(items):
                if item is not None:
                    item.set()

    armed = False

    def interrupt(signum, frame):
        if armed:
            raise Interrupt

    dispatcher = Dispatcher("test-mailbox")
    dispatcher.start()
    before = signal.signal(signal.SIGALRM, interrupt)
    mailbox = Mailbox()
    mailbox.attach(Waker(), dispatcher)
    try:
        for number in range(1500):
            armed = True
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + number % 100 * 1e-6)
                while True:
                    mailbox.put(None)
                    dispatcher._ready.empty()
            except Interrupt:
                armed = False
            alive = threading.Event()
            mailbox.put(alive)
            assert alive.wait(WAIT), "no turn of this mailbox will ever run again"
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        dispatcher.close()
        dispatcher.join(WAIT)


# -- dead letters ----------------------------------------------------------------------------------------------------


def asked(message):
    future: ThreadingFuture[Any] = ThreadingFuture()
    return future, Envelope(message, reply_to=future)


def test_what_is_left_at_the_close_is_answered_and_given_back_once(mailbox, owner, hand):
    letter, asked_letter = Letter(), Letter()
    question, question_envelope = asked("anybody there?")
    reply, asked_envelope = asked(asked_letter)
    for item in (letter, question_envelope, asked_envelope, "no more than a word", Envelope("the same, told")):
        mailbox.put(item)
    mailbox.close()
    for future in (question, reply):
        with pytest.raises(ActorDeadError):
            future.get(timeout=WAIT)
    hand.run_all()
    mailbox.close()
    assert owner.got == []
    assert (letter.returned, asked_letter.returned) == (1, 1)


def test_what_arrives_after_the_close_is_answered_and_given_back_at_once(mailbox, hand):
    letter = Letter()
    question, envelope = asked("anybody there?")
    mailbox.close()
    mailbox.put(letter)
    mailbox.put(envelope)
    with pytest.raises(ActorDeadError):
        question.get(timeout=WAIT)
    assert letter.returned == 1
    assert mailbox.empty()
    assert hand.ready == []


def test_a_stop_that_finds_its_actor_stopped_is_answered_as_done(mailbox):
    future, envelope = asked(_ActorStop())
    mailbox.put(envelope)
    mailbox.close()
    assert future.get(timeout=WAIT) is None


def test_a_dead_letter_that_was_answered_by_somebody_else_is_left_alone(mailbox):
    future, envelope = asked("anybody there?")
    future.set("the other one")
    mailbox.close()
    mailbox.put(envelope)
    assert future.get(timeout=WAIT) == "the other one"


@pytest.mark.parametrize("error", ESCAPING, ids=repr)
def test_a_letter_that_can_not_be_given_back_keeps_no_other_from_its_answer(mailbox, error):
    class Broken(Letter):
        def undelivered(self):
            super().undelivered()
            raise error

    broken, letter = Broken(), Letter()
    question, envelope = asked("anybody there?")
    for item in (broken, envelope, letter):
        mailbox.put(item)
    mailbox.close()
    with pytest.raises(ActorDeadError):
        question.get(timeout=WAIT)
    assert (broken.returned, letter.returned) == (1, 1)
    mailbox.put(Broken())  # raises nothing either


def test_who_asks_with_an_object_that_hides_its_class_gets_an_answer(mailbox):
    question, envelope = asked(Hostile())
    mailbox.close()
    mailbox.put(envelope)
    with pytest.raises(ActorDeadError):
        question.get(timeout=WAIT)


def test_a_put_that_crosses_the_close_is_given_back(mailbox):
    """The mailbox is closed, and drained, between the two halves of `put`: nobody else will ever look again."""

    class Closing(queue.SimpleQueue[Any]):
        def put(self, item, block=True, timeout=None):  # noqa: FBT002
            mailbox.close()
            super().put(item)

    letter = Letter()
    mailbox._items = Closing()
    mailbox.put(letter)
    assert letter.returned == 1


def test_a_close_in_the_middle_of_a_turn_gives_back_what_the_turn_does_not_take(mailbox, hand):
    class Closing(Taker):
        def run_turn(self, items, throughput):
            super().run_turn(items, 1)
            mailbox.closed = True  # closed, and drained, before the next one arrives
            items.put(letter)

    letter = Letter()
    mailbox.attach(Closing(), hand)
    mailbox.put("a")
    hand.run_all()
    assert letter.returned == 1


def test_each_letter_is_handled_or_given_back_exactly_once_wherever_the_close_falls():
    def send(barrier, mailbox, letters):
        barrier.wait(WAIT)
        for letter in letters:
            mailbox.put(letter)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(60):
            dispatcher = Dispatcher("test-mailbox", threads=2)
            dispatcher.start()
            owner, mailbox, barrier = Taker(), Mailbox(), threading.Barrier(5)
            mailbox.attach(owner, dispatcher)
            letters = [[Letter() for _ in range(40)] for _ in range(4)]
            joins = [call_in_thread(send, barrier, mailbox, own) for own in letters]
            barrier.wait(WAIT)
            mailbox.close()
            for join in joins:
                join(WAIT)
            dispatcher.close()
            dispatcher.join(WAIT)
            handled = Counter(map(id, owner.got))
            assert {letter.returned + handled[id(letter)] for own in letters for letter in own} == {1}
    finally:
        sys.setswitchinterval(interval)


# -- what is kept alive ----------------------------------------------------------------------------------------------


def test_a_closed_mailbox_lets_go_of_its_owner(hand):
    with without_collector():
        owner = Taker()
        gone = weakref.ref(owner)
        mailbox = Mailbox()
        mailbox.attach(owner, hand)
        hand.run_all()
        mailbox.close()
        del owner
        assert gone() is None
        assert mailbox.owner is None


def test_a_mailbox_is_an_inbox_of_pykka():
    mailbox = Mailbox()
    assert mailbox.empty()
    mailbox.put("a")
    assert not mailbox.empty()
    assert mailbox.get() == "a"
    with pytest.raises(queue.Empty):
        mailbox.get()
