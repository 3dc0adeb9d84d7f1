"""Submits by *drop if running* right after every outcome, on real threads; prints how many were turned away.

    python -m tests.actors.free_after_outcome TIMES

A program of its own, so that a hundred thousand times do not run under coverage.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

from actors import Supervisor
from admission import Cancelled, Completed, Failed, FatalError, Rejected, TaskCancelledError
from admission.outcome import Fatal

THREADS = 4


def returns(_ctx):
    return "done"


def raises(error):
    def body(_ctx):
        raise error

    return body


def until_cancelled(ctx):
    ctx.wait(30)
    ctx.raise_if_cancelled()


ENDS = (
    (returns, Completed),
    (raises(ValueError("fails")), Failed),
    (returns, Completed),
    (raises(FatalError("for good")), Fatal),
    (raises(TaskCancelledError("by itself")), Cancelled),
)
"""Bodies and how they end; most complete, because that is what is in a hurry."""


def submit_one_after_the_other(supervisor, slot, times):
    turned_away = 0
    for number, (body, end) in zip(range(times), cycle(ENDS), strict=False):
        cancels = number % 50 == 0
        handle = supervisor.submit(until_cancelled if cancels else body, slot=slot, policy="drop_if_running")
        if cancels:
            handle.cancel()
        outcome = handle.outcome(60)
        if isinstance(outcome, Rejected):
            turned_away += 1
        else:
            assert isinstance(outcome, Cancelled if cancels else end), outcome
    return turned_away


def main(times):
    with Supervisor(grace=5) as supervisor, ThreadPoolExecutor(THREADS) as pool:
        slots = [f"slot-{number}" for number in range(THREADS)]
        counts = pool.map(lambda slot: submit_one_after_the_other(supervisor, slot, times // THREADS), slots)
        sys.stdout.write(f"{sum(counts)}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
