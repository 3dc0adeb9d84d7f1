"""Where everything that happens gets its number, and from where it goes to whoever listens.

Nobody who publishes waits: a record that somebody wants is built and put into that observer's mailbox. One that
nobody wants still takes its number, so that a filtered log shows that something is missing.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from actors.bodies.job import describe
from actors.messages import Lifecycle
from actors.runtime import deliver
from admission.events import Event, EventKind
from admission.outcome import OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from actors.messages import Ticket
    from actors.runtime import Runtime
    from admission.effects import Entry

__all__ = ["LEVELS", "LogSink", "Publisher", "level_of"]

LEVELS: Final = {
    EventKind.ATTEMPT_FAILED: logging.ERROR,
    EventKind.RUNTIME_FAILURE: logging.ERROR,
    EventKind.ATTEMPT_TIMED_OUT: logging.WARNING,
    EventKind.GRACE_EXCEEDED: logging.WARNING,
    EventKind.TASK_ADD_FAILED: logging.WARNING,
    EventKind.SUBMISSION_REJECTED: logging.WARNING,
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
        self.name = name or runtime.new_name()
        self.log = log
        self._sink = sink
        self._sent = 0
        self._clock = runtime.clock
        self._log_level = sink.level if sink is not None else logging.CRITICAL + 1
        self._number = 0
        self._last = 0
        self._lock = Lock()  # the number of a record and its place in the log's mailbox are taken together
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
        slot: str | None = None,
        task: str | None = None,
        announced: bool = True,
    ) -> None:
        """Number this and pass it to whoever wants it. `announced` is False for what only the log hears of."""
        notify = ticket.notify if ticket is not None and announced else None
        logged = level_of(kind, fields) >= self._log_level
        if notify is None and not logged:
            self._number += 1
            return
        clock = self._clock
        event = Event(0, kind, clock.wall(), clock.monotonic(), None, task, slot, attempt, fields or {})
        if ticket is not None:
            event.id, event.task, event.slot = ticket.id, ticket.name, ticket.slot
        with self._lock:
            if self._closed:
                return
            event.seq = self._next_number()
            if logged and self.log is not None:
                self._sent += 1
                deliver(self.log, event)
        if notify is not None and ticket is not None:
            notify.put(Lifecycle(ticket.token, event))

    def failure(self, component: str, over: object, error: BaseException) -> None:
        """Tell of a fault of the machinery itself: who failed, over what, and why."""
        self.faults += 1
        with suppress(BaseException):  # whoever tells of it has more to do
            reason = f"{type(over).__name__}: {describe(error)}"
            self.publish(EventKind.RUNTIME_FAILURE, None, None, {"reason": reason}, task=component)

    def unwritten(self) -> int:
        """Records that the log's handler has not taken."""
        return self._sent - self._sink.taken if self._sink is not None else 0

    def close(self) -> None:
        """Number and pass on nothing more: the last record has been written."""
        with self._lock:
            self._closed = True
