"""The demo: 294 days in the life of a repository, replayed in seconds on slots that rebuild their index.

    python docs/examples/demo/run.py [--seconds N] [--out DIR] [--history FILE] [--documents N] [--verify]

Every change to a directory asks its slot for a new index, with the policy *replace*: the job that runs is asked to
stop, the one that waits is superseded. In the end every index carries its slot's newest revision, and no two jobs were
ever inside the same slot; `verify.py` finds that out from the files under ``build/demo``. ``--verify`` does it again.

Exit code: 0 if everything holds, 1 if not, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors import Supervisor
from admission import AdmissionPolicy, TaskSpec
from docs.examples.demo import index, outcomes
from docs.examples.demo.history import DAY, HISTORY, HistoryError, load, newest
from docs.examples.demo.layout import Layout
from docs.examples.demo.ledger import Ledger
from docs.examples.demo.log import json_logger
from docs.examples.demo.progress import Board, Progress
from docs.examples.demo.verify import NO_LEAST, Least, verify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors import TaskContext, TaskHandle
    from docs.examples.demo.history import Change

OUT: Final = Path(__file__).parents[3] / "build" / "demo"
SECONDS: Final = 15.0
BATCHES_PER_RUN: Final = 800
"""A batch is meant to take this part of the whole time: long enough for changes to come while a job can not look."""
GRACE: Final = 10.0
TO_THE_END: Final = 120.0
"""Seconds after the last change within which everything must have ended."""
LEAST: Final = Least(superseded=50, cancelled_midway=10)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    layout = Layout(options.out)
    try:
        changes = load(options.history)
        faults = [] if options.verify else replay(changes, layout, options.seconds, options.documents)
        verdict = verify(changes, layout, LEAST if options.history == HISTORY else NO_LEAST)
        verdict.violations += faults
        print("", *verdict.lines(), sep="\n", flush=True)
    except KeyboardInterrupt:
        print(f"\ninterrupted: all jobs were asked to stop; {layout.root} is not complete", file=sys.stderr)
        return 130
    except BrokenPipeError:  # nobody reads on; what is still in the buffer must not complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (HistoryError, index.IndexUnavailableError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 1 if verdict.violations else 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Replays a repository's history on slots.")
    parser.add_argument("--seconds", type=seconds, default=SECONDS, help="for the whole history (%(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="for log, ledger and indexes (build/demo)")
    parser.add_argument("--history", type=Path, default=HISTORY, metavar="FILE", help="another history than ours")
    parser.add_argument("--documents", type=count, metavar="N", help="index at most so many documents")
    parser.add_argument("--verify", action="store_true", help="run nothing, judge what an earlier run has left")
    return parser.parse_args(argv)


def replay(changes: tuple[Change, ...], layout: Layout, duration: float, most: int | None = None) -> list[str]:
    """Submit every change when it is due, wait for the end of everything, and return what went wrong, if anything."""
    layout.clear()
    documents = index.read_documents(most)
    size = index.measure(documents) * duration / BATCHES_PER_RUN
    slots = newest(changes)
    plans = {slot: index.plan(documents, number / len(slots), size) for number, slot in enumerate(slots)}
    sizes = [sum(map(len, plan)) for plan in plans.values()]
    days = changes[-1].at / DAY
    print(f"{len(changes)} changes to {len(slots)} slots in {days:.0f} days, replayed in {duration:g} s")
    print(
        f"a job indexes {min(sizes)} to {max(sizes)} of {len(documents)} documents in {index.BATCHES} batches",
        flush=True,
    )

    faults: list[str] = []
    handles: list[tuple[Change, TaskHandle[int]]] = []
    with layout.log.open("w", encoding="utf-8") as log, Ledger(layout) as ledger:
        supervisor = Supervisor(grace=GRACE, logger=json_logger(log))
        board = Board(changes, duration)
        books = {"layout": layout, "ledger": ledger, "board": board}
        with supervisor, Progress(board, supervisor, sys.stdout, os.environ):
            for change in changes:
                wait_until(board.started + due(change, changes, duration))
                spec = TaskSpec.once(rebuild, args=(change, plans[change.slot]), kwargs=books, name=change.task)
                handle = supervisor.submit(spec, slot=change.slot, policy=AdmissionPolicy.REPLACE)
                handles.append((change, handle))
                board.submitted(change, handle)
            try:
                supervisor.join(timeout=TO_THE_END)
            except TimeoutError:
                faults.append(f"not everything had ended {TO_THE_END:g} s after the last change")
        report = supervisor.shutdown()  # the report of the one that has just been
    if not report.clean or report.log_dropped:
        faults.append(f"the shutdown was not clean: {report}")
    outcomes.write(layout.outcomes, [outcomes.ending(change, handle) for change, handle in handles])
    return faults


def rebuild(
    ctx: TaskContext,
    change: Change,
    plan: Sequence[Sequence[index.Document]],
    *,
    layout: Layout,
    ledger: Ledger,
    board: Board,
) -> int:
    """The body of every job: build the slot's index, unless asked to stop; return how many documents it has."""
    with ledger.inside(change.slot, change.rev), index.Build(layout.index(change.slot)) as build:
        for number, batch in enumerate(plan, start=1):
            ctx.raise_if_cancelled()
            build.add(batch)
            board.built(change, number, len(plan))
        return build.publish(change.rev)


def due(change: Change, changes: tuple[Change, ...], duration: float) -> float:
    """Return when this change is due on the compressed clock, in seconds after the start."""
    return duration * change.at / (changes[-1].at or 1)


def wait_until(instant: float) -> None:
    pause = instant - time.monotonic()
    if pause > 0:
        time.sleep(pause)


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


if __name__ == "__main__":
    sys.exit(main())
