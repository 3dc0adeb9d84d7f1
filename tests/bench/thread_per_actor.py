"""The same pipeline as one writes it with Pykka's `ThreadingActor`: a thread for registry, every slot, every attempt.

One job per key at a time, first in, first out, on the road that a submission takes here: the registry routes it to its
slot, registers each owner and tells the caller its outcome; an attempt is an actor that reports its beginning and its
end. And nothing else: no policy, retry, timeout, cancellation, limit or event, no reply that is waited for, and an
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


class Register(NamedTuple):
    """Slot -> registry: this job is about to own its slot."""

    job: Job


class Registered(NamedTuple):
    """Registry -> slot: it does."""

    job: Job


class Started(NamedTuple):
    """Worker -> slot: the body is inside."""


class Ended(NamedTuple):
    """Worker -> slot: what the body returned."""

    value: Any


class Finished(NamedTuple):
    """Slot -> registry: the job has its outcome."""

    job: Job
    value: Any


class Registry(ThreadingActor):
    """Routes by key, makes a slot for a key that it has not seen, and knows who owns which."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self._slots: dict[str, ActorRef[Slot]] = {}
        self._owners: dict[str, Job] = {}

    def on_receive(self, message: Job | Register | Finished) -> None:
        match message:
            case Job():
                slot = self._slots.get(message.key)
                if slot is None:
                    slot = self._slots[message.key] = Slot.start(self.actor_ref)
                slot.tell(message)
            case Register(job):
                self._owners[job.key] = job
                self._slots[job.key].tell(Registered(job))
            case Finished(job, value):
                if self._owners.get(job.key) is job:
                    del self._owners[job.key]
                job.outcome.set(value)

    def on_stop(self) -> None:
        for slot in self._slots.values():
            slot.stop()


class Slot(ThreadingActor):
    """Keeps the line of one key, and at most one worker."""

    use_daemon_thread = True

    def __init__(self, registry: ActorRef[Registry]) -> None:
        super().__init__()
        self._registry = registry
        self._waiting: deque[Job] = deque()
        self._owner: Job | None = None
        self._inside = False

    def on_receive(self, message: Job | Registered | Started | Ended) -> None:
        match message:
            case Job():
                self._waiting.append(message)
                if self._owner is None:
                    self._admit_next()
            case Registered(job):
                Worker.start(self.actor_ref, job.body)
            case Started():
                self._inside = True
            case Ended(value):
                assert self._owner is not None
                self._inside = False
                self._registry.tell(Finished(self._owner, value))
                self._owner = None
                if self._waiting:
                    self._admit_next()

    def _admit_next(self) -> None:
        self._owner = self._waiting.popleft()
        self._registry.tell(Register(self._owner))


class Worker(ThreadingActor):
    """One attempt: runs the body, reports, stops."""

    use_daemon_thread = True

    def __init__(self, slot: ActorRef[Slot], body: Callable[[None], Any]) -> None:
        super().__init__()
        self._slot = slot
        self._body = body

    def on_start(self) -> None:
        self._slot.tell(Started())
        self._slot.tell(Ended(self._body(None)))
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
