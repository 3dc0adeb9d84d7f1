"""Locks that many small objects share instead of having one each. Held for a few instructions that make nothing."""

from __future__ import annotations

import os
from _thread import RLock, allocate_lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _thread import LockType

__all__ = ["shared_lock", "shared_rlock"]

L = TypeVar("L")


def shared_lock() -> LockType:
    """Make a lock that is free in a forked child, whoever held it in the parent."""
    return _freed_by_fork(allocate_lock())


def shared_rlock() -> RLock:
    """The same, reentrant: for where the collector may run a finalizer that comes back."""
    return _freed_by_fork(RLock())


def _freed_by_fork(lock: L) -> L:
    known: Any = lock
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=known._at_fork_reinit)  # noqa: SLF001 - as the standard library does
    return lock
