"""Where a run leaves what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one run under one directory."""

    root: Path

    @property
    def log(self) -> Path:
        """The log of slotkeeper: one JSON object per record."""
        return self.root / "demo.jsonl"

    @property
    def ledger(self) -> Path:
        """What the bodies wrote down themselves: one line per stay, when the body leaves."""
        return self.root / "ledger.jsonl"

    @property
    def outcomes(self) -> Path:
        """What the handles said: one line per submission, in the order of the history."""
        return self.root / "outcomes.jsonl"

    def index(self, slot: str) -> Path:
        """The slot's index."""
        return self.root / "index" / f"{_file_name(slot)}.sqlite"

    def inside(self, slot: str) -> Path:
        """A file that exists as long as a body is inside the slot."""
        return self.root / "inside" / _file_name(slot)

    def marks(self) -> list[Path]:
        """Every slot's file that is there: a body that has not left."""
        return sorted((self.root / "inside").glob("*"))

    def clear(self) -> None:
        """Make the directories, and remove what an earlier run has left."""
        for directory in ("index", "inside"):
            (self.root / directory).mkdir(parents=True, exist_ok=True)
        left = [self.log, self.ledger, self.outcomes, *(self.root / "index").glob("*.sqlite*"), *self.marks()]
        for path in left:
            path.unlink(missing_ok=True)


def _file_name(slot: str) -> str:
    return quote(slot, safe="").replace(".", "%2E")
