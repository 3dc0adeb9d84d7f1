"""How a runtime, its body runners and a registry are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.bodies import BodyRunners
from actors.runtime import Runtime
from admission.checks import check_count
from admission.identity import TaskId

if TYPE_CHECKING:
    from random import Random

__all__ = ["make_runtime", "open_runtime"]


def make_runtime(*, max_threads: int = 512, dispatchers: int = 1, random: Random | None = None) -> Runtime:
    """Make a runtime with the body runners of this library; nothing runs before its `start`.

    Args:
        max_threads: body threads at most; past it bodies wait, first in, first out.
        dispatchers: threads for our own actors. They never block: more than one only helps without a GIL.
        random: where jitter comes from.

    Raises:
        TypeError, ValueError: a number that is not a positive int.

    """
    for name, value in (("max_threads", max_threads), ("dispatchers", dispatchers)):
        if check_count(name, value, least=1) is None:
            msg = f"{name} must be an int, not None"
            raise TypeError(msg)
    return Runtime(BodyRunners(max_threads=max_threads), dispatchers=dispatchers, chance=random, new_id=TaskId.allocate)


def open_runtime(*, max_threads: int = 512, dispatchers: int = 1, random: Random | None = None) -> Runtime:
    """Make a runtime as `make_runtime` does and start it. Its owner calls `close` after the last actor has stopped."""
    runtime = make_runtime(max_threads=max_threads, dispatchers=dispatchers, random=random)
    runtime.start()
    return runtime
