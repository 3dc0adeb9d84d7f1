"""What the handles said in the end, kept for the verification: one line per submission."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from admission import Rejected
from docs.examples.demo import jsonlines

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from actors import TaskHandle
    from docs.examples.demo.history import Change

__all__ = ["Ending", "ending", "read", "write"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a submission ended: labels of `OutcomeKind` and `RejectionKind`. `outcome` is None where there was none."""

    id: int
    task: str
    slot: str
    outcome: str | None
    rejection: str | None

    @property
    def label(self) -> str:
        """The end in one word."""
        return self.rejection or self.outcome or "nothing"


def ending(change: Change, handle: TaskHandle[int]) -> Ending:
    """Ask a handle; without waiting."""
    outcome = handle.outcome() if handle.done() else None
    rejection = outcome.kind if isinstance(outcome, Rejected) else None
    return Ending(int(handle.id), change.task, change.slot, outcome.label if outcome is not None else None, rejection)


def write(path: Path, endings: Iterable[Ending]) -> None:
    """Write them down."""
    path.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in endings), encoding="utf-8")


def read(path: Path) -> list[Ending]:
    """Read them back.

    Raises:
        BadLineError: a line that says something else.
        OSError: the file can not be read.

    """
    endings: list[Ending] = []
    for line, fields in jsonlines.read(path):
        try:
            endings.append(Ending(**fields))
        except TypeError:
            raise jsonlines.BadLineError(path, line, "id, task, slot, outcome and rejection were expected") from None
    return endings
