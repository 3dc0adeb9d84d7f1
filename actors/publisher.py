"""Where everything that happens gets its number, and from where it goes to whoever listens.

Nobody who publishes waits: a record that somebody wants is built and put into that observer's mailbox. One that
nobody wants still takes its number, so that a filtered log shows that something is missing.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from actors.bodies.job import describe
from actors.budget import closed_error
from actors.messages import Flush, Lifecycle
from actors.observers.subscribers import Listener, Subscription, Wanted
from actors.runtime import mailbox_of
from admission.events import Event, EventKind
from admission.outcome import OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from actors.messages import Ticket
    from actors.runtime import Runtime
    from admission.effects import Entry
    from admission.identity import TaskId

__all__ = ["LEVELS", "LogSink", "Publisher", "level_of"]

LEVELS: Final = {
    EventKind.ATTEMPT_FAILED: logging.ERROR,
    EventKind.RUNTIME_FAILURE: logging.ERROR,
    EventKind.SUBSCRIBER_PANICKED: logging.ERROR,
    EventKind.ATTEMPT_TIMED_OUT: logging.WARNING,
    EventKind.GRACE_EXCEEDED: logging.WARNING,
    EventKind.TASK_ADD_FAILED: logging.WARNING,
    EventKind.SUBMISSION_REJECTED: logging.WARNING,
    EventKind.SUBSCRIBER_OVERFLOW: logging.WARNING,
    EventKind.ATTEMPT_SUCCEEDED: logging.INFO,
    EventKind.ATTEMPT_CANCELLED: logging.INFO,
    EventKind.TASK_ADDED: logging.INFO,
    EventKind.TASK_FINISHED: logging.INFO,
    EventKind.TASK_REMOVED: logging.INFO,
    EventKind.SHUTDOWN_REQUESTED: logging.INFO,
    EventKind.ALL_STOPPED_WITHIN_GRACE: logging.INFO,
    EventKind.SUBMISSION_ACCEPTED: logging.INFO,
    EventKind.SHUTDOWN_FINISHED: logging.INFO,
    EventKind.ATTEMPT_STARTING: logging.DEBUG,
    EventKind.BACKOFF_SCHEDULED: logging.DEBUG,
    EventKind.TASK_ADD_REQUESTED: logging.DEBUG,
    EventKind.TASK_REMOVE_REQUESTED: logging.DEBUG,
    EventKind.SLOT_TRANSITION: logging.DEBUG,
    EventKind.SLOT_CREATED: logging.DEBUG,
    EventKind.SLOT_RETIRED: logging.DEBUG,
    EventKind.BODY_ENTERED: logging.DEBUG,
    EventKind.BODY_LEFT: logging.DEBUG,
    EventKind.ATTEMPT_RELEASED: logging.DEBUG,
}
"""The log level of each kind; `task_finished` is raised by what it says."""

_FINISHED_LEVELS: Final = {
    OutcomeKind.FATAL: logging.ERROR,
    OutcomeKind.PANICKED: logging.ERROR,
    OutcomeKind.FAILED: logging.WARNING,
    OutcomeKind.FORCE_ABORTED: logging.WARNING,
}


class LogSink:
    """Where records go: a level below which none is built, a function that writes one, and how many it has taken."""

    __slots__ = ("level", "taken", "write")

    def __init__(self, level: int, write: Callable[[int, str, dict[str, Any]], object]) -> None:
        self.level = level
        self.write = write
        self.taken = 0


def level_of(kind: EventKind, fields: dict[str, Any] | None) -> int:
    """Return the log level of a record."""
    if kind is EventKind.TASK_FINISHED and fields is not None:
        return _FINISHED_LEVELS.get(fields["outcome_kind"], logging.INFO)
    return LEVELS[kind]


class Publisher:
    """The numbering of one supervisor, and its observers.

    Args:
        runtime: its clocks stamp the records.
        log: the actor that writes the log, if there is one.
        sink: where it writes to; records below its level are numbered and not built.
        name: what the records call this supervisor; random by default.

    """

    def __init__(
        self, runtime: Runtime, log: ActorRef[Any] | None = None, sink: LogSink | None = None, name: str | None = None
    ) -> None:
        self.faults = 0  # told of so far
        self.untaken = 0  # events that subscribers had not taken by the end
        self.name = name or runtime.new_name()
        self.log = log
        self._runtime = runtime
        self._listeners: tuple[Listener, ...] = ()
        self._sink = sink
        self._sent = 0
        self._clock = runtime.clock
        self._log_level = sink.level if sink is not None else logging.CRITICAL + 1
        self._number = 0
        self._last = 0
        # The number of a record and its places in the observers' queues are taken together. Reentrant: a finalizer of
        # the application that the collector runs under it may unsubscribe.
        self._lock = RLock()
        self._closed = False
        self._quiet = self._log_level > logging.INFO

    def passes_over(self, entry: Entry, records: int = 1, /) -> bool:
        """Number routine records about `entry`, those of level *info* and below, if nobody wants to hear of them."""
        if self._quiet and not entry.followed:
            self._number += records  # no lock: at worst a gap is too small, see `_next_number`
            return True
        return False

    def _next_number(self) -> int:
        """Take a number greater than any before, whoever passes something over meanwhile. With the lock held."""
        self._number = self._last = max(self._number, self._last) + 1
        return self._last

    def publish(
        self,
        kind: EventKind,
        ticket: Ticket | None = None,
        attempt: int | None = None,
        fields: dict[str, Any] | None = None,
        *,
        about: TaskId | None = None,
        slot: str | None = None,
        task: str | None = None,
        announced: bool = True,
        to: tuple[Listener, ...] | None = None,
    ) -> None:
        """Number this and pass it to whoever wants it.

        `announced` is False for what only the log hears of; `to` are the subscribers that hear of it, by default all.
        """
        notify = ticket.notify if ticket is not None and announced else None
        logged = level_of(kind, fields) >= self._log_level
        listeners = () if not announced else self._listeners if to is None else to
        if notify is None and not logged and not listeners:
            self._number += 1
            return
        clock = self._clock
        event = Event(0, kind, clock.wall(), clock.monotonic(), about, task, slot, attempt, fields or {})
        if ticket is not None:
            event.id, event.task, event.slot = ticket.id, ticket.name, ticket.slot
        with self._lock:
            if self._closed:
                return
            event.seq = self._next_number()
            self._closed = kind is EventKind.SHUTDOWN_FINISHED  # the last record: from here on nothing takes a number
            if logged and self.log is not None:
                self._sent += 1
                mailbox_of(self.log).append(event)
            for listener in listeners:
                listener.offer(event)
        # Outside of the lock: to schedule takes locks of the dispatcher and the timers, under which the collector may
        # run a finalizer that unsubscribes.
        if logged and self.log is not None:
            mailbox_of(self.log).wake()
        for listener in listeners:
            listener.wake()
        if notify is not None and ticket is not None:
            notify.put(Lifecycle(ticket.token, event.copy() if logged or listeners else event))

    def failure(self, component: str, over: object, error: BaseException) -> None:
        """Tell of a fault of the machinery itself: who failed, over what, and why."""
        self.faults += 1
        with suppress(BaseException):  # whoever tells of it has more to do
            reason = f"{type(over).__name__}: {describe(error)}"
            self.publish(EventKind.RUNTIME_FAILURE, None, None, {"reason": reason}, task=component)

    # -- subscribers -------------------------------------------------------------------------------------------------

    def subscribe(self, wanted: Wanted) -> Subscription:
        """Have somebody told of every event from now on. Called on any thread.

        Raises:
            SupervisorClosedError: the last event has been published.

        """
        listener = Listener(self._runtime, self, wanted, self._lock)
        with self._lock:
            if self._closed:
                raise closed_error()
            self._listen(*self._listeners, listener)
        return Subscription(self, listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Tell somebody nothing more. Called on any thread."""
        with self._lock:
            self._listen(*(other for other in self._listeners if other is not listener))
            listener.stop()
        listener.end()

    def panicked(self, listener: Listener, error: BaseException) -> None:
        """Tell the others that a subscriber raised this over an event."""
        others = tuple(other for other in self._listeners if other is not listener)
        fields = {"reason": describe(error)}
        self.publish(EventKind.SUBSCRIBER_PANICKED, None, None, fields, task=listener.name, to=others)

    def catch_up(self, listener: Listener) -> bool:
        """Tell a subscriber for which nothing waits how much it has missed; return whether it had missed nothing."""
        with self._lock:
            if listener.queued:
                return False
            if listener.closed or not listener.lost:
                return True
            lost, listener.lost = listener.lost, 0
        try:
            fields = {"reason": "full", "dropped": lost}
            self.publish(EventKind.SUBSCRIBER_OVERFLOW, None, None, fields, task=listener.name, to=(listener,))
        except BaseException:
            listener.lost += lost
            raise
        return False

    def flush(self, reply_to: ActorRef[Any]) -> int:
        """Have every subscriber answer `Flushed` when it has taken what waits for it; return how many will."""
        listeners = self._listeners
        for listener in listeners:
            listener.flush(Flush(reply_to, of_log=False))
        return len(listeners)

    def _listen(self, *listeners: Listener) -> None:
        self._listeners = listeners
        self._quiet = self._log_level > logging.INFO and not listeners

    # -- the end -----------------------------------------------------------------------------------------------------

    def unwritten(self) -> int:
        """Records that the log's handler has not taken."""
        return self._sent - self._sink.taken if self._sink is not None else 0

    def close(self) -> None:
        """Number and pass on nothing more: the last record has been written. What waits for a subscriber is dropped."""
        with self._lock:
            self._closed = True
            listeners = self._listeners
            self._listen()
            self.untaken += sum(listener.stop() for listener in listeners)
        for listener in listeners:
            listener.end()
