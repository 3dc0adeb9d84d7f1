"""Locks that many small objects share instead of having one each. Held for a few instructions that make nothing."""

from __future__ import annotations

import os
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _thread import LockType

__all__ = ["shared_lock"]


def shared_lock() -> LockType:
    """Make a lock that is free in a forked child, whoever held it in the parent."""
    lock: Any = allocate_lock()
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # noqa: SLF001 - as the standard library does
    return lock  # type: ignore[no-any-return]
