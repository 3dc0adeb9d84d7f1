"""The pipeline as one writes it with Pykka's `ThreadingActor`: a thread for the registry, every slot and every attempt.

One job per key at a time, first in, first out, and nothing else: no policy, retry, timeout, cancellation or events. It
is there to be compared with, so it does nothing that it could leave: no reply is waited for while it works, and an
attempt is told what to do by its constructor.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pykka import ActorRegistry, ThreadingActor, ThreadingFuture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykka import ActorRef

__all__ = ["Pipeline", "opened"]


class Job(NamedTuple):
    """Caller -> registry -> slot: run this under that key."""

    key: str
    body: Callable[[None], Any]
    outcome: ThreadingFuture[Any]


class Done(NamedTuple):
    """Worker -> slot: what the body returned."""

    value: Any


class Registry(ThreadingActor):
    """Routes by key; makes a slot for a key that it has not seen."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self._slots: dict[str, ActorRef[Slot]] = {}

    def on_receive(self, message: Job) -> None:
        slot = self._slots.get(message.key)
        if slot is None:
            slot = self._slots[message.key] = Slot.start()
        slot.tell(message)

    def on_stop(self) -> None:
        for slot in self._slots.values():
            slot.stop()


class Slot(ThreadingActor):
    """Keeps the line of one key, and at most one worker."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None

    def on_receive(self, message: Job | Done) -> None:
        if isinstance(message, Job):
            self._waiting.append(message)
        else:
            assert self._running is not None
            self._running.outcome.set(message.value)
            self._running = None
        if self._running is None and self._waiting:
            self._running = self._waiting.popleft()
            Worker.start(self.actor_ref, self._running.body)


class Worker(ThreadingActor):
    """One attempt: runs the body, reports back, stops."""

    use_daemon_thread = True

    def __init__(self, slot: ActorRef[Slot], body: Callable[[None], Any]) -> None:
        super().__init__()
        self._slot = slot
        self._body = body

    def on_start(self) -> None:
        self._slot.tell(Done(self._body(None)))
        self.stop()


class Pipeline:
    """The caller's end of it."""

    def __init__(self, registry: ActorRef[Registry]) -> None:
        self._registry = registry

    def submit(self, body: Callable[[None], Any], key: str) -> ThreadingFuture[Any]:
        outcome: ThreadingFuture[Any] = ThreadingFuture()
        self._registry.tell(Job(key, body, outcome))
        return outcome


@contextmanager
def opened() -> Iterator[Pipeline]:
    """Opens a pipeline, and stops every actor of it at the end."""
    registry = Registry.start()
    try:
        yield Pipeline(registry)
    finally:
        registry.stop()
        for worker in ActorRegistry.get_by_class(Worker):
            worker.stop()
