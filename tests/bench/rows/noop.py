"""Row: 20,000 no-op submissions, queue policy, 100 slots, all outcomes awaited."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from actors import Supervisor
from admission import AdmissionLimits, AdmissionPolicy, Completed
from tests.bench import thread_per_actor
from tests.bench.method import Goal, Row, Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ROW", "executor", "noop", "slotkeeper", "threading_actors"]

SLOTS = 100
EXECUTOR_THREADS = 4
LIMITS = AdmissionLimits(
    intake=None,
    max_slot_queue=None,
    max_slots=None,
    max_total_pending=None,
    max_tasks=None,
    max_concurrent=None,
    max_warm_slots=None,
    slot_idle_timeout=3600.0,  # no slot is retired while the other side has its turn
)


def noop(_ctx: object) -> None:
    """What all sides run."""


def keys(jobs: int) -> list[str]:
    return [f"slot-{number % SLOTS}" for number in range(jobs)]


@contextmanager
def slotkeeper(jobs: int) -> Iterator[Callable[[], float]]:
    slots = keys(jobs)
    with Supervisor(limits=LIMITS) as supervisor:

        def one_round() -> float:
            began = perf_counter()
            handles = [supervisor.submit(noop, slot=slot, policy=AdmissionPolicy.QUEUE) for slot in slots]
            outcomes = [handle.outcome() for handle in handles]
            took = perf_counter() - began
            assert all(isinstance(outcome, Completed) for outcome in outcomes)
            return took

        yield one_round


@contextmanager
def executor(jobs: int) -> Iterator[Callable[[], float]]:
    with ThreadPoolExecutor(EXECUTOR_THREADS) as pool:

        def one_round() -> float:
            began = perf_counter()
            futures = [pool.submit(noop, None) for _ in range(jobs)]
            results = [future.result() for future in futures]
            took = perf_counter() - began
            assert results == [None] * jobs
            return took

        yield one_round


@contextmanager
def threading_actors(jobs: int) -> Iterator[Callable[[], float]]:
    slots = keys(jobs)
    with thread_per_actor.opened() as pipeline:

        def one_round() -> float:
            began = perf_counter()
            futures = [pipeline.submit(noop, slot) for slot in slots]
            results = [future.get() for future in futures]
            took = perf_counter() - began
            assert results == [None] * jobs
            return took

        yield one_round


OURS = Side(name="slotkeeper", jobs=20_000, opened=slotkeeper)
ROW = Row(
    name="noop",
    title="20,000 no-op submissions, queue policy, 100 slots, all outcomes awaited",
    goals=(
        Goal(
            ours=OURS,
            other=Side(name=f"ThreadPoolExecutor({EXECUTOR_THREADS})", jobs=20_000, opened=executor),
            now=0.3,
            later=0.5,
        ),
        Goal(
            ours=OURS,
            other=Side(name="a ThreadingActor per slot and attempt", jobs=2_000, opened=threading_actors),
            now=5,
            later=8,
        ),
    ),
)
