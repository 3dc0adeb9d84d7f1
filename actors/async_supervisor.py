"""The face for event loops: `AsyncSupervisor`, made by ``async with Supervisor(...)``."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pykka import ActorDeadError
from pykka._envelope import Envelope

from actors.budget import closed_error
from actors.face import (
    check_spec,
    check_submission,
    check_target,
    is_name_in_body,
    refuse_in_body,
    refuse_own_body,
)
from actors.messages import Add, Alive, Cancel, Explain, Join, Remove, RunOut, Shutdown, Snapshot, Tasks
from actors.observers.subscribers import CAPACITY
from actors.prepared import AsyncPreparedSubmission
from actors.runs import check_mixed, check_works, on_os_signals
from actors.runtime import deliver
from admission import snapshot as views
from admission.checks import check_optional_duration
from admission.errors import ResourceLimitError, SupervisorClosedError
from admission.policy import AdmissionPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import timedelta

    from pykka import ActorRef

    from actors.budget import Intake
    from actors.face import Core
    from actors.handle import TaskHandle
    from actors.observers.subscribers import Subscriber, Subscription
    from actors.registry import RegistryActor
    from admission.identity import TaskId
    from admission.report import ShutdownReport
    from admission.spec import Submission, TaskSpec

__all__ = ["AsyncSupervisor"]

T = TypeVar("T")


class AsyncSupervisor:
    """The same names for an event loop: whatever may wait is a coroutine. Made by ``async with Supervisor(...)``."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def registry(self) -> ActorRef[RegistryActor]:
        """The registry's ref, for actors."""
        return self._core.running()

    @overload
    async def submit(
        self, work: TaskSpec[T] | Submission[T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> TaskHandle[T]: ...
    @overload
    async def submit(
        self, work: Callable[..., Awaitable[T]], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> TaskHandle[T]: ...
    @overload
    async def submit(
        self, work: Callable[..., T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> TaskHandle[T]: ...
    async def submit(
        self, work: Any, *, slot: str | None = None, policy: AdmissionPolicy | str = AdmissionPolicy.QUEUE
    ) -> TaskHandle[Any]:
        """See `Supervisor.submit`. Cancelled while it waits for the intake, it has submitted nothing."""
        return await self.submit_prepared(check_submission(work, slot, policy))

    async def submit_prepared(self, submission: Submission[T], number: TaskId | None = None) -> TaskHandle[T]:
        """Submit what has been checked, under the number that it may have already."""
        core = self._core
        core.running()
        gate = _LoopGate(core.intake)
        if not core.intake.take(gate.open):
            await gate.passed()
        return core.send(submission, number)

    @overload
    def try_submit(
        self, work: TaskSpec[T] | Submission[T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> TaskHandle[T]: ...
    @overload
    def try_submit(
        self, work: Callable[..., Awaitable[T]], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> TaskHandle[T]: ...
    @overload
    def try_submit(
        self, work: Callable[..., T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> TaskHandle[T]: ...
    def try_submit(
        self, work: Any, *, slot: str | None = None, policy: AdmissionPolicy | str = AdmissionPolicy.QUEUE
    ) -> TaskHandle[Any]:
        """See `Supervisor.try_submit`; never waits."""
        return self._core.try_submit(check_submission(work, slot, policy))

    def try_submit_prepared(self, submission: Submission[T], number: TaskId) -> TaskHandle[T]:
        """Submit what has been checked, under the number that it has, without waiting."""
        return self._core.try_submit(submission, number)

    @overload
    def prepare(
        self, work: TaskSpec[T] | Submission[T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> AsyncPreparedSubmission[T]: ...
    @overload
    def prepare(
        self, work: Callable[..., Awaitable[T]], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> AsyncPreparedSubmission[T]: ...
    @overload
    def prepare(
        self, work: Callable[..., T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> AsyncPreparedSubmission[T]: ...
    def prepare(
        self, work: Any, *, slot: str | None = None, policy: AdmissionPolicy | str = AdmissionPolicy.QUEUE
    ) -> AsyncPreparedSubmission[Any]:
        """See `Supervisor.prepare`."""
        return AsyncPreparedSubmission(self, check_submission(work, slot, policy), self._core.runtime.new_id())

    @overload
    async def add(self, work: TaskSpec[T]) -> TaskHandle[T]: ...
    @overload
    async def add(self, work: Callable[..., Awaitable[T]]) -> TaskHandle[T]: ...
    @overload
    async def add(self, work: Callable[..., T]) -> TaskHandle[T]: ...
    async def add(self, work: Any) -> TaskHandle[Any]:
        """See `Supervisor.add`. Cancelled while it waits, it is registered all the same."""
        handles: list[TaskHandle[Any]] = await self._ask(Add(check_spec("work", work)), None)
        return handles[0]

    async def add_batch(self, works: Iterable[Any]) -> list[TaskHandle[Any]]:
        """See `Supervisor.add_batch`."""
        specs = check_works("works", works)
        self._core.running()
        handles: list[TaskHandle[Any]] = await self._ask(Add(*specs), None) if specs else []
        return handles

    async def run(self, works: Iterable[Any] = ()) -> ShutdownReport:
        """See `Supervisor.run`. Cancelling the wait leaves everything running."""
        return await self._run(check_mixed("works", works), None)

    async def run_until(self, works: Iterable[Any], stop: asyncio.Event) -> ShutdownReport:
        """See `Supervisor.run_until`; `stop` is an `asyncio.Event` of this loop."""
        checked = check_mixed("works", works)
        if not isinstance(stop, asyncio.Event):
            msg = f"stop must be an asyncio.Event, not {type(stop).__name__}"
            raise TypeError(msg)
        return await self._run(checked, stop)

    async def run_with_os_signals(self, works: Iterable[Any] = ()) -> ShutdownReport:
        """See `Supervisor.run_with_os_signals`; the loop must be that of the main thread."""
        checked = check_mixed("works", works)
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        with on_os_signals(lambda: loop.call_soon_threadsafe(stop.set)):
            return await self._run(checked, stop)

    async def _run(
        self, works: tuple[list[TaskSpec[Any]], list[Submission[Any]]], stop: asyncio.Event | None
    ) -> ShutdownReport:
        core, (specs, submissions) = self._core, works
        refuse_in_body("run")
        core.claim_run()
        if stop is not None and stop.is_set():
            return await self.shutdown()
        try:
            if specs:
                await self._ask(Add(*specs), None)
            for submission in submissions:
                await self.submit_prepared(submission)
        except ResourceLimitError:
            core.release_run()
            raise
        except SupervisorClosedError:
            return await self.shutdown()
        stopping = asyncio.ensure_future(_shut_down_after(stop, self)) if stop is not None else None
        try:
            with suppress(SupervisorClosedError):
                await self._ask(RunOut(), None)
        finally:
            if stopping is not None:
                stopping.cancel()
        return core.concluded()

    async def join(self, timeout: float | timedelta | None = None) -> None:  # noqa: ASYNC109
        """See `Supervisor.join`."""
        refuse_in_body("join")
        await self._ask(Join(), timeout)

    async def cancel(self, target: TaskId | str, *, timeout: float | timedelta | None = None) -> bool:  # noqa: ASYNC109
        """See `Supervisor.cancel`."""
        target = check_target(target)
        refuse_own_body(target, await self.tasks() if is_name_in_body(target) else ())
        seconds = check_optional_duration("timeout", timeout)
        return bool(await self._ask(Cancel(target, wait=True, timeout=seconds), None))

    async def remove(self, target: TaskId | str) -> bool:
        """See `Supervisor.remove`."""
        return bool(await self._ask(Remove(check_target(target)), None))

    async def tasks(self) -> list[tuple[TaskId, str]]:
        """See `Supervisor.tasks`."""
        if self._core.settlement.report is not None:
            return []
        tasks: list[tuple[TaskId, str]] = await self._ask(Tasks(), None)
        return tasks

    async def snapshot(self) -> views.Snapshot:
        """See `Supervisor.snapshot`."""
        if self._core.settlement.report is not None:
            return views.Snapshot()
        snapshot: views.Snapshot = await self._ask(Snapshot(), None)
        return snapshot

    async def alive(self) -> tuple[str, ...]:
        """See `Supervisor.alive`."""
        if self._core.settlement.report is not None:
            return ()
        alive: tuple[str, ...] = await self._ask(Alive(), None)
        return alive

    async def explain(self, target: TaskId | str) -> views.Explanation | None:
        """See `Supervisor.explain`."""
        target = check_target(target, "slot key")
        if self._core.settlement.report is not None:
            return None
        explanation: views.Explanation | None = await self._ask(Explain(target), None)
        return explanation

    def subscribe(self, subscriber: Subscriber, *, name: str | None = None, capacity: int = CAPACITY) -> Subscription:
        """See `Supervisor.subscribe`; never waits. The subscriber is told on a thread, not on this loop."""
        return self._core.subscribe(subscriber, name, capacity)

    async def shutdown(self) -> ShutdownReport:
        """See `Supervisor.shutdown`. Cancelling the wait does not stop or change the shutdown."""
        refuse_in_body("shutdown")
        if self._core.settlement.report is None:
            with suppress(SupervisorClosedError):  # somebody else's shutdown was faster
                await self._ask(Shutdown(), None)
        return self._core.concluded()

    async def _ask(self, message: Any, timeout: float | timedelta | None) -> Any:  # noqa: ASYNC109
        registry = self._core.running()
        seconds = check_optional_duration("timeout", timeout)
        reply = _LoopReply()
        deliver(registry, Envelope(message, reply_to=reply))  # type: ignore[arg-type]
        try:
            return await asyncio.wait_for(reply.future, seconds)
        except ActorDeadError:
            raise closed_error() from None


async def _shut_down_after(stop: asyncio.Event, supervisor: AsyncSupervisor) -> None:
    await stop.wait()
    await supervisor.shutdown()


class _LoopReply:
    """The future of an ask, for an event loop: what Pykka's future is for a thread."""

    __slots__ = ("_loop", "future")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def set(self, value: Any = None) -> None:
        self._settle(partial(self.future.set_result, value))

    def set_exception(self, exc_info: tuple[Any, BaseException, Any]) -> None:
        self._settle(partial(self.future.set_exception, exc_info[1]))

    def _settle(self, action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(lambda: self.future.done() or action())


class _LoopGate:
    """Where a submitting coroutine waits for its place in the intake."""

    __slots__ = ("_intake", "_loop", "_place")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._loop = asyncio.get_running_loop()
        self._place: asyncio.Future[bool] = self._loop.create_future()

    def open(self, granted: bool) -> bool:  # noqa: FBT001
        try:
            self._loop.call_soon_threadsafe(self._settle, granted)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return False
        return True

    def _settle(self, granted: bool) -> None:  # noqa: FBT001
        if not self._place.done():
            self._place.set_result(granted)
        elif granted:  # cancelled meanwhile: the place goes back
            self._intake.give()

    async def passed(self) -> None:
        """Wait for the place; a waiter that is cancelled keeps none."""
        try:
            granted = await self._place
        except BaseException:
            self._intake.withdraw(self.open)
            if self._place.done() and not self._place.cancelled() and self._place.result():
                self._intake.give()
            raise
        if not granted:
            raise closed_error()
