"""What every slot of a registry goes by, whatever its key."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from admission.backoff import RandomSource
    from admission.effects import Entry

__all__ = ["Audience", "Everyone", "Rules"]


class Audience(Protocol):
    """Whoever listens, as the machines know it: they make no news that nobody would hear."""

    def passes_over(self, entry: Entry, records: int = 1, /) -> bool:
        """Whether nobody wants to hear of this many routine records about `entry`; they are numbered all the same."""
        ...


class Everyone:
    """An audience that wants to hear of everything."""

    __slots__ = ()

    def passes_over(self, entry: Entry, records: int = 1, /) -> bool:  # noqa: ARG002
        """Say that everything is wanted."""
        return False


@dataclass(slots=True, kw_only=True)
class Rules:
    """Bounds, chance and audience of all machines.

    `limited` where attempts need a permit, `budgeted` where waiting needs a unit of a budget that all slots share;
    `grace` in seconds.
    """

    grace: float = 60.0
    max_queue: int | None = None
    limited: bool = False
    budgeted: bool = True
    random: RandomSource = field(default_factory=Random)
    audience: Audience = field(default_factory=Everyone)
