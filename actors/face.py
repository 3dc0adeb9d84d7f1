"""What both faces stand on: the checks of a call, the runtime, the registry, the intake, and the one shutdown."""

from __future__ import annotations

import atexit
import logging
import threading
import warnings
import weakref
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from actors.assembly import make_runtime
from actors.budget import Intake, closed_error
from actors.current import current_task
from actors.desk import Settlement, make_ticket
from actors.messages import Shutdown
from actors.observers.log import open_publisher
from actors.observers.subscribers import check_subscriber, check_subscribers
from actors.registry import RegistryActor
from actors.runtime import Runtime, deliver
from admission.checks import check_duration
from admission.errors import AlreadyRunningError, IntakeFullError, NotStartedError
from admission.identity import TaskId
from admission.limits import AdmissionLimits
from admission.policy import AdmissionPolicy
from admission.report import ShutdownReport
from admission.spec import Submission, TaskDefaults, TaskSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from pykka import ActorRef

    from actors.handle import TaskHandle
    from actors.observers.subscribers import Subscriber, Subscription
    from actors.publisher import Publisher

__all__ = [
    "JOIN_THREADS",
    "Core",
    "check_spec",
    "check_submission",
    "check_target",
    "is_name_in_body",
    "refuse_in_body",
    "refuse_own_body",
    "warn_of_stuck",
]

T = TypeVar("T")
_EXIT_GRACE = 1.0
"""Seconds that bodies have at interpreter exit where nobody shut the supervisor down."""
JOIN_THREADS = 1.0
"""Seconds that a shutdown waits for our own threads to end after the report is there."""


def check_submission(work: Any, slot: str | None, policy: AdmissionPolicy | str) -> Submission[Any]:
    """Check what is submitted, in the caller's thread."""
    if isinstance(work, Submission):
        if slot is not None or policy is not AdmissionPolicy.QUEUE:
            msg = "a Submission has its slot and policy already; pass it alone"
            raise TypeError(msg)
        return work  # pyright: ignore[reportUnknownVariableType]
    return Submission(work, slot, policy)


def check_spec(name: str, work: Any) -> TaskSpec[Any]:
    """Check what is added directly, in the caller's thread."""
    if isinstance(work, Submission):
        msg = f"{name} takes a TaskSpec or a callable; a Submission competes for a slot: use submit()"
        raise TypeError(msg)
    if not isinstance(work, TaskSpec) and not callable(work):
        msg = f"{name} must be a TaskSpec or a callable as body(ctx, *args, **kwargs), not {type(work).__name__}"
        raise TypeError(msg)
    return work if isinstance(work, TaskSpec) else TaskSpec.once(work)  # pyright: ignore[reportUnknownVariableType]


def check_target(target: object, name: str = "task name") -> TaskId | str:
    """Check who is meant: an id or a name, by default that of a task."""
    if isinstance(target, (TaskId, str)):
        return target
    msg = f"target must be a TaskId or a {name} (str), not {type(target).__name__}"
    raise TypeError(msg)


class Core:
    """What both faces stand on: the runtime, the registry, the intake, and the one shutdown."""

    def __init__(
        self,
        *,
        grace: float | timedelta,
        limits: AdmissionLimits | None,
        defaults: TaskDefaults | None,
        subscribers: Iterable[Subscriber],
        runtime: Runtime | None,
        logger: Any,
        observer_timeout: float | timedelta,
    ) -> None:
        self.grace = check_duration("grace", grace)
        self.observer_timeout = check_duration("observer_timeout", observer_timeout)
        self.limits = _instance("limits", limits, AdmissionLimits)
        self.defaults = _instance("defaults", defaults, TaskDefaults)
        self.owns_runtime = runtime is None
        self.logger = _check_logger(logger)
        self.subscribers = check_subscribers(subscribers)
        self.runtime: Runtime = make_runtime() if runtime is None else _instance("runtime", runtime, Runtime)
        self.publisher: Publisher | None = None
        self.intake = Intake(self.limits.intake)
        self.settlement = Settlement()
        self.registry: ActorRef[RegistryActor] | None = None
        self._starting = threading.Lock()
        self._ran = False  # one of the `run` calls has been made
        self.stops_early = False  # the shutdown was asked for before there was a registry

    def start(self) -> ActorRef[RegistryActor]:
        """Start the runtime and the registry, once; a failure leaves nothing behind.

        Raises:
            SupervisorClosedError: it has been shut down.

        """
        self.runtime.check_forked()
        with self._starting:
            if self.settlement.report is not None:
                raise closed_error()
            if self.registry is None:
                self.runtime.start()
                try:
                    self.publisher = open_publisher(self.runtime, self.logger, subscribers=self.subscribers)
                    self.registry = RegistryActor.start(
                        self.runtime,
                        grace=self.grace,
                        limits=self.limits,
                        defaults=self.defaults,
                        publisher=self.publisher,
                        observer_timeout=self.observer_timeout,
                        intake=self.intake,
                        settlement=self.settlement,
                    )
                except BaseException:
                    if self.owns_runtime:
                        self.runtime.close()
                        self.runtime = make_runtime()  # as if it had not been tried
                    raise
                _open_cores.add(self)
            return self.registry

    def claim_run(self) -> None:
        """Let one `run` call through, ever.

        Raises:
            AlreadyRunningError: there was one.

        """
        with self._starting:
            if self._ran:
                msg = "run, run_until and run_with_os_signals work once for a supervisor; use add() or submit()"
                raise AlreadyRunningError(msg)
            self._ran = True

    def release_run(self) -> None:
        """Let the next `run` call through after all: this one has come to nothing."""
        with self._starting:
            self._ran = False

    def close_unstarted(self) -> ActorRef[RegistryActor] | None:
        """Return the registry; where there is none yet, see to it that there never will be."""
        with self._starting:
            if self.registry is None and self.settlement.report is None:
                self.intake.close()
                self.settlement.report = ShutdownReport(clean=True, grace=self.grace)
            return self.registry

    def running(self) -> ActorRef[RegistryActor]:
        """Return the registry, for a call that needs one that still works."""
        if self.runtime.dispatcher.forked:
            self.runtime.check_forked()
        if self.settlement.report is not None:
            raise closed_error()
        if self.registry is None:
            msg = "the supervisor has not been started; use `with Supervisor(...) as supervisor:` or call start()"
            raise NotStartedError(msg)
        return self.registry

    def try_submit(self, submission: Submission[T], number: TaskId | None = None) -> TaskHandle[T]:
        """Hand a submission in, if there is a place in the intake at this moment."""
        self.running()
        if not self.intake.take():
            most = self.limits.intake
            msg = f"{most} submissions wait for a decision (AdmissionLimits.intake); try again, or use submit()"
            raise IntakeFullError(msg)
        return self.send(submission, number)

    def send(self, submission: Submission[T], number: TaskId | None = None) -> TaskHandle[T]:
        """Hand a submission in that has its place in the intake."""
        registry = self.registry
        assert registry is not None
        try:
            ticket = make_ticket(submission, self.runtime, registry, copy_context(), intake=self.intake, number=number)
        except BaseException:
            self.intake.give()
            raise
        deliver(registry, ticket)
        return ticket.handle

    def subscribe(self, subscriber: Subscriber, name: str | None, capacity: int) -> Subscription:
        """Have somebody told of every event from now on."""
        wanted = check_subscriber(subscriber, name, capacity)
        self.running()
        assert self.publisher is not None
        return self.publisher.subscribe(wanted)

    def concluded(self) -> ShutdownReport:
        """Close what this supervisor owns, once the report is there."""
        report = self.settlement.report
        assert report is not None
        _open_cores.discard(self)
        if self.owns_runtime:
            self.runtime.close()
        return report


_open_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def _instance(name: str, value: Any, kind: type[Any]) -> Any:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        msg = f"{name} must be {kind.__name__}, not {type(value).__name__}"
        raise TypeError(msg)
    return value


def _check_logger(logger: Any) -> Any:
    suits = not isinstance(logger, (logging.Logger, logging.LoggerAdapter))  # which take no fields
    with suppress(Exception):  # what raises when it is looked at may still write
        suits = suits and all(callable(getattr(logger, level, None)) for level in ("debug", "info", "warning", "error"))
    if logger is not None and not suits:
        msg = (
            f"logger must have structlog's methods, as in debug(event, **fields), not {type(logger).__name__}; without"
            ' it, records go to logging.getLogger("slotkeeper") unless structlog is configured'
        )
        raise TypeError(msg)
    return logger


def is_name_in_body(target: TaskId | str) -> bool:
    """Tell whether a body names a run, which may be its own."""
    return isinstance(target, str) and current_task.get() is not None


def refuse_own_body(target: TaskId | str, tasks: Sequence[tuple[TaskId, str]] = ()) -> None:
    """Raise RuntimeError where a body would wait for its own end; `tasks` say who it is by name."""
    own = current_task.get()
    if own is not None and (own == target or (own, target) in tasks):
        msg = "a body can not wait for its own end; use `handle.cancel()`, which does not wait, or return or raise"
        raise RuntimeError(msg)


def refuse_in_body(what: str) -> None:
    """Raise RuntimeError where any body would wait for itself."""
    task = current_task.get()
    if task is not None:
        msg = f"{what}() from inside the body of {task} would wait for that body; call it from outside"
        raise RuntimeError(msg)


def warn_of_stuck(report: ShutdownReport) -> None:
    """Say on leaving a `with` block that bodies have not stopped: that is no error of the block."""
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
            core.runtime.join(JOIN_THREADS)


atexit.register(_at_exit)
