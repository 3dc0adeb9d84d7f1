"""Messages for actors that are not ours: one queue per target, on threads that a full inbox may block."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pykka import ActorDeadError

if TYPE_CHECKING:
    from pykka import ActorRef

    from actors.runtime import Runtime

__all__ = ["Forwarder", "Forwarders"]


class Forwarder:
    """The queue towards one foreign actor, in order; ends silently when that actor has stopped."""

    __slots__ = ("__weakref__", "_calls", "_ended", "_target")

    def __init__(self, runtime: Runtime, target: ActorRef[Any]) -> None:
        self._calls = runtime.calls()
        self._target = target
        self._ended = False

    def put(self, message: Any) -> None:
        """Have this told to the target after what was put before. Never blocks."""
        if not self._ended:
            self._calls.put(partial(self._tell, message))

    def _tell(self, message: Any) -> None:
        if self._ended:
            return
        try:
            self._target.tell(message)
        except ActorDeadError:
            self._ended = True


class Forwarders:
    """The forwarders in use; each lives as long as a submission that names its target."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._by_target: WeakValueDictionary[ActorRef[Any], Forwarder] = WeakValueDictionary()

    def towards(self, target: ActorRef[Any]) -> Forwarder:
        """Return the one queue towards this actor."""
        forwarder = self._by_target.get(target)
        if forwarder is None:
            forwarder = self._by_target[target] = Forwarder(self._runtime, target)
        return forwarder
