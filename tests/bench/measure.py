"""The process in which one pair is measured: an order on stdin, the seconds of every round that counts on stdout.

Both sides are set up once and stay up; they take turns, and each starts its turn in a process that has come to rest:
what the other left behind is collected, and none of its threads is still tidying up.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import sys
import time
from contextlib import ExitStack
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_GLANCE = 0.02
"""Seconds over which the process is watched for being at rest."""
_AT_REST = 0.1
"""The part of that time that it may use the CPU for."""
_RESTLESS = 10.0
"""Seconds after which it is not going to come to rest any more."""
_HANGS = 60.0
"""Seconds after which a round, or the end, is given up: the process says where its threads are, and exits with 1."""


def run(order: dict[str, Any]) -> list[list[float]]:
    watch()
    with ExitStack() as stack:
        sides = [stack.enter_context(resolve_name(side["opened"])(side["jobs"])) for side in order["sides"]]
        for _ in range(order["warm_ups"]):
            for side in sides:
                one_round(side)
        seconds: list[list[float]] = [[] for _ in sides]
        for _ in range(order["rounds"]):
            for side, taken in zip(sides, seconds, strict=True):
                taken.append(one_round(side))
        return seconds


def one_round(side: Callable[[], float]) -> float:
    gc.collect()
    rest()
    watch()
    seconds = side()
    watch()
    return seconds


def watch() -> None:
    """Gives the process another while for what comes next: a round, or the end of all."""
    faulthandler.dump_traceback_later(_HANGS, exit=True)


def rest() -> None:
    """Waits until this process uses next to no CPU."""
    deadline = time.monotonic() + _RESTLESS
    while time.monotonic() < deadline:
        used = time.process_time()
        time.sleep(_GLANCE)
        if time.process_time() - used < _GLANCE * _AT_REST:
            return
    msg = f"{_RESTLESS:g} s after a round the process is still busy; the next one would pay for that"
    raise RuntimeError(msg)


if __name__ == "__main__":
    json.dump(run(json.load(sys.stdin)), sys.stdout)
