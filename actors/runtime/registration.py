"""Pykka's registry and Pykka's log, for actors that do not depend on either.

Pykka logs whatever it does, and so do our actors, under its name. What a log filter, a log handler or the text of an
application's object raises meanwhile must end nothing and leave nothing half done.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from pykka import ActorRegistry

if TYPE_CHECKING:
    from pykka import ActorRef

__all__ = ["log", "register", "unregister"]

_logger = logging.getLogger("pykka")


def register(ref: ActorRef[Any]) -> None:
    """Enter a ref into `ActorRegistry`."""
    with contextlib.suppress(Exception):
        ActorRegistry.register(ref)  # logs when it is done


def unregister(ref: ActorRef[Any]) -> None:
    """Take a ref out of `ActorRegistry`. Costs a scan of all that are in."""
    with contextlib.suppress(BaseException):
        ActorRegistry.unregister(ref)  # logs when it is done


def log(level: int, text: str, *args: Any, exc_info: Any = None) -> None:
    """Log what `text.format(*args)` gives, or nothing if that raises."""
    with contextlib.suppress(BaseException):
        if _logger.isEnabledFor(level):
            _logger.log(level, text.format(*args), exc_info=exc_info)
