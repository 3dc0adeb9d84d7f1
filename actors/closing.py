"""The end of a desk after its verdict: whoever observes has a while to take what waits, and the log the last word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from actors.messages import Flush, Flushed
from actors.orders import Publish
from actors.runtime import TimerToken, deliver
from actors.views import Views
from admission.events import EventKind

if TYPE_CHECKING:
    from actors.publisher import Publisher
    from actors.runtime import Runtime

__all__ = ["Closing", "FlushSubscribers"]

_SUBSCRIBERS_SHARE: Final = 0.9
"""Of `observer_timeout`; the rest, and what they leave, is the log's, which has to tell of them."""


@dataclass(slots=True)
class FlushSubscribers:
    """The last effect of the conclusion."""

    desk: Closing

    def perform(self) -> None:
        """Do it."""
        self.desk.flush_subscribers()


@dataclass(slots=True)
class _FlushLog:
    """The effect behind the last record."""

    desk: Closing

    def perform(self) -> None:
        """Do it."""
        self.desk.flush_log()


class Closing(Views):
    """Views, and the two steps between the verdict and the report; together at most `observer_timeout`."""

    def __init__(self, runtime: Runtime, publisher: Publisher, observer_timeout: float) -> None:
        Views.__init__(self, runtime, publisher)
        self.observer_timeout = observer_timeout
        self.observed_until = 0.0
        self.unflushed = 0  # subscribers that have not taken everything
        self.flush_timer: TimerToken | None = None

    def keep_report(self) -> None:
        """Keep the report, send it to everybody who waits, and end."""
        raise NotImplementedError

    def still_inside(self) -> tuple[str, ...]:
        """Return the names of the runs whose body has not left."""
        return tuple(sorted(name for name, _ in self.lingering.values()))

    def on_flushed(self, message: Flushed) -> None:
        """A subscriber has taken everything, or the log is written to its end."""
        if message.of_log:
            self.keep_report()
        else:
            self.unflushed -= 1
            if self.unflushed == 0:  # below: it comes too late
                self._write_last_record()

    def on_flush_timer(self) -> None:
        """The step that runs has lasted for long enough."""
        if self.unflushed > 0:
            self._write_last_record()
        else:
            self.keep_report()

    def flush_subscribers(self) -> None:
        """Wait until the subscribers have taken what waits for them. From here on the conclusion is not begun again."""
        self.concluding = True
        now = self.runtime.clock.monotonic()
        self.observed_until = now + self.observer_timeout
        if self.observer_timeout:
            self.unflushed = self.publisher.flush(self.actor_ref)
        if self.unflushed:
            due = now + self.observer_timeout * _SUBSCRIBERS_SHARE
            self.flush_timer = self.runtime.schedule(due, self.actor_ref)
        else:
            self._write_last_record()

    def _write_last_record(self) -> None:
        self.unflushed = 0
        if self.flush_timer is not None:
            self.runtime.cancel(self.flush_timer)
        fields: dict[str, Any] = {"still_inside": list(self.still_inside())}
        last = Publish(self.publisher, EventKind.SHUTDOWN_FINISHED, None, fields, announced=False)
        self.runtime.perform(self, [last, _FlushLog(self)])

    def flush_log(self) -> None:
        """Number nothing more, deliver nothing more, and wait for the log."""
        self.publisher.close()
        log = self.publisher.log
        if log is None:
            self.keep_report()
            return
        self.flush_timer = self.runtime.schedule(self.observed_until, self.actor_ref)
        deliver(log, Flush(self.actor_ref))
