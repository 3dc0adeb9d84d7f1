"""The face for code that is not an actor: `Supervisor` for threads, `AsyncSupervisor` for event loops."""

from __future__ import annotations

import asyncio
import atexit
import threading
import warnings
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from pykka import ActorDeadError
from pykka._envelope import Envelope

from actors.assembly import make_runtime
from actors.budget import Intake, closed_error
from actors.current import current_task
from actors.ending import Settlement, make_handle
from actors.messages import Cancel, Join, Remove, Shutdown, Snapshot, Submit, Tasks
from actors.registry import RegistryActor
from actors.runtime import deliver
from admission import snapshot as views
from admission.checks import check_duration, check_optional_duration
from admission.errors import IntakeFullError, NotStartedError, SupervisorClosedError
from admission.identity import TaskId
from admission.limits import AdmissionLimits
from admission.policy import AdmissionPolicy
from admission.report import ShutdownReport
from admission.spec import Submission, TaskDefaults, TaskSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta
    from types import TracebackType

    from pykka import ActorRef

    from actors.handle import TaskHandle
    from actors.runtime import Runtime

__all__ = ["AsyncSupervisor", "Supervisor"]

T = TypeVar("T")
_EXIT_GRACE = 1.0
"""Seconds that bodies have at interpreter exit where nobody shut the supervisor down."""
_JOIN_THREADS = 1.0
"""Seconds that a shutdown waits for our own threads to end after the report is there."""


def _submission(work: Any, slot: str | None, policy: AdmissionPolicy | str) -> Submission[Any]:
    """Check what is submitted, in the caller's thread."""
    if isinstance(work, Submission):
        if slot is not None or policy is not AdmissionPolicy.QUEUE:
            msg = "a Submission has its slot and policy already; pass it alone"
            raise TypeError(msg)
        return work  # pyright: ignore[reportUnknownVariableType]
    return Submission(work, slot, policy)


def _target(target: object) -> TaskId | str:
    if isinstance(target, (TaskId, str)):
        return target
    msg = f"target must be a TaskId or a task name (str), not {type(target).__name__}"
    raise TypeError(msg)


class _Core:
    """What both faces stand on: the runtime, the registry, the intake, and the one shutdown."""

    def __init__(
        self,
        *,
        grace: float | timedelta,
        limits: AdmissionLimits | None,
        defaults: TaskDefaults | None,
        runtime: Runtime | None,
        logger: Any,
        observer_timeout: float | timedelta,
    ) -> None:
        self.grace = check_duration("grace", grace)
        self.observer_timeout = check_duration("observer_timeout", observer_timeout)
        self.limits = _instance("limits", limits, AdmissionLimits)
        self.defaults = _instance("defaults", defaults, TaskDefaults)
        self.owns_runtime = runtime is None
        self.runtime = runtime if runtime is not None else make_runtime()
        self.logger = logger
        self.intake = Intake(self.limits.intake)
        self.settlement = Settlement()
        self.registry: ActorRef[RegistryActor] | None = None
        self._starting = threading.Lock()

    def start(self) -> ActorRef[RegistryActor]:
        self.runtime.check_forked()
        with self._starting:
            if self.registry is None:
                self.runtime.start()
                try:
                    self.registry = RegistryActor.start(
                        self.runtime,
                        grace=self.grace,
                        limits=self.limits,
                        defaults=self.defaults,
                        logger=self.logger,
                        observer_timeout=self.observer_timeout,
                        intake=self.intake,
                        settlement=self.settlement,
                    )
                except BaseException:
                    if self.owns_runtime:
                        self.runtime.close()
                    raise
                _open_cores.add(self)
            return self.registry

    def running(self) -> ActorRef[RegistryActor]:
        """Return the registry, for a call that needs one that still works."""
        self.runtime.check_forked()
        if self.settlement.report is not None:
            raise closed_error()
        if self.registry is None:
            msg = "the supervisor has not been started; use `with Supervisor(...) as supervisor:` or call start()"
            raise NotStartedError(msg)
        return self.registry

    def send(self, submission: Submission[T]) -> TaskHandle[T]:
        """Hand a submission in that has its place in the intake."""
        registry = self.running()
        try:
            handle = make_handle(submission, self.runtime, registry)
            message = Submit(submission, handle=handle, intake=self.intake)
        except BaseException:
            self.intake.give()
            raise
        deliver(registry, message)
        return handle

    def concluded(self) -> ShutdownReport:
        """Close what this supervisor owns, once the report is there."""
        report = self.settlement.report
        assert report is not None
        _open_cores.discard(self)
        if self.owns_runtime:
            self.runtime.close()
        return report


_open_cores: weakref.WeakSet[_Core] = weakref.WeakSet()


def _instance(name: str, value: Any, kind: type[Any]) -> Any:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        msg = f"{name} must be {kind.__name__}, not {type(value).__name__}"
        raise TypeError(msg)
    return value


class Supervisor:
    """Keyed admission for threads: submit work under a slot's key, and at most one job per key runs.

    ``with Supervisor() as supervisor:`` starts it; leaving the block shuts it down, and what still runs is cancelled.
    Call `join()` first to wait for the work. Nothing runs before the block is entered or `start()` is called.

    Args:
        grace: seconds that a body has to stop, once it is asked to, before it is given up.
        limits: bounds on what may wait, run and stay.
        defaults: settings for specs that inherit them.
        runtime: what to run on; its own by default. One that is passed in is not closed.
        logger: where log records go: anything with structlog's methods. Default: structlog if the application has
            configured it, else ``logging.getLogger("slotkeeper")``.
        observer_timeout: seconds that the log has at shutdown to be written to its end.

    Raises:
        TypeError, ValueError: an argument of the wrong type or out of range, named in the message.

    """

    def __init__(
        self,
        *,
        grace: float | timedelta = 60.0,
        limits: AdmissionLimits | None = None,
        defaults: TaskDefaults | None = None,
        runtime: Runtime | None = None,
        logger: Any = None,
        observer_timeout: float | timedelta = 5.0,
    ) -> None:
        self._core = _Core(
            grace=grace,
            limits=limits,
            defaults=defaults,
            runtime=runtime,
            logger=logger,
            observer_timeout=observer_timeout,
        )

    # -- lifetime ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it; again does nothing. A failure leaves nothing behind."""
        self._core.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _warn_of_stuck(self.shutdown())

    async def __aenter__(self) -> AsyncSupervisor:
        self._core.start()
        return AsyncSupervisor(self._core)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _warn_of_stuck(await AsyncSupervisor(self._core).shutdown())

    @property
    def registry(self) -> ActorRef[RegistryActor]:
        """The registry's ref, for actors: the same protocol without a face."""
        return self._core.running()

    # -- work ----------------------------------------------------------------------------------------------------------

    @overload
    def submit(
        self, work: TaskSpec[T] | Submission[T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> TaskHandle[T]: ...
    @overload
    def submit(
        self, work: Callable[..., Awaitable[T]], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> TaskHandle[T]: ...
    @overload
    def submit(
        self, work: Callable[..., T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> TaskHandle[T]: ...
    def submit(
        self, work: Any, *, slot: str | None = None, policy: AdmissionPolicy | str = AdmissionPolicy.QUEUE
    ) -> TaskHandle[Any]:
        """Submit work, and return its handle. Waits while the intake is full, never for admission.

        That it returns says nothing about admission; the handle's outcome does.

        Args:
            work: a `TaskSpec`, a callable (counts as `TaskSpec.once` of it), or a `Submission` with slot and policy.
            slot: the key under which at most one job runs; default: the task's name.
            policy: what happens if the slot is busy.

        Raises:
            SupervisorClosedError: shutdown has begun.
            NotStartedError: not started yet.
            TypeError, ValueError: an argument of the wrong type or out of range, named in the message.

        """
        core = self._core
        submission = _submission(work, slot, policy)
        core.running()
        if core.intake.take():
            return core.send(submission)
        gate = _Gate()
        if not core.intake.take(gate.open):
            try:
                core.runtime.wait(gate)
            except BaseException:
                if not core.intake.withdraw(gate.open) and gate.granted:
                    core.intake.give()
                raise
            if not gate.granted:
                raise closed_error()
        return core.send(submission)

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
        """Submit work like `submit`, but never wait.

        Raises:
            IntakeFullError: as many submissions as `AdmissionLimits.intake` are not decided yet.
            SupervisorClosedError, NotStartedError, TypeError, ValueError: as `submit`.

        """
        core = self._core
        submission = _submission(work, slot, policy)
        core.running()
        if not core.intake.take():
            raise _intake_full(core)
        return core.send(submission)

    def join(self, timeout: float | timedelta | None = None) -> None:
        """Wait until everything that was accepted has its outcome. A periodic run has none until it is cancelled.

        Raises:
            TimeoutError: not within `timeout` seconds.
            RuntimeError: called from inside a body, which can not outlive itself.

        """
        _refuse_in_body("join")
        self._ask(Join(), timeout)

    def cancel(self, target: TaskId | str, *, timeout: float | timedelta | None = None) -> bool:
        """Cancel a submission by id, or a registered run by name, and wait for its outcome.

        Returns whether this call claimed it: False when it has ended or does not exist (at once), or when somebody
        else has asked before (after joining the end). A waiting submission can only be cancelled by id.

        Args:
            target: a `TaskId` (``handle.id``) or a task name.
            timeout: seconds to wait for the end. The cancellation stands when they are over.

        Raises:
            TimeoutError: not ended in time.
            RuntimeError: asked for by the body of that very run.
            SupervisorClosedError: shutdown has begun, which cancels everything.

        """
        target = _target(target)
        if isinstance(target, TaskId) and current_task.get() == target:
            msg = "a body can not wait for its own end; use wait-free `handle.cancel()`, return or raise"
            raise RuntimeError(msg)
        return bool(self._ask(Cancel(target, wait=True), timeout))

    def remove(self, target: TaskId | str) -> bool:
        """Ask a submission (by id) or a registered run (by name) to end, without waiting for that.

        Returns whether this call claimed it. True says that the body can see it, not that it has stopped.

        Raises:
            SupervisorClosedError: shutdown has begun, which cancels everything.

        """
        return bool(self._ask(Remove(_target(target)), None))

    # -- views ---------------------------------------------------------------------------------------------------------

    def tasks(self) -> list[tuple[TaskId, str]]:
        """List (id, name) of every registered run, ascending by id."""
        if self._core.settlement.report is not None:
            return []
        tasks: list[tuple[TaskId, str]] = self._ask(Tasks(), None)
        return tasks

    def snapshot(self) -> views.Snapshot:
        """Look at every slot with work, one by one: gauges, not a transaction."""
        if self._core.settlement.report is not None:
            return views.Snapshot()
        snapshot: views.Snapshot = self._ask(Snapshot(), None)
        return snapshot

    # -- the end -------------------------------------------------------------------------------------------------------

    def shutdown(self) -> ShutdownReport:
        """Accept nothing more, turn waiting submissions away, cancel what runs, and wait for it up to the grace.

        One operation, whoever asks first: every caller gets the same report, at any time. Before `start`: nothing can
        be started any more.

        Raises:
            RuntimeError: called from inside a body; it would wait for itself.

        """
        core = self._core
        _refuse_in_body("shutdown")
        if core.settlement.report is None:
            core.runtime.check_forked()
            if core.registry is None:
                core.intake.close()
                core.settlement.report = ShutdownReport(clean=True, grace=core.grace)
            else:
                with suppress(ActorDeadError):  # somebody else's shutdown was faster
                    core.runtime.reply(core.registry.ask(Shutdown(), block=False))
        report = core.concluded()
        if core.owns_runtime:
            core.runtime.join(_JOIN_THREADS)
        return report

    def _ask(self, message: Any, timeout: float | timedelta | None) -> Any:
        registry = self._core.running()
        seconds = check_optional_duration("timeout", timeout)
        try:
            return self._core.runtime.reply(registry.ask(message, block=False), seconds)
        except ActorDeadError:
            raise closed_error() from None


class AsyncSupervisor:
    """The same names for an event loop: whatever may wait is a coroutine. Made by ``async with Supervisor(...)``."""

    def __init__(self, core: _Core) -> None:
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
        core = self._core
        submission = _submission(work, slot, policy)
        core.running()
        gate = _LoopGate(core.intake)
        if not core.intake.take(gate.open):
            await gate.passed()
        return core.send(submission)

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
        core = self._core
        submission = _submission(work, slot, policy)
        core.running()
        if not core.intake.take():
            raise _intake_full(core)
        return core.send(submission)

    async def join(self, timeout: float | timedelta | None = None) -> None:  # noqa: ASYNC109
        """See `Supervisor.join`."""
        _refuse_in_body("join")
        await self._ask(Join(), timeout)

    async def cancel(self, target: TaskId | str, *, timeout: float | timedelta | None = None) -> bool:  # noqa: ASYNC109
        """See `Supervisor.cancel`."""
        target = _target(target)
        if isinstance(target, TaskId) and current_task.get() == target:
            msg = "a body can not wait for its own end; use wait-free `handle.cancel()`, return or raise"
            raise RuntimeError(msg)
        return bool(await self._ask(Cancel(target, wait=True), timeout))

    async def remove(self, target: TaskId | str) -> bool:
        """See `Supervisor.remove`."""
        return bool(await self._ask(Remove(_target(target)), None))

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

    async def shutdown(self) -> ShutdownReport:
        """See `Supervisor.shutdown`. Cancelling the wait does not stop or change the shutdown."""
        _refuse_in_body("shutdown")
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


class _Gate:
    """Where a submitting thread waits for its place in the intake."""

    __slots__ = ("_event", "granted")

    def __init__(self) -> None:
        self._event = threading.Event()
        self.granted = False

    def open(self, granted: bool) -> None:  # noqa: FBT001
        self.granted = granted
        self._event.set()

    def done(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None) -> bool:
        return self._event.wait(timeout)


class _LoopGate:
    """Where a submitting coroutine waits for its place in the intake."""

    __slots__ = ("_intake", "_loop", "_place")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._loop = asyncio.get_running_loop()
        self._place: asyncio.Future[bool] = self._loop.create_future()

    def open(self, granted: bool) -> None:  # noqa: FBT001
        try:
            self._loop.call_soon_threadsafe(self._settle, granted)
        except RuntimeError:  # the loop is closed: nobody waits any more
            if granted:
                self._intake.give()

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


def _intake_full(core: _Core) -> IntakeFullError:
    msg = f"{core.limits.intake} submissions wait for a decision (AdmissionLimits.intake); try again, or use submit()"
    return IntakeFullError(msg)


def _refuse_in_body(what: str) -> None:
    task = current_task.get()
    if task is not None:
        msg = f"{what}() from inside the body of {task} would wait for that body; call it from outside"
        raise RuntimeError(msg)


def _warn_of_stuck(report: ShutdownReport) -> None:
    if report.stuck:
        names = ", ".join(report.stuck)
        warnings.warn(f"still running after {report.grace:g} s of grace: {names}", RuntimeWarning, stacklevel=3)


def _at_exit() -> None:
    """Shut down what nobody has shut down, with a short grace, so that the interpreter ends in order."""
    for core in list(_open_cores):
        registry = core.registry
        if core.runtime.forked or registry is None:
            continue
        with suppress(BaseException):
            core.runtime.reply(registry.ask(Shutdown(grace=min(core.grace, _EXIT_GRACE)), block=False), 10)
            core.concluded()
            core.runtime.join(_JOIN_THREADS)


atexit.register(_at_exit)
