"""Replays a history: each change is submitted when it is due, and asks its slot to rebuild its index."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

from actors import Supervisor
from admission import AdmissionPolicy, TaskSpec
from docs.examples.demo import index, outcomes
from docs.examples.demo.history import DAY, newest
from docs.examples.demo.ledger import Ledger
from docs.examples.demo.log import json_logger
from docs.examples.demo.progress import Board, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors import TaskContext, TaskHandle
    from docs.examples.demo.history import Change
    from docs.examples.demo.layout import Layout

__all__ = ["rebuild", "replay"]

BATCHES_PER_RUN: Final = 800
"""A batch is meant to take this part of the whole time: long enough for changes to come while a job can not look."""
GRACE: Final = 10.0
TO_THE_END: Final = 120.0
"""Seconds after the last change within which everything must have ended."""


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
