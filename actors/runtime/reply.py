"""Replies that are set once: by whoever comes first, and without an error for whoever comes second."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import Future

__all__ = ["Deferred", "set_once", "set_once_exception"]


def set_once(future: Future[Any], value: Any) -> None:
    """Set the reply unless it is set already: a Pykka future raises on its second `set`."""
    with contextlib.suppress(Exception):  # `queue.Full` by contract; a foreign future may raise what it likes
        future.set(value)


def set_once_exception(future: Future[Any], error: BaseException) -> None:
    """Set the reply to an error unless it is set already."""
    with contextlib.suppress(Exception):  # as above
        future.set_exception((type(error), error, error.__traceback__))


class Deferred:
    """A reply that a handler promises. Whoever holds it sets it once, later; setting it again does nothing."""

    __slots__ = ("_forget", "_future", "_outcome")

    def __init__(self) -> None:
        self._future: Future[Any] | None = None
        self._forget: Callable[[Deferred], object] | None = None
        self._outcome: tuple[bool, Any] | None = None

    @property
    def done(self) -> bool:
        """Whether the reply is there."""
        return self._outcome is not None

    def set(self, value: Any = None) -> None:
        """Reply with a value."""
        self._settle(ok=True, value=value)

    def fail(self, error: BaseException) -> None:
        """Reply with an error."""
        self._settle(ok=False, value=error)

    def bind(self, future: Future[Any], forget: Callable[[Deferred], object]) -> None:
        """Connect the waiting future; `forget` is called once the reply has left. For the runtime only."""
        self._forget = forget
        self._future = future
        self._reply()

    def _settle(self, *, ok: bool, value: Any) -> None:
        if self._outcome is None:
            self._outcome = (ok, value)
            self._reply()

    def _reply(self) -> None:
        # `bind` has stored the future, or `_settle` the outcome, before it comes here: of two that cross, one sees
        # both. Both may; then the future takes the first.
        future, forget, outcome = self._future, self._forget, self._outcome
        if future is None or forget is None or outcome is None:
            return
        ok, value = outcome
        if ok:
            set_once(future, value)
        else:
            set_once_exception(future, value)
        self._future = self._forget = None
        forget(self)
