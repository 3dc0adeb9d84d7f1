"""The work to replay: which directory of a repository changed when, and to which revision.

`history.jsonl` is the commit history of the public repository of the Rust crate taskvisor, facts only: 447 changes to
16 directories over 294 days. One object per line: ``at``, seconds since the first change; ``slot``, the directory;
``rev``, the short id of the commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from docs.examples.demo import jsonlines

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DAY", "Change", "HistoryError", "load", "newest"]

DAY: Final = 86_400
"""Seconds."""


class HistoryError(Exception):
    """The history can not be used; the message says why and where."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change: `at` seconds after the first one, the directory `slot` came to be at revision `rev`."""

    at: float
    slot: str
    rev: str

    @property
    def task(self) -> str:
        """The name of the job that this change asks for; no two changes have the same."""
        return f"{self.slot}@{self.rev}"


def load(path: Path) -> tuple[Change, ...]:
    """Read a history, oldest change first.

    Raises:
        HistoryError: the file can not be read, is empty, or has a line that makes no sense.

    """
    try:
        changes = _changes(path)
    except jsonlines.BadLineError as error:
        raise HistoryError(str(error)) from None
    except OSError as error:
        msg = f"{path} can not be read: {error.strerror}"
        raise HistoryError(msg) from None
    if not changes:
        msg = f"{path} is empty"
        raise HistoryError(msg)
    return tuple(changes)


def newest(changes: tuple[Change, ...]) -> dict[str, str]:
    """Return the last revision of every slot, slots in the order of their names."""
    last = {change.slot: change.rev for change in changes}
    return dict(sorted(last.items()))


def _changes(path: Path) -> list[Change]:
    changes: list[Change] = []
    seen: set[str] = set()
    for line, fields in jsonlines.read(path):
        change = _change(path, line, fields)
        if changes and change.at < changes[-1].at:
            raise jsonlines.BadLineError(path, line, f"at {change.at} is earlier than in the line above")
        if change.task in seen:
            raise jsonlines.BadLineError(path, line, f"revision {change.rev} of slot {change.slot} comes twice")
        seen.add(change.task)
        changes.append(change)
    return changes


def _change(path: Path, line: int, fields: dict[str, Any]) -> Change:
    if fields.keys() != {"at", "slot", "rev"}:
        found = ", ".join(sorted(fields)) or "nothing"
        raise jsonlines.BadLineError(path, line, f"the fields must be at, slot, rev; found {found}")
    at, slot, rev = fields["at"], fields["slot"], fields["rev"]
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < float("inf"):
        raise jsonlines.BadLineError(path, line, f"at must be a number of seconds from 0, not {at!r}")
    for name, value in (("slot", slot), ("rev", rev)):
        if not isinstance(value, str) or not value:
            raise jsonlines.BadLineError(path, line, f"{name} must be a non-empty text, not {value!r}")
    return Change(at, slot, rev)
