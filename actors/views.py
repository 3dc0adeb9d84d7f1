"""What an observer sees of a registry: who is registered, who is inside a body, what the slots look like and wait for.

Built on the tables of `actors.ending`. Nothing here changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actors.ending import Endings, SlotRecord
from actors.messages import Alive, Explain, Snapshot, Tasks, View, Viewed
from actors.orders import Answer
from actors.runtime import Deferred
from admission import snapshot as views

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.identity import TaskId

__all__ = ["VIEW_HANDLERS", "Look", "Views"]


@dataclass(slots=True, eq=False)
class Look:
    """A look on its way: how many slots have not answered, what the others said, and what is made of it."""

    missing: int
    conclude: Callable[[list[Viewed]], Any]
    reply: Deferred = field(default_factory=Deferred)
    answers: list[Viewed] = field(default_factory=list)


class Views(Endings):
    """Endings, and whoever looks at them."""

    slots: dict[str, SlotRecord]
    """Every slot that has a key."""

    def slots_at_work(self) -> list[SlotRecord]:
        """Return the slots with something open."""
        raise NotImplementedError

    def on_tasks(self, _message: Tasks) -> list[tuple[TaskId, str]]:
        """List the registered runs."""
        return sorted(self.members.items())

    def on_snapshot(self, _message: Snapshot) -> Any:
        """Ask every slot with work what it looks like."""
        return self._look(self.slots_at_work(), _snapshot)

    def on_alive(self, _message: Alive) -> Any:
        """Ask every slot with work, and every run without one, whose body is inside."""
        return self._look([*self.slots_at_work(), *self.private], _alive)

    def on_explain(self, message: Explain) -> Any:
        """Ask the slot that is meant, or that has the submission that is meant."""
        target = message.target
        if isinstance(target, str):
            record, about = self.slots.get(target), None
        else:
            record, about = self._where(target), target
        asked = [record] if record is not None and record.open else []
        return self._look(asked, _explanation, explain=True, about=about)

    def on_viewed(self, message: Viewed) -> None:
        """One slot has answered a look."""
        look = message.op
        if not isinstance(look, Look):
            return
        look.missing -= 1
        look.answers.append(message)
        if look.missing == 0:
            self.runtime.perform(self, [Answer(look.reply, look.conclude(look.answers))])

    def _where(self, id_: TaskId) -> SlotRecord | None:
        """Return the slot that a submission has been sent to, as long as anything of it is there."""
        ticket = self.routes.get(id_)
        if ticket is not None:
            record: SlotRecord = ticket.record
            return record
        return self.lingering[id_][1] if id_ in self.lingering else None

    def _look(
        self,
        asked: list[SlotRecord],
        conclude: Callable[[list[Viewed]], Any],
        **how: Any,
    ) -> Any:
        """Have these slots looked at, each by itself; the reply is what is made of their answers."""
        if not asked:
            return conclude([])
        look = Look(len(asked), conclude)
        self.runtime.perform(self, [self.to_slot(record, View(look, **how)) for record in asked])
        return look.reply


def _snapshot(answers: list[Viewed]) -> views.Snapshot:
    shown = [answer.view for answer in answers if isinstance(answer.view, views.SlotView)]
    return views.Snapshot(tuple(sorted(shown, key=lambda view: view.slot)))


def _alive(answers: list[Viewed]) -> tuple[str, ...]:
    return tuple(sorted({answer.alive for answer in answers if answer.alive is not None}))


def _explanation(answers: list[Viewed]) -> views.Explanation | None:
    return next((answer.view for answer in answers if isinstance(answer.view, views.Explanation)), None)


VIEW_HANDLERS: dict[type, Any] = {
    Tasks: Views.on_tasks,
    Snapshot: Views.on_snapshot,
    Alive: Views.on_alive,
    Explain: Views.on_explain,
    Viewed: Views.on_viewed,
}
