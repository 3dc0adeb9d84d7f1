"""The bodies' own book of who was inside a slot and when, kept without any help from slotkeeper.

A body creates its slot's file exclusively on entry, which only one can do at a time, and removes it on leaving. It
writes down both instants by the monotonic clock.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Self

from admission import FatalError
from docs.examples.demo import jsonlines

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path
    from types import TracebackType

    from docs.examples.demo.layout import Layout

__all__ = ["Ledger", "OverlapError", "Stay", "overlaps", "read"]


class OverlapError(FatalError):
    """There is another body in the slot. This never happens, which is what the demo is to show."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A body was inside the slot from `entered` to `left`, instants of the monotonic clock in seconds."""

    slot: str
    rev: str
    entered: float
    left: float


class Ledger:
    """The book of one run: append-only, one line per stay."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._book = os.open(layout.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._book)

    @contextmanager
    def inside(self, slot: str, rev: str) -> Generator[None]:
        """Be inside the slot for the time of the block.

        Raises:
            OverlapError: somebody is inside already. That is written down too.

        """
        mark = self._layout.inside(slot)
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            now = time.monotonic()
            self._write(Stay(slot, rev, now, now))
            msg = f"a second body is inside slot {slot}"
            raise OverlapError(msg) from None
        entered = time.monotonic()
        try:
            yield
        finally:
            self._write(Stay(slot, rev, entered, time.monotonic()))
            mark.unlink()

    def _write(self, stay: Stay) -> None:
        os.write(self._book, json.dumps(asdict(stay)).encode() + b"\n")  # one write: lines of two bodies never mix


def read(path: Path) -> list[Stay]:
    """Read a ledger.

    Raises:
        BadLineError: a line that is no stay.
        OSError: the file can not be read.

    """
    stays: list[Stay] = []
    for line, fields in jsonlines.read(path):
        try:
            stays.append(Stay(str(fields["slot"]), str(fields["rev"]), float(fields["entered"]), float(fields["left"])))
        except (KeyError, TypeError, ValueError):
            raise jsonlines.BadLineError(path, line, "slot, rev, entered and left were expected") from None
    return stays


def overlaps(stays: Iterable[Stay]) -> list[tuple[Stay, Stay]]:
    """Return every stay that began before an earlier one in the same slot was over, after that earlier one."""
    found: list[tuple[Stay, Stay]] = []
    for _, in_slot in groupby(sorted(stays, key=attrgetter("slot", "entered")), key=attrgetter("slot")):
        last: Stay | None = None
        for stay in in_slot:
            if last is not None and stay.entered < last.left:
                found.append((last, stay))
            if last is None or stay.left > last.left:
                last = stay
    return found
