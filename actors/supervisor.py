"""The face for threads: `Supervisor`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from pykka import ActorDeadError

from actors.async_supervisor import AsyncSupervisor
from actors.budget import closed_error
from actors.face import (
    Core,
    check_spec,
    check_submission,
    check_target,
    is_name_in_body,
    refuse_in_body,
    refuse_own_body,
    warn_of_stuck,
)
from actors.messages import Alive, Cancel, Explain, Join, Remove, Shutdown, Snapshot, Tasks
from actors.observers.subscribers import CAPACITY
from actors.prepared import PreparedSubmission
from actors.runs import Runs, check_works
from admission import snapshot as views
from admission.checks import check_optional_duration
from admission.policy import AdmissionPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import timedelta
    from types import TracebackType

    from pykka import ActorRef

    from actors.handle import TaskHandle
    from actors.observers.subscribers import Subscriber, Subscription
    from actors.registry import RegistryActor
    from actors.runtime import Runtime
    from admission.identity import TaskId
    from admission.limits import AdmissionLimits
    from admission.report import ShutdownReport
    from admission.spec import Submission, TaskDefaults, TaskSpec

__all__ = ["Supervisor"]

T = TypeVar("T")


class Supervisor(Runs):
    """Keyed admission for threads: submit work under a slot's key, and at most one job per key runs.

    ``with Supervisor() as supervisor:`` starts it; leaving the block shuts it down, and what still runs is cancelled.
    Call `join()` first to wait for the work. Nothing runs before the block is entered or `start()` is called.

    Args:
        grace: seconds that a body has to stop, once it is asked to, before it is given up.
        limits: bounds on what may wait, run and stay.
        defaults: settings for specs that inherit them.
        subscribers: whoever is told of events from the start, each as by `subscribe`.
        runtime: what to run on; its own by default. One that is passed in is not closed.
        logger: where log records go: anything with structlog's methods. Default: structlog if the application has
            configured it, else ``logging.getLogger("slotkeeper")``.
        observer_timeout: seconds that log and subscribers have together at shutdown to take what waits for them; what
            is left then is dropped and counted in the report.

    Raises:
        TypeError, ValueError: an argument of the wrong type or out of range, named in the message.

    """

    def __init__(
        self,
        *,
        grace: float | timedelta = 60.0,
        limits: AdmissionLimits | None = None,
        defaults: TaskDefaults | None = None,
        subscribers: Iterable[Subscriber] = (),
        runtime: Runtime | None = None,
        logger: Any = None,
        observer_timeout: float | timedelta = 5.0,
    ) -> None:
        self._core = Core(
            grace=grace,
            limits=limits,
            defaults=defaults,
            subscribers=subscribers,
            runtime=runtime,
            logger=logger,
            observer_timeout=observer_timeout,
        )

    # -- lifetime ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it; again does nothing. A failure leaves nothing behind.

        Raises:
            SupervisorClosedError: it has been shut down.

        """
        self._core.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        warn_of_stuck(self.shutdown())

    async def __aenter__(self) -> AsyncSupervisor:
        self._core.start()
        return AsyncSupervisor(self._core)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        warn_of_stuck(await AsyncSupervisor(self._core).shutdown())

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
        return self.submit_prepared(check_submission(work, slot, policy))

    def submit_prepared(self, submission: Submission[T], number: TaskId | None = None) -> TaskHandle[T]:
        """Submit what has been checked, under the number that it may have already."""
        core = self._core
        core.running()
        if core.intake.take():
            return core.send(submission, number)
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
        """Submit work like `submit`, but never wait.

        Raises:
            IntakeFullError: as many submissions as `AdmissionLimits.intake` are not decided yet.
            SupervisorClosedError, NotStartedError, TypeError, ValueError: as `submit`.

        """
        return self._core.try_submit(check_submission(work, slot, policy))

    def try_submit_prepared(self, submission: Submission[T], number: TaskId) -> TaskHandle[T]:
        """Submit what has been checked, under the number that it has, without waiting."""
        return self._core.try_submit(submission, number)

    @overload
    def prepare(
        self, work: TaskSpec[T] | Submission[T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> PreparedSubmission[T]: ...
    @overload
    def prepare(
        self, work: Callable[..., Awaitable[T]], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> PreparedSubmission[T]: ...
    @overload
    def prepare(
        self, work: Callable[..., T], *, slot: str | None = None, policy: AdmissionPolicy | str = ...
    ) -> PreparedSubmission[T]: ...
    def prepare(
        self, work: Any, *, slot: str | None = None, policy: AdmissionPolicy | str = AdmissionPolicy.QUEUE
    ) -> PreparedSubmission[Any]:
        """Reserve the id of a submission, to be known before it is handed in. Nothing else happens, started or not.

        Raises:
            TypeError, ValueError: as `submit`.

        """
        return PreparedSubmission(self, check_submission(work, slot, policy), self._core.runtime.new_id())

    @overload
    def add(self, work: TaskSpec[T]) -> TaskHandle[T]: ...
    @overload
    def add(self, work: Callable[..., Awaitable[T]]) -> TaskHandle[T]: ...
    @overload
    def add(self, work: Callable[..., T]) -> TaskHandle[T]: ...
    def add(self, work: Any) -> TaskHandle[Any]:
        """Register work directly, without a slot: it competes for its name and for `max_tasks` only.

        Returns once it is registered, which says nothing about its first attempt.

        Raises:
            TaskExistsError: its name is taken.
            ResourceLimitError: `max_tasks` is reached.
            SupervisorClosedError: shutdown has begun.
            NotStartedError: not started yet.
            TypeError, ValueError: an argument of the wrong type or out of range, named in the message.

        """
        return self._add([check_spec("work", work)])[0]

    def add_batch(self, works: Iterable[Any]) -> list[TaskHandle[Any]]:
        """Register all of these like `add`, or none of them; no body starts before all are registered.

        Raises:
            TaskExistsError, ResourceLimitError, SupervisorClosedError, NotStartedError: as `add`.
            TypeError, ValueError: as `add`.

        """
        specs = check_works("works", works)
        self._core.running()
        return self._add(specs) if specs else []

    def join(self, timeout: float | timedelta | None = None) -> None:
        """Wait until everything that was accepted has its outcome. A periodic run has none until it is cancelled.

        Raises:
            TimeoutError: not within `timeout` seconds.
            RuntimeError: called from inside a body, which can not outlive itself.

        """
        refuse_in_body("join")
        self._ask(Join(), timeout)

    def cancel(self, target: TaskId | str, *, timeout: float | timedelta | None = None) -> bool:
        """Cancel a submission by id, or a registered run by name, and wait for its outcome.

        Returns whether this call claimed it: False when it has ended or does not exist (at once), or when somebody
        else has asked before (after joining the end). A waiting submission can only be cancelled by id.

        Args:
            target: a `TaskId` (``handle.id``) or a task name.
            timeout: seconds to wait for the end, once the slot has decided. The cancellation stands when they are over.

        Raises:
            TaskTerminationTimeoutError: not ended in time; a `TimeoutError`.
            RuntimeError: asked for by the body of that very run.
            SupervisorClosedError: shutdown has begun, which cancels everything.

        """
        target = check_target(target)
        refuse_own_body(target, self.tasks() if is_name_in_body(target) else ())
        seconds = check_optional_duration("timeout", timeout)
        return bool(self._ask(Cancel(target, wait=True, timeout=seconds), None))

    def remove(self, target: TaskId | str) -> bool:
        """Ask a submission (by id) or a registered run (by name) to end, without waiting for that.

        Returns whether this call claimed it. True says that the body can see it, not that it has stopped.

        Raises:
            SupervisorClosedError: shutdown has begun, which cancels everything.

        """
        return bool(self._ask(Remove(check_target(target)), None))

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

    def alive(self) -> tuple[str, ...]:
        """Name the runs whose body is inside an attempt at this moment, sorted, each name once.

        A body that was given up and has not left is among them, though `tasks` does not list its run any more. One that
        waits for a permit or a thread, or pauses between attempts, is not. After shutdown: nobody; what was inside when
        it ended is in `ShutdownReport.still_inside`.
        """
        if self._core.settlement.report is not None:
            return ()
        alive: tuple[str, ...] = self._ask(Alive(), None)
        return alive

    def explain(self, target: TaskId | str) -> views.Explanation | None:
        """Say what a submission (by id) or a slot (by key) waits for, and who is before it.

        None where there is nothing to wait for: an id that is unknown or has its outcome and has left, a slot without
        work. A look at one slot, which may have gone on since.

        Raises:
            TypeError: `target` is neither.

        """
        target = check_target(target, "slot key")
        if self._core.settlement.report is not None:
            return None
        explanation: views.Explanation | None = self._ask(Explain(target), None)
        return explanation

    def subscribe(self, subscriber: Subscriber, *, name: str | None = None, capacity: int = CAPACITY) -> Subscription:
        """Have somebody told of everything that happens from now on, until the subscription is closed or left.

        Each subscriber has a queue and is told one event after the other, in the order of their `seq`, on a thread of
        the observers that it may block: that delays nobody else. An event that finds the queue full is lost for this
        subscriber; when it has caught up, one `subscriber_overflow` event tells it how many were. What it raises is
        reported to the log and the others, as `subscriber_panicked`, and the next event follows.

        Args:
            subscriber: a callable that takes an `Event`, an object with ``on_event(event)``, or the ref of any Pykka
                actor, which is told each `Event` until it stops.
            name: what such events call it; default: the name of its type, or of the function.
            capacity: how many events may wait for it.

        Raises:
            SupervisorClosedError: it has been shut down.
            NotStartedError: not started yet; see the argument `subscribers`.
            TypeError, ValueError: an argument of the wrong type or out of range, named in the message.

        """
        return self._core.subscribe(subscriber, name, capacity)

    # -- the end -------------------------------------------------------------------------------------------------------

    def shutdown(self) -> ShutdownReport:
        """Accept nothing more, turn waiting submissions away, cancel what runs, and wait for it up to the grace.

        One operation, whoever asks first: every caller gets the same report, at any time. Before `start`: nothing can
        be started any more.

        Raises:
            RuntimeError: called from inside a body; it would wait for itself.

        """
        refuse_in_body("shutdown")
        return self._conclude(Shutdown())

    def _ask(self, message: Any, timeout: float | timedelta | None) -> Any:
        registry = self._core.running()
        seconds = check_optional_duration("timeout", timeout)
        try:
            return self._core.runtime.reply(registry.ask(message, block=False), seconds)
        except ActorDeadError:
            raise closed_error() from None


class _Gate:
    """Where a submitting thread waits for its place in the intake."""

    __slots__ = ("_event", "granted")

    def __init__(self) -> None:
        self._event = threading.Event()
        self.granted = False

    def open(self, granted: bool) -> bool:  # noqa: FBT001
        self.granted = granted
        self._event.set()
        return True

    def done(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None) -> bool:
        return self._event.wait(timeout)
