"""How parallel the machine is at this moment: what two busy processes get done, against one alone.

2.0 = each of the two works as if it were alone; 1.0 = they share what one has.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from statistics import median
from typing import Self

from tests.bench.method import ROOT

__all__ = ["parallelism"]

_CHUNK = 1000


def parallelism(*, samples: int = 5, seconds: float = 0.2) -> float:
    """Measures it: the median of some samples, each of `seconds` alone and `seconds` together."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(_Busy()) for _ in range(2))
        return median(_sample(one, two, seconds) for _ in range(samples))


def _sample(one: _Busy, two: _Busy, seconds: float) -> float:
    one.go(seconds)
    alone = one.done()
    for process in (one, two):
        process.go(seconds)
    return (one.done() + two.done()) / alone


class _Busy:
    """A process that waits for a number of seconds, spins for as long, and says how often it went round."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.bench.parallel"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.done()  # it is there
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._process.communicate()  # the end of its input is its own end

    def go(self, seconds: float) -> None:
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)

    def done(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def _spin(seconds: float) -> int:
    turns = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(_CHUNK):
            turns += 1
    return turns


if __name__ == "__main__":
    print(0, flush=True)
    for line in sys.stdin:
        print(_spin(float(line)), flush=True)
