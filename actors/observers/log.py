"""The structured log: records as constant event names and plain fields, written in order on a thread of its own.

A library never configures logging. With an injected logger or a configured structlog, records go there; otherwise to
the standard library's logger ``slotkeeper``, which prints nothing unless the application says so.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog

from actors.messages import Flush, Flushed, Retire
from actors.publisher import LogSink, Publisher, level_of
from actors.runtime import Dispatcher, RuntimeActor, deliver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.observers.subscribers import Wanted
    from actors.runtime import Runtime
    from admission.events import Event

__all__ = ["SCHEMA", "LogObserver", "as_fields", "clean", "open_publisher", "open_sink"]

SCHEMA: Final = 1
"""The version of the records' layout."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST_TEXT = 500

logging.getLogger("slotkeeper").addHandler(logging.NullHandler())


def open_sink(logger: Any = None) -> LogSink:
    """Find out where records go, and take the level once.

    Args:
        logger: anything with structlog's methods (``debug(event, **fields)`` and so on); None = structlog if the
            application has configured it, else ``logging.getLogger("slotkeeper")``.

    """
    if logger is None:
        if not structlog.is_configured():
            return _standard_library_sink()
        logger = structlog.get_logger("slotkeeper")

    def write(level: int, event: str, fields: dict[str, Any]) -> None:
        getattr(logger, logging.getLevelName(level).lower())(event, **fields)

    return LogSink(_level_of(logger), write)


def _level_of(logger: Any) -> int:
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        for name in ("is_enabled_for", "isEnabledFor"):
            enabled = getattr(logger, name, None)
            if callable(enabled):
                try:
                    if enabled(level):
                        return level
                except Exception:  # noqa: BLE001 - it passes any call on, to a logger that can not tell
                    return logging.DEBUG
                break
        else:
            return logging.DEBUG  # it does not filter
    return logging.CRITICAL + 1


def _standard_library_sink() -> LogSink:
    logger = logging.getLogger("slotkeeper")

    def write(level: int, event: str, fields: dict[str, Any]) -> None:
        text = " ".join(f"{name}={value!r}" for name, value in fields.items())
        logger.log(level, "%s %s", event, text, extra={"slotkeeper": fields})

    return LogSink(logger.getEffectiveLevel(), write)


def clean(text: str) -> str:
    """Return a text of bounded length without control characters, whatever a user put into a key or a reason."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}... ({len(text)} characters)"
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)


def as_fields(event: Event, supervisor: str) -> dict[str, Any]:
    """Return the fields of a record."""
    fields: dict[str, Any] = {"schema": SCHEMA, "supervisor": supervisor, "seq": event.seq, "mono": event.mono}
    fields["at"] = event.at
    if event.id is not None:
        fields["id"] = int(event.id)
    for name in ("task", "slot", "attempt"):
        value = getattr(event, name)
        if value is not None or (name == "slot" and event.attempt is not None):  # null: added directly
            fields[name] = value
    fields.update(event.fields)
    return {name: clean(str(value)) if isinstance(value, str) else value for name, value in fields.items()}


class LogObserver(RuntimeActor):
    """Writes the records of one supervisor, in order. A handler that blocks or raises delays or loses records only."""

    def __init__(self, runtime: Runtime, sink: LogSink, supervisor: str) -> None:
        super().__init__(runtime)
        self._sink = sink
        self._supervisor = supervisor

    def _choose_dispatcher(self) -> Dispatcher:
        return self.runtime.observers

    def on_receive(self, message: Any) -> None:
        """Write a record, or say that everything before has been written."""
        if isinstance(message, Flush):
            deliver(message.reply_to, Flushed())
            return
        if isinstance(message, Retire):
            self.end()
            return
        with suppress(BaseException):  # the application's log handler; it must not end its own log
            self._sink.write(
                level_of(message.kind, message.fields), message.kind.value, as_fields(message, self._supervisor)
            )
        self._sink.taken += 1

    def on_stop_requested(self) -> bool:
        """Go on: only the end of the registry ends its log."""
        return True


def open_publisher(
    runtime: Runtime, logger: Any = None, name: str | None = None, subscribers: Iterable[Wanted] = ()
) -> Publisher:
    """Put a publisher, its log and its first subscribers together."""
    sink = open_sink(logger)
    publisher = Publisher(runtime, sink=sink, name=name)
    publisher.log = LogObserver.spawn(runtime, sink, publisher.name)
    for wanted in subscribers:
        publisher.subscribe(wanted)
    return publisher
