"""The public interface as type checkers see it. Checked by `make check`, and run as a test."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never, assert_type

from actors import (
    AsyncSupervisor,
    AsyncTaskContext,
    PreparedSubmission,
    Subscription,
    Supervisor,
    TaskContext,
    TaskHandle,
)
from admission import (
    AdmissionLimits,
    AdmissionPolicy,
    Backoff,
    Cancelled,
    Completed,
    Event,
    Explanation,
    Failed,
    Fatal,
    ForceAborted,
    Outcome,
    Panicked,
    Rejected,
    RejectionKind,
    ShutdownReport,
    Snapshot,
    Submission,
    TaskDefaults,
    TaskId,
    TaskSpec,
)


def count(ctx: TaskContext, upto: int) -> int:
    """Count."""
    ctx.raise_if_cancelled()
    return upto if not ctx.wait(0) else 0


async def greet(ctx: AsyncTaskContext, name: str) -> str:
    """Greet."""
    await ctx.sleep(0)
    return f"hello {name}"


def spec_of(name: str) -> TaskSpec[str]:
    """Describe a greeting."""
    return TaskSpec.once(greet, args=(name,))


def describe(outcome: Outcome[int]) -> str:
    """Name an outcome; the match is complete."""
    match outcome:
        case Completed(value=value):
            assert_type(value, int)
            return "completed"
        case Failed(exit_code=code) | Fatal(exit_code=code):
            assert_type(code, int | None)
            return "failed"
        case Cancelled() | ForceAborted():
            return "stopped"
        case Panicked(reason=reason):
            return reason
        case Rejected(kind=kind):
            assert_type(kind, RejectionKind)
            return kind.value
        case _:
            assert_never(outcome)


def threads() -> None:
    """Use the face for threads."""
    spec = TaskSpec.once(count, args=(3,), attempt_timeout=timedelta(seconds=5), max_retries=None)
    assert_type(spec, TaskSpec[int])
    limits = AdmissionLimits(max_concurrent=2)
    seen: list[Event] = []
    defaults = TaskDefaults(backoff=Backoff.constant(0.1))
    with Supervisor(grace=1, limits=limits, defaults=defaults) as supervisor:
        handle = supervisor.submit(spec, slot="a", policy=AdmissionPolicy.REPLACE)
        assert_type(handle, TaskHandle[int])
        assert_type(handle.outcome(5), Outcome[int])
        assert_type(handle.result(5), int)
        assert_type(handle.id, TaskId)
        assert describe(handle.outcome()) == "completed"
        assert_type(supervisor.try_submit(Submission(spec, slot="b")).result(5), int)
        assert_type(supervisor.snapshot(), Snapshot)
        assert_type(supervisor.tasks(), list[tuple[TaskId, str]])
        assert_type(supervisor.cancel(handle.id), bool)
        assert_type(supervisor.prepare(spec, slot="c"), PreparedSubmission[int])
        assert_type(supervisor.prepare(spec, slot="c").submit().result(5), int)
        assert_type(supervisor.add(spec).result(5), int)
        assert_type(supervisor.alive(), tuple[str, ...])
        assert_type(supervisor.explain("a"), Explanation | None)
        with supervisor.subscribe(seen.append) as subscription:
            assert_type(subscription, Subscription)
        assert_type(supervisor.shutdown(), ShutdownReport)


async def loop() -> None:
    """Use the face for event loops."""
    async with Supervisor(grace=1) as supervisor:
        assert_type(supervisor, AsyncSupervisor)
        handle = await supervisor.submit(TaskSpec.restartable(greet, args=("you",)), slot="a")
        assert (await handle).label
        assert handle.result() == "hello you"
        assert_type(await supervisor.add(spec_of("me")), TaskHandle[str])
        assert_type(await supervisor.prepare(spec_of("me"), slot="b").submit(), TaskHandle[str])
        assert_type(await supervisor.explain("a"), Explanation | None)
        await supervisor.join()
