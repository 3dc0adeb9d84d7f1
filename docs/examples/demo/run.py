"""The demo: 294 days in the life of a repository, replayed in seconds on slots that rebuild their index.

    python docs/examples/demo/run.py [--seconds N] [--out DIR] [--history FILE] [--documents N] [--verify]

Every change to a directory asks its slot for a new index, with the policy *replace*: the job that runs is asked to stop,
the one that waits is superseded. In the end every index carries its slot's newest revision, and no two jobs were ever
inside the same slot; `verify.py` finds that out from the files under ``build/demo``. ``--verify`` does it again.

Exit code: 0 if everything holds, 1 if not, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from actors import Supervisor
from admission import AdmissionPolicy, Rejected, TaskSpec
from docs.examples.demo import index
from docs.examples.demo.history import DAY, HISTORY, HistoryError, load, newest
from docs.examples.demo.layout import Layout
from docs.examples.demo.ledger import Ledger
from docs.examples.demo.progress import Board, Progress
from docs.examples.demo.verify import NO_LEAST, Least, verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from actors import TaskContext, TaskHandle
    from docs.examples.demo.history import Change

OUT: Final = Path(__file__).parents[3] / "build" / "demo"
SECONDS: Final = 15.0
BATCHES_PER_RUN: Final = 800
"""A batch is meant to take this part of the whole time: long enough for changes to come while a job can not look."""
GRACE: Final = 10.0
TO_THE_END: Final = 120.0
"""Seconds after the last change within which everything must have ended."""
LEAST: Final = Least(superseded=50, cancelled=10)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    layout = Layout(options.out)
    try:
        changes = load(options.history)
        faults = [] if options.verify else replay(changes, layout, options.seconds, options.documents)
        verdict = verify(changes, layout, LEAST if options.history == HISTORY else NO_LEAST)
    except (HistoryError, index.IndexUnavailableError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ninterrupted: all jobs were asked to stop; {layout.root} is not complete", file=sys.stderr)
        return 130
    verdict.violations += faults
    print(*verdict.lines(), sep="\n")
    return 1 if verdict.violations else 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Replays a repository's history on slots.")
    parser.add_argument("--seconds", type=_positive, default=SECONDS, help="for the whole history (%(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="for log, ledger and indexes (build/demo)")
    parser.add_argument("--history", type=Path, default=HISTORY, metavar="FILE", help="another history than ours")
    parser.add_argument("--documents", type=int, metavar="N", help="index at most so many documents")
    parser.add_argument("--verify", action="store_true", help="run nothing, judge what an earlier run has left")
    return parser.parse_args(argv)


def replay(changes: tuple[Change, ...], layout: Layout, seconds: float, most: int | None = None) -> list[str]:
    """Submit every change when it is due, wait for the end of everything, and return what went wrong, if anything."""
    layout.clear()
    documents = index.read_documents(most)
    size = index.measure(documents) * seconds / BATCHES_PER_RUN
    slots = newest(changes)
    plans = {slot: index.plan(documents, number / len(slots), size) for number, slot in enumerate(slots)}
    print(
        f"{len(changes)} changes to {len(slots)} slots over {changes[-1].at / DAY:.0f} days, in {seconds:g} s; a job "
        f"indexes some {sum(map(len, next(iter(plans.values()))))} of {len(documents)} documents",
        flush=True,
    )

    faults: list[str] = []
    handles: list[tuple[Change, TaskHandle[int]]] = []
    with layout.log.open("w", encoding="utf-8") as log, Ledger(layout) as ledger:
        supervisor = Supervisor(grace=GRACE, logger=json_logger(log))
        board = Board(changes, seconds)
        with supervisor, Progress(board, supervisor, sys.stdout, os.environ):
            for change in changes:
                wait_until(board.started + due(change, changes, seconds))
                body = partial(
                    rebuild, change=change, plan=plans[change.slot], layout=layout, ledger=ledger, board=board
                )
                spec = TaskSpec.once(body, name=change.task)
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
    layout.outcomes.write_text("".join(json.dumps(ended(change, handle)) + "\n" for change, handle in handles))
    return faults


def rebuild(
    ctx: TaskContext,
    *,
    change: Change,
    plan: Sequence[Sequence[index.Document]],
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


def due(change: Change, changes: tuple[Change, ...], seconds: float) -> float:
    """Return when this change is due on the compressed clock, in seconds after the start."""
    return seconds * change.at / (changes[-1].at or 1)


def wait_until(instant: float) -> None:
    pause = instant - time.monotonic()
    if pause > 0:
        time.sleep(pause)


def json_logger(file: TextIO) -> Any:
    """Return a logger of its own that writes every record, from debug on, as a line of JSON."""
    return structlog.wrap_logger(
        structlog.WriteLogger(file),
        processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger("debug"),
    ).bind()


def ended(change: Change, handle: TaskHandle[int]) -> dict[str, Any]:
    """Return what the handle says, for the verification."""
    outcome = handle.outcome() if handle.done() else None
    return {
        "id": int(handle.id),
        "slot": change.slot,
        "rev": change.rev,
        "outcome": outcome.label if outcome is not None else None,
        "rejection": outcome.kind if isinstance(outcome, Rejected) else None,
    }


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        msg = f"must be more than 0 seconds: {text}"
        raise argparse.ArgumentTypeError(msg)
    return value


if __name__ == "__main__":
    sys.exit(main())
