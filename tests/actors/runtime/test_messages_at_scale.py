from __future__ import annotations

import sys
import threading

import pytest

from actors.runtime import RuntimeActor
from tests.actors.support import call_in_thread

SENDERS = 8
ACTORS = 100
EACH = 1250
"""Messages from each sender to each actor: a million in all."""
AT_MOST = 55.0
"""Seconds for all of it; some two are usual."""


class Counting(RuntimeActor):
    """Looks that each sender's messages arrive once and in order."""

    def __init__(self, runtime, done):
        super().__init__(runtime)
        self.next = [0] * SENDERS
        self.left = SENDERS * EACH
        self.wrong = []
        self.inside = 0
        self.done = done

    def on_receive(self, message):
        self.inside += 1
        sender, number = message
        if self.next[sender] != number or self.inside != 1:
            self.wrong.append((message, self.next[sender], self.inside))
        self.next[sender] = number + 1
        self.left -= 1
        if not self.left:
            self.done.release()
        self.inside -= 1


@pytest.mark.parametrize("dispatchers", [1, 4])
def test_a_million_messages_from_eight_threads_to_a_hundred_actors_arrive_once_and_in_order(make_runtime, dispatchers):
    runtime = make_runtime(dispatchers=dispatchers)
    runtime.start()
    done = threading.Semaphore(0)
    actors = [Counting(runtime, done) for _ in range(ACTORS)]
    for actor in actors:
        actor._start_actor_loop()

    def send(sender):
        puts = [actor.mailbox.put for actor in actors]
        for number in range(EACH):
            message = (sender, number)
            for put in puts:
                put(message)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for join in [call_in_thread(send, sender) for sender in range(SENDERS)]:
            join(AT_MOST)
        for _ in actors:
            assert done.acquire(timeout=AT_MOST), [actor.left for actor in actors]
    finally:
        sys.setswitchinterval(interval)
    runtime.close()
    runtime.join(AT_MOST)
    assert SENDERS * ACTORS * EACH == 1_000_000
    assert [actor.wrong for actor in actors if actor.wrong] == []
    assert [actor.next for actor in actors] == [[EACH] * SENDERS] * ACTORS
    assert [actor.left for actor in actors] == [0] * ACTORS
