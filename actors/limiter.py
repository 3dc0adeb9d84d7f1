"""The limiter: at most `limit` attempts execute at once; the rest wait, first in, first out."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeAlias

from actors.messages import Acquire, Denied, Granted, Retire, Return
from actors.runtime import RuntimeActor, deliver

if TYPE_CHECKING:
    from pykka import ActorRef

    from actors.runtime import Runtime
    from admission.identity import TaskId

__all__ = ["LimiterActor"]

_Key: TypeAlias = "tuple[TaskId, int]"


class LimiterActor(RuntimeActor):
    """One ledger: `(id, attempt)` waits or holds. `Return` ends the entry whatever it is."""

    def __init__(self, runtime: Runtime, limit: int) -> None:
        super().__init__(runtime)
        self.limit = limit
        self.held: dict[_Key, None] = {}
        self.waiting: OrderedDict[_Key, ActorRef[Any]] = OrderedDict()

    def on_receive(self, message: Any) -> None:
        """Handle one message of the protocol."""
        if isinstance(message, Retire):
            self.end()
            return
        key = (message.id, message.attempt)
        if isinstance(message, Acquire):
            if key not in self.held:
                self.waiting[key] = message.slot
        elif isinstance(message, Return):
            self._give_up(key)
        self._grant()

    def on_fault(self, message: Any, error: BaseException) -> Any:
        """Deny a request that failed; let a permit go whose return failed."""
        if isinstance(message, Acquire):
            self.waiting.pop((message.id, message.attempt), None)
            deliver(message.slot, Denied(message.id, message.attempt, error))
        elif isinstance(message, Return):
            self._give_up((message.id, message.attempt))
            self._grant()
        return error

    def on_stop_requested(self) -> bool:
        """Go on: only the registry ends its limiter."""
        return True

    def _give_up(self, key: _Key) -> None:
        self.held.pop(key, None)
        self.waiting.pop(key, None)

    def _grant(self) -> None:
        while self.waiting and len(self.held) < self.limit:
            key, slot = self.waiting.popitem(last=False)
            self.held[key] = None
            deliver(slot, Granted(*key))
