"""Who is asked to stop, and how that reaches whoever waits for it and the contexts below.

What bodies see of it is in `actors.bodies.context`. Contexts look into each other here; bodies do not.
"""
# ruff: noqa: SLF001

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from weakref import ref

from actors.runtime.guard import shared_lock
from admission.effects import Cause
from admission.errors import TaskCancelledError

if TYPE_CHECKING:
    import asyncio

    from admission.identity import TaskId

__all__ = [
    "Bell",
    "Cancellable",
    "Context",
    "apart",
    "attempt_above",
    "below",
    "cancel",
    "hear",
    "is_heard",
    "settle",
    "wake",
]

_creating = shared_lock()


class Bell(threading.Event):
    """What a context gets when somebody waits for its cancellation or it has a child: most never do.

    Threads wait for the event, coroutines put a future among the `sleepers`. A table is copied, in one step, before it
    is walked: whoever comes in meanwhile looks at the context's cause once more after that, which is set first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sleepers: dict[asyncio.Future[None], None] = {}
        self.heard = False  # the body has been told already by what it awaited
        self._children: dict[ref[Cancellable], None] = {}

    def adopt(self, child: Cancellable) -> None:
        """Know this child as long as somebody else does."""
        self._children[ref(child, self._children.pop)] = None

    def children(self) -> list[Cancellable]:
        """Return the children that there are."""
        return [child for known in list(self._children) if (child := known()) is not None]

    def ring(self) -> None:
        """Wake everybody. Never blocks, never raises."""
        self.set()
        for sleeper in list(self.sleepers):
            with suppress(RuntimeError):  # its loop is closed: nobody sleeps any more
                sleeper.get_loop().call_soon_threadsafe(settle, sleeper)


def settle(future: asyncio.Future[None]) -> None:
    """Wake whoever awaits this. On its loop's thread."""
    if not future.done():
        future.set_result(None)


class Context:
    """Who a body is, and whether it is asked to stop."""

    __slots__ = ("_bell", "_cause", "attempt", "slot", "task", "task_id")

    def __init__(self, task_id: TaskId, task: str, slot: str | None, attempt: int) -> None:
        self._cause: Cause | None = None
        self._bell: Bell | None = None  # most bodies never wait
        self.task_id = task_id
        """The number of the submission."""
        self.task = task
        """The name under which the run is registered."""
        self.slot = slot
        """The slot that this run owns; None for a run that was added directly."""
        self.attempt = attempt
        """Which attempt of the run this is, from 1."""

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled else "running"
        return f"<{type(self).__name__} {self.task_id} slot={self.slot!r} attempt={self.attempt} {state}>"

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is asked to stop (cancelled, replaced, timed out, shutdown). Costs next to nothing."""
        return self._cause is not None

    def raise_if_cancelled(self) -> None:
        """End the body here if it is asked to stop.

        Raises:
            TaskCancelledError: it is. Let it pass: the attempt then ends as cancelled.

        """
        if self._cause is not None:
            msg = f"{self.task_id} is asked to stop ({self._cause})"
            raise TaskCancelledError(msg)

    def _ask_to_stop(self, cause: Cause) -> None:
        reached: list[Context] = [self]
        for ctx in reached:  # grows while it is walked: no depth is too much for it
            if ctx._cause is None:
                ctx._cause = cause
            if ctx._bell is not None:
                ctx._bell.ring()
                reached += ctx._bell.children()

    def _get_bell(self) -> Bell:
        """Return the bell. Who has added himself to it looks at the cause once more: `_ask_to_stop` sets that first."""
        if self._bell is None:
            bell = Bell()  # made before the lock is taken: the collector may run a finalizer
            with _creating:
                if self._bell is None:
                    self._bell = bell
        return self._bell

    def _wait(self, timeout: float | None) -> bool:
        bell = self._get_bell()
        if self._cause is not None:
            return True
        return bell.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))


def cancel(ctx: Context, cause: Cause) -> None:
    """Ask an attempt to stop, and wake whoever waits for that. Never blocks; the first cause stays.

    Done by the slot itself, before anybody is told that it is done.
    """
    ctx._ask_to_stop(cause)


def hear(attempt: Context) -> None:
    """Note that the attempt's task has been told to stop, so that its cancellation does not hit what comes next.

    On the loop's thread, like `is_heard`: whichever of the two comes first, the other sees it.
    """
    attempt._get_bell().heard = True


def is_heard(attempt: Context) -> bool:
    """Tell whether the attempt's task has been told to stop; once, then it may be cancelled again."""
    bell = attempt._bell
    if bell is None or not bell.heard:
        return False
    bell.heard = False
    return True


def wake(ctx: Context) -> None:
    """Wake whoever waits for this to be cancelled, though it is not."""
    ctx._get_bell().ring()


class Cancellable(Context):
    """A context with a scope of its own: cancelled with its parent, or alone."""

    __slots__ = ()
    _parent: Context | None
    """Lives as long as its child: the road from above must not break in the middle."""

    def cancel(self) -> None:
        """Ask whoever was given this context, or one below it, to stop; what is above is not touched. Never blocks."""
        self._ask_to_stop(Cause.CANCEL)


C = TypeVar("C", bound=Cancellable)


def below(parent: Context, child: C) -> C:
    """Have the child cancelled with its parent, which keeps only a weak reference to it."""
    child._parent = parent
    parent._get_bell().adopt(child)
    if parent._cause is not None:
        child._ask_to_stop(parent._cause)
    return child


def attempt_above(ctx: Context) -> Context | None:
    """Return the context that an attempt was given and this one descends from, if it does."""
    above: Context | None = ctx
    while isinstance(above, Cancellable):
        above = above._parent
    return above


def apart(ctx: C, *, cancelled: bool) -> C:
    """Have nobody above this one."""
    ctx._parent = None
    if cancelled:
        ctx.cancel()
    return ctx
