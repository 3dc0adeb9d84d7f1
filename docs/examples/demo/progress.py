"""Shows how far every slot is: a table that redraws itself on a terminal, a plain line now and then anywhere else."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, Self, TextIO

from admission import Cancelled, Completed, Rejected, SlotStatus, SlotView
from docs.examples.demo.history import DAY, newest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from actors import Supervisor, TaskHandle
    from admission import TaskId
    from docs.examples.demo.history import Change

__all__ = ["Board", "Progress", "redraws"]

REDRAW: Final = 0.1
"""Seconds between two drawings of the table."""
LINE: Final = 2.0
"""Seconds between two plain lines."""
WIDTH: Final = 79
"""Columns of the table without its bars."""

GREEN, YELLOW, CYAN, BOLD, DIM, NORMAL = (f"\x1b[{code}m" for code in (32, 33, 36, 1, 2, 0))
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
ERASE_REST_OF_LINE, ERASE_BELOW = "\x1b[K", "\x1b[J"


@dataclass(slots=True)
class _Row:
    """One slot. `built` is written by the body inside, `handles` by who submits; so each has one writer."""

    newest: str
    changes: int = 0
    handles: list[tuple[Change, TaskHandle[int]]] = field(default_factory=list)
    built: tuple[str, int, int] = ("", 0, 1)


@dataclass(frozen=True, slots=True)
class _Counts:
    changes: int
    submitted: int
    completed: int
    superseded: int
    cancelled: int

    def cells(self) -> list[str]:
        done = f"{self.submitted}/{self.changes}"
        return [f"{done:>7}", f"{self.completed:>9}", f"{self.superseded:>10}", f"{self.cancelled:>9}"]


class Board:
    """What there is to show. Bodies and the one who submits write to it, nobody waits for anybody."""

    def __init__(self, changes: tuple[Change, ...], seconds: float) -> None:
        self.started = time.monotonic()
        self._days = changes[-1].at / DAY
        self._seconds = seconds
        self._rows = {slot: _Row(rev) for slot, rev in newest(changes).items()}
        self._changes: dict[TaskId, Change] = {}
        for change in changes:
            self._rows[change.slot].changes += 1

    def submitted(self, change: Change, handle: TaskHandle[int]) -> None:
        """A change has been submitted."""
        self._changes[handle.id] = change
        self._rows[change.slot].handles.append((change, handle))

    def built(self, change: Change, batches: int, of: int) -> None:
        """The body inside a slot has come this far."""
        self._rows[change.slot].built = (change.rev, batches, of)

    def table(self, views: Mapping[str, SlotView], width: int, *, colour: bool) -> list[str]:
        """Return the lines of the whole table, bars included where the width allows it."""
        column = max(22, *map(len, self._rows))
        head = f"{'slot':<{column}}  changes  completed  superseded  cancelled  now"
        lines = [self._clock(), _paint(head, BOLD, colour=colour)]
        for slot, row in self._rows.items():
            state, paint = self._state(row, views.get(slot), bar=width > WIDTH + 14)
            cells = [f"{slot:<{column}}", *_count(row).cells(), _paint(state, paint, colour=colour)]
            lines.append("  ".join(cells))
        total = "  ".join([f"{'total':<{column}}", *self._total().cells()])
        return [*lines, _paint(total, BOLD, colour=colour)]

    def line(self, views: Mapping[str, SlotView]) -> str:
        """Return the totals as one line."""
        total = self._total()
        return (
            f"{self._clock()}  submitted {total.submitted:>3}  completed {total.completed:>3}  "
            f"superseded {total.superseded:>3}  cancelled {total.cancelled:>3}  busy slots {len(views):>2}"
        )

    def _state(self, row: _Row, view: SlotView | None, *, bar: bool) -> tuple[str, str]:
        owner = self._changes.get(view.owner_id) if view is not None and view.owner_id is not None else None
        if view is not None and owner is not None:
            rev, batches, of = row.built
            if rev != owner.rev:
                batches, of = 0, 1
            stops = view.status is SlotStatus.TERMINATING
            state = f"{owner.rev:<7.7} {'stop' if stops else f'{100 * batches // of:>3}%'}"
            if bar:
                full = 12 * batches // of
                state += f"  {'#' * full:.<12}"
            return state, YELLOW if stops else CYAN
        done = [change.rev for change, handle in row.handles if isinstance(_outcome(handle), Completed)]
        if not done:
            return "-", DIM
        return f"{done[-1]:<7.7}", GREEN if done[-1] == row.newest else DIM

    def _total(self) -> _Counts:
        counts = [_count(row) for row in self._rows.values()]
        return _Counts(
            sum(each.changes for each in counts),
            sum(each.submitted for each in counts),
            sum(each.completed for each in counts),
            sum(each.superseded for each in counts),
            sum(each.cancelled for each in counts),
        )

    def _clock(self) -> str:
        elapsed = time.monotonic() - self.started
        day = self._days if elapsed >= self._seconds else self._days * elapsed / self._seconds
        return f"{elapsed:4.1f} s  day {day:3.0f} of {self._days:.0f}"


class Progress:
    """Draws a board for the time of a block, and once more, complete, at its end. The terminal is left as it was."""

    def __init__(self, board: Board, supervisor: Supervisor, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._board = board
        self._supervisor = supervisor
        self._screen: _Screen = _Terminal(stream) if redraws(stream, environ) else _Lines(stream)
        self._over = threading.Event()
        self._painter = threading.Thread(target=self._paint, name="demo-progress", daemon=True)

    def __enter__(self) -> Self:
        self._screen.open()
        self._painter.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._over.set()
            self._painter.join()
            self._screen.finish(self._board, self._views())
        finally:
            self._screen.close()

    def _paint(self) -> None:
        try:
            while not self._over.wait(self._screen.period):
                self._screen.draw(self._board, self._views())
        except OSError:  # nobody looks any more
            return

    def _views(self) -> dict[str, SlotView]:
        return {view.slot: view for view in self._supervisor.snapshot().slots}


def redraws(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Tell whether a stream is a terminal that can be drawn on, and nobody has asked for plain text."""
    plain = environ.get("NO_COLOR") or environ.get("CI") or environ.get("TERM", "dumb") in ("", "dumb")
    return not plain and stream.isatty()


class _Screen(Protocol):
    period: float

    def open(self) -> None: ...

    def draw(self, board: Board, views: Mapping[str, SlotView]) -> None: ...

    def finish(self, board: Board, views: Mapping[str, SlotView]) -> None: ...

    def close(self) -> None: ...


class _Terminal:
    """Draws each table over the one before, in one write and without clearing anything first, so nothing flickers."""

    period = REDRAW

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._height = 0

    def open(self) -> None:
        self._write(HIDE_CURSOR + WRAP_OFF + "\n")

    def draw(self, board: Board, views: Mapping[str, SlotView]) -> None:
        columns, rows = _size(self._stream)
        self._show(board.table(views, columns, colour=True)[: rows - 1])  # the cursor's line is the last one

    def finish(self, board: Board, views: Mapping[str, SlotView]) -> None:
        self._show(board.table(views, _size(self._stream)[0], colour=True))

    def close(self) -> None:
        self._write(WRAP_ON + SHOW_CURSOR)

    def _show(self, lines: Sequence[str]) -> None:
        up = f"\x1b[{self._height}A" if self._height else ""
        self._height = len(lines)
        self._write(up + "".join(f"\r{line}{ERASE_REST_OF_LINE}\n" for line in lines) + ERASE_BELOW)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Lines:
    """One line of totals at a time, and the table at the end."""

    period = LINE

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def open(self) -> None:
        """Nothing has to be prepared."""

    def draw(self, board: Board, views: Mapping[str, SlotView]) -> None:
        self._print(board.line(views))

    def finish(self, board: Board, views: Mapping[str, SlotView]) -> None:
        self._print(board.line(views), "", *board.table(views, WIDTH, colour=False)[1:])

    def close(self) -> None:
        """Nothing has to be restored."""

    def _print(self, *lines: str) -> None:
        self._stream.write("".join(f"{line.rstrip()}\n" for line in lines))
        self._stream.flush()


def _count(row: _Row) -> _Counts:
    outcomes = [_outcome(handle) for _, handle in row.handles]
    return _Counts(
        row.changes,
        len(outcomes),
        sum(isinstance(outcome, Completed) for outcome in outcomes),
        sum(isinstance(outcome, Rejected) for outcome in outcomes),
        sum(isinstance(outcome, Cancelled) for outcome in outcomes),
    )


def _outcome(handle: TaskHandle[int]) -> object:
    return handle.outcome() if handle.done() else None


def _paint(text: str, paint: str, *, colour: bool) -> str:
    return f"{paint}{text}{NORMAL}" if colour else text


def _size(stream: TextIO) -> tuple[int, int]:
    """Return (columns, rows); some terminals do not know and say 0."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except OSError:
        columns, rows = 0, 0
    return columns or 80, rows or 24
