"""A caller's end of one submission: set once, from one place, whatever happens."""

from __future__ import annotations

import asyncio
from _thread import allocate_lock
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pykka import ActorDeadError

from actors.budget import closed_error
from actors.current import current_task
from actors.messages import Cancel
from actors.runtime.guard import shared_lock
from admission.checks import check_optional_duration
from admission.errors import SubmissionRejectedError, TaskAbortedError, TaskCancelledError, TaskPanickedError
from admission.outcome import Cancelled, Completed, Failed, Fatal, ForceAborted, Outcome, Panicked, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import timedelta

    from pykka import ActorRef

    from actors.runtime import Calls, Runtime
    from admission.identity import TaskId

__all__ = ["TaskHandle"]

T = TypeVar("T")


class TaskHandle(Generic[T]):
    """What a submission will come to. Safe from any thread and any event loop; forgetting it changes nothing.

    ``await handle`` gives the outcome. An awaiter that is cancelled or times out leaves the job running.
    """

    __slots__ = ("_calls", "_future", "_outcome", "_registry", "_runtime", "_waiters", "_waking", "id", "slot")

    def __init__(self, id_: TaskId, slot: str | None, runtime: Runtime, registry: ActorRef[Any] | None) -> None:
        self.id = id_
        """The number of this submission."""
        self.slot = slot
        """The slot that it competes for; None for one that was added directly."""
        self._runtime = runtime
        self._registry = registry
        self._outcome: Outcome[T] | None = None
        self._waiters: list[Any] | None = None
        self._waking = False
        self._calls: Calls | None = None
        self._future: Future[Outcome[T]] | None = None

    def __repr__(self) -> str:
        state = "pending" if self._outcome is None else self._outcome.label.value.removeprefix("outcome_")
        return f"<TaskHandle {self.id} slot={self.slot!r} {state}>"

    # -- the outcome ---------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether the outcome is there."""
        return self._outcome is not None

    def outcome(self, timeout: float | timedelta | None = None) -> Outcome[T]:
        """Wait for the outcome and return it, on every call the same.

        Args:
            timeout: seconds (or timedelta) to wait; None = for ever.

        Raises:
            TimeoutError: not there in time. The job goes on.
            RuntimeError: asked for from inside this submission's own body, which it can not outlive.

        """
        seconds = check_optional_duration("timeout", timeout) if timeout is not None else None
        if self._outcome is None:
            self._runtime.check_forked()
            self._refuse_own_body("wait for its own outcome")
            if not self._runtime.wait(self, seconds):
                msg = f"{self.id} has no outcome after {timeout} s"
                raise TimeoutError(msg)
        assert self._outcome is not None
        return self._outcome

    def result(self, timeout: float | timedelta | None = None) -> T:
        """Wait for the outcome and return the body's value, or raise what stands for any other outcome.

        Raises:
            TimeoutError: not there in time.
            Exception: the body's own exception object (Failed, Fatal); `AttemptTimeoutError` for a timeout.
            TaskCancelledError, TaskAbortedError, TaskPanickedError, SubmissionRejectedError: the other outcomes.

        """
        outcome = self.outcome(timeout)
        match outcome:
            case Completed(value=value):
                return value
            case Failed(error=error) | Fatal(error=error):
                raise error
            case Cancelled():
                msg = f"{self.id} was cancelled"
                raise TaskCancelledError(msg)
            case ForceAborted():
                msg = f"{self.id} did not stop within its grace and was given up"
                raise TaskAbortedError(msg)
            case Panicked(reason=reason):
                raise TaskPanickedError(reason)
            case Rejected(kind=kind, reason=reason, cause_id=cause_id):
                raise SubmissionRejectedError(kind, reason, cause_id)

    def __await__(self) -> Generator[Any, None, Outcome[T]]:
        return self._wait_async().__await__()

    async def _wait_async(self) -> Outcome[T]:
        if self._outcome is None:
            self._runtime.check_forked()
            self._refuse_own_body("wait for its own outcome")
            loop = asyncio.get_running_loop()
            there: asyncio.Future[None] = loop.create_future()

            def settle() -> None:
                if not there.done():
                    there.set_result(None)

            def tell() -> None:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(settle)

            self._when_done(tell)
            await there
        assert self._outcome is not None
        return self._outcome

    def add_done_callback(self, callback: Callable[[TaskHandle[T]], object]) -> None:
        """Have ``callback(handle)`` called once the outcome is there; at once if it is there already.

        Callbacks of one handle run in the order in which they were added, on a thread for callbacks: one that blocks
        or raises delays or harms nobody else.
        """
        if not callable(callback):
            msg = f"callback must be callable, not {type(callback).__name__}"
            raise TypeError(msg)
        self._when_done(lambda: self._make_calls().put(lambda: callback(self)))

    @property
    def future(self) -> Future[Outcome[T]]:
        """A `concurrent.futures.Future` of the outcome, for code that wants one. Cancelling it does nothing."""
        future = self._future
        if future is None:
            future = Future[Outcome[T]]()
            future.set_running_or_notify_cancel()
            with _creating:
                if self._future is not None:
                    return self._future
                self._future = future
            self.add_done_callback(lambda handle: future.set_result(handle.outcome()))
        return future

    # -- asking it to stop -----------------------------------------------------------------------------------------

    def cancel(self, *, wait: bool = False, timeout: float | timedelta | None = None) -> bool:
        """Ask for this submission to end; tell whether this call is the one that claimed it.

        A waiting one is taken out of the line. A running body sees ``ctx.cancelled``; what it does then is its own
        affair for the time of the grace. False: it has ended already, or somebody else has asked.

        Args:
            wait: return only after the outcome is there.
            timeout: with `wait`, seconds to wait for that; the cancellation stands in any case.

        Raises:
            TimeoutError: `wait`, and not ended in time.
            RuntimeError: `wait` from inside this submission's own body.
            SupervisorClosedError: shutdown has begun, which cancels everything.

        """
        seconds = check_optional_duration("timeout", timeout)
        if wait:
            self._refuse_own_body("wait for its own end")
        if self._outcome is not None or self._registry is None:
            return False
        reply = self._registry.ask(Cancel(self.id, wait=wait, timeout=seconds), block=False)
        try:
            return bool(self._runtime.reply(reply))
        except ActorDeadError:  # everything has ended meanwhile
            if self._outcome is not None:
                return False
            raise closed_error() from None

    # -- for the runtime -------------------------------------------------------------------------------------------

    def resolve(self, outcome: Outcome[T]) -> bool:
        """Set the outcome, once; tell whether this call did. Runs no user code."""
        with _settling:
            if self._outcome is not None:
                return False
            self._outcome = outcome
        if self._waiters:
            self._wake()
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until the outcome is there or `timeout` seconds are over. For the runtime."""
        if self._outcome is None:
            gate = allocate_lock()
            gate.acquire()
            self._when_done(gate.release)
            if not gate.acquire(timeout=-1 if timeout is None else max(timeout, 0)) and self._waiters is not None:
                with suppress(ValueError):
                    self._waiters.remove(gate.release)
        return self._outcome is not None

    def _when_done(self, action: Callable[[], object]) -> None:
        """Have our own non-blocking `action` run once the outcome is there: add first, then look."""
        if self._waiters is None:
            waiters: list[Any] = []  # made before the lock is taken: the collector may run a finalizer
            with _creating:
                if self._waiters is None:
                    self._waiters = waiters
        self._waiters.append(action)
        if self._outcome is not None:
            self._wake()

    def _wake(self) -> None:
        """Run what waits, in order and outside of every lock; of several threads one does it for all."""
        waiters = self._waiters
        while waiters:
            with _settling:
                if self._waking:
                    return  # it will look once more
                self._waking = True
            try:
                while waiters:
                    with suppress(IndexError):  # one that gave up has taken itself out meanwhile
                        waiters.pop(0)()
            finally:
                self._waking = False

    def _make_calls(self) -> Calls:
        if self._calls is None:
            calls = self._runtime.calls()
            with _creating:
                if self._calls is None:
                    self._calls = calls
        return self._calls

    def _refuse_own_body(self, what: str) -> None:
        if current_task.get() == self.id:
            msg = f"the body of {self.id} can not {what}; return, raise or submit another task instead"
            raise RuntimeError(msg)


_settling = shared_lock()
_creating = shared_lock()
"""Guards the creation of the parts that most handles never need."""
