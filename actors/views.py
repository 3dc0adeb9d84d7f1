"""What an observer sees of a registry: who is registered, what the slots look like.

Built on the tables of `actors.ending`. Nothing here changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.ending import Endings, SlotRecord
from actors.messages import Snapshot, Tasks, View, Viewed
from actors.orders import Answer
from actors.runtime import Deferred
from admission import snapshot as views

if TYPE_CHECKING:
    from admission.identity import TaskId

__all__ = ["Look", "Views"]


@dataclass(slots=True, eq=False)
class Look:
    """A snapshot on its way: the slots that have not answered, and what the others said."""

    reply: Deferred
    missing: int
    views: list[views.SlotView]


class Views(Endings):
    """Endings, and whoever looks at them."""

    def slots_at_work(self) -> list[SlotRecord]:
        """Return the slots with something open."""
        raise NotImplementedError

    def on_tasks(self, _message: Tasks) -> list[tuple[TaskId, str]]:
        """List the registered runs."""
        return sorted(self.members.items())

    def on_snapshot(self, _message: Snapshot) -> Any:
        """Ask every slot with work what it looks like."""
        asked = self.slots_at_work()
        if not asked:
            return views.Snapshot()
        look = Look(Deferred(), len(asked), [])
        self.runtime.perform(self, [self.to_slot(record, View(look)) for record in asked])
        return look.reply

    def on_viewed(self, message: Viewed) -> None:
        """One slot has answered a snapshot."""
        look = message.op
        if not isinstance(look, Look):
            return
        look.missing -= 1
        if message.view is not None:
            look.views.append(message.view)
        if look.missing == 0:
            shown = tuple(sorted(look.views, key=lambda view: view.slot))
            self.runtime.perform(self, [Answer(look.reply, views.Snapshot(shown))])
