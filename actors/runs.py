"""A supervisor for a batch: run these, wait until nothing is left, shut down. Once for each supervisor."""

from __future__ import annotations

import inspect
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from actors.face import JOIN_THREADS, Core, check_spec, refuse_in_body
from actors.messages import Add, RunOut, Shutdown
from actors.runtime import deliver
from admission.errors import ResourceLimitError, SupervisorClosedError
from admission.spec import Submission

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from actors.handle import TaskHandle
    from admission.identity import TaskId
    from admission.report import ShutdownReport
    from admission.spec import TaskSpec

__all__ = ["Runs", "check_mixed", "check_works", "on_os_signals"]

_LOOK = 0.2
"""Seconds after which the thread that waits for `stop` sees that the run is over. A set `stop` it sees at once."""


def check_works(name: str, works: Iterable[Any]) -> list[TaskSpec[Any]]:
    """Check a batch, in the caller's thread."""
    return [check_spec(f"each of {name}", work) for work in _listed(name, works)]


def check_mixed(name: str, works: Iterable[Any]) -> tuple[list[TaskSpec[Any]], list[Submission[Any]]]:
    """Check what is to be run: a batch to be added, and what is to be submitted to slots."""
    listed = _listed(name, works)
    submissions: list[Submission[Any]] = [work for work in listed if isinstance(work, Submission)]
    return [check_spec(f"each of {name}", work) for work in listed if not isinstance(work, Submission)], submissions


def _listed(name: str, works: Iterable[Any]) -> list[Any]:
    try:
        return list(works)
    except TypeError:
        msg = f"{name} must be an iterable of TaskSpecs, Submissions and callables, not {type(works).__name__}"
        raise TypeError(msg) from None


@contextmanager
def on_os_signals(action: Callable[[], object]) -> Generator[None]:
    """Have the first SIGINT, SIGTERM or SIGQUIT do this; the next has its former meaning, and so have all afterwards.

    Raises:
        RuntimeError: not called in the main thread.

    """
    if threading.current_thread() is not threading.main_thread():
        msg = "run_with_os_signals must be called in the main thread, where signals are handled; or use run_until()"
        raise RuntimeError(msg)
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGQUIT") if hasattr(signal, name)]
    former: dict[Any, Any] = {}

    def restore() -> None:
        while former:
            number, handler = former.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def on_signal(_number: int, _frame: object) -> None:
        restore()
        action()

    try:
        for number in numbers:
            former[number] = signal.getsignal(number)
            signal.signal(number, on_signal)
        yield
    finally:
        restore()


class Runs:
    """The part of the face that runs a batch to its end."""

    _core: Core

    def run(self, works: Iterable[Any] = ()) -> ShutdownReport:
        """Start, add these as one batch, wait until nothing is without its outcome, and shut down.

        A `Submission` among them is not part of the batch: it is submitted to its slot, after the batch.
        Returns though tasks failed: their handles tell of that, the report tells of the shutdown. What is submitted or
        added meanwhile is waited for as well. Somebody else's shutdown ends the wait.

        Raises:
            AlreadyRunningError: one of the `run` calls has been made.
            TaskExistsError: a name is taken; nothing of the batch was added, the supervisor goes on.
            ResourceLimitError: too many for `max_tasks`; nothing was added, `run` may be called again.
            RuntimeError: called from inside a body.
            TypeError, ValueError: an argument of the wrong type or out of range, named in the message.

        """
        return self._run(check_mixed("works", works))

    def run_until(self, works: Iterable[Any], stop: threading.Event) -> ShutdownReport:
        """Like `run`, but begin the shutdown when `stop` is set. Set from the start, nothing of the batch is added.

        Args:
            works: `TaskSpec`s and callables.
            stop: a `threading.Event`, or anything with its `is_set` and `wait`.

        """
        checked = check_mixed("works", works)
        wait = getattr(stop, "wait", None)
        if not (callable(getattr(stop, "is_set", None)) and callable(wait)) or inspect.iscoroutinefunction(wait):
            msg = f"stop must be a threading.Event, not {type(stop).__name__}"
            raise TypeError(msg)
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                if stop.wait(_LOOK):
                    self._request_shutdown()
                    return

        def begin() -> None:
            if stop.is_set():
                self._request_shutdown()
            else:
                threading.Thread(target=watch, name="slotkeeper-stop", daemon=True).start()

        try:
            return self._run(checked, begin)
        finally:
            over.set()

    def run_with_os_signals(self, works: Iterable[Any] = ()) -> ShutdownReport:
        """Like `run`, but begin the shutdown at the first SIGINT, SIGTERM or SIGQUIT.

        A second signal has its former meaning. Afterwards all signals are handled as before.

        Raises:
            RuntimeError: not called in the main thread; nothing was started.

        """
        checked = check_mixed("works", works)
        with on_os_signals(self._request_shutdown):
            return self._run(checked)

    def _run(
        self,
        works: tuple[list[TaskSpec[Any]], list[Submission[Any]]],
        begin: Callable[[], object] = lambda: None,
    ) -> ShutdownReport:
        core, (specs, submissions) = self._core, works
        refuse_in_body("run")
        core.claim_run()
        if core.settlement.report is None:
            try:
                registry = core.start()
                if core.stops_early:  # a signal has come while it started
                    deliver(registry, Shutdown())
                begin()
            except BaseException:
                core.release_run()
                raise
            try:
                if specs:
                    self._add(specs)
                for submission in submissions:
                    self.submit_prepared(submission)
            except ResourceLimitError:
                core.release_run()
                raise
            except SupervisorClosedError:  # the shutdown was faster; what becomes of it is this call's answer
                return self._conclude(Shutdown())
        return self._conclude(RunOut())

    def _request_shutdown(self) -> None:
        """Have the shutdown begin, without waiting for anything. For any thread, and for signal handlers."""
        registry = self._core.registry
        if registry is not None:
            deliver(registry, Shutdown())
        else:
            self._core.stops_early = True

    def _conclude(self, message: RunOut | Shutdown) -> ShutdownReport:
        """Wait for the one report."""
        core = self._core
        if core.settlement.report is None:
            core.runtime.check_forked()
            if (registry := core.close_unstarted()) is not None:
                with suppress(ActorDeadError):  # somebody else's shutdown was faster
                    core.runtime.reply(registry.ask(message, block=False))
        report = core.concluded()
        if core.owns_runtime:
            core.runtime.join(JOIN_THREADS)
        return report

    def submit_prepared(self, submission: Submission[Any], number: TaskId | None = None) -> TaskHandle[Any]:
        """Submit what has been checked."""
        raise NotImplementedError

    def _ask(self, message: Any, timeout: Any) -> Any:
        raise NotImplementedError

    def _add(self, specs: list[TaskSpec[Any]]) -> list[TaskHandle[Any]]:
        handles: list[TaskHandle[Any]] = self._ask(Add(*specs), None)
        return handles
