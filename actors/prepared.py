"""A submission whose id is known before it is handed in."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from actors.runtime.guard import shared_lock

if TYPE_CHECKING:
    from collections.abc import Generator

    from actors.handle import TaskHandle
    from admission.identity import TaskId
    from admission.spec import Submission

__all__ = ["AsyncPreparedSubmission", "PreparedSubmission"]

T = TypeVar("T")
_taking = shared_lock()


class _Prepared(Generic[T]):
    """Reserves the id and nothing else: no place in the intake, no place in the slot. Dropping it is silent."""

    __slots__ = ("_face", "_used", "id", "submission")

    def __init__(self, face: Any, submission: Submission[T], id_: TaskId) -> None:
        self.id = id_
        """The number that the submission will have."""
        self.submission = submission
        """What will be submitted."""
        self._face = face
        self._used = False

    def __repr__(self) -> str:
        state = "submitted" if self._used else "not submitted"
        return f"<{type(self).__name__} {self.id} {state}>"

    def try_submit(self) -> TaskHandle[T]:
        """Hand it in without waiting.

        Raises:
            RuntimeError: it has been submitted before.
            IntakeFullError: no place at this moment; it may be tried again.
            SupervisorClosedError, NotStartedError: as `Supervisor.submit`; it may be tried again.

        """
        with self._once():
            handle: TaskHandle[T] = self._face.try_submit_prepared(self.submission, self.id)
        return handle

    @contextmanager
    def _once(self) -> Generator[None]:
        with _taking:
            used, self._used = self._used, True
        if used:
            msg = f"{self.id} has been submitted; a prepared submission is submitted once, prepare another one"
            raise RuntimeError(msg)
        try:
            yield
        except BaseException:
            self._used = False  # nothing has been handed in
            raise


class PreparedSubmission(_Prepared[T]):
    """Made by `Supervisor.prepare`. Reserves the id and nothing else; dropping it is silent."""

    __slots__ = ()

    def submit(self) -> TaskHandle[T]:
        """Hand it in, and return its handle. Waits while the intake is full.

        Raises:
            RuntimeError: it has been submitted before.
            SupervisorClosedError, NotStartedError: as `Supervisor.submit`; it may be tried again.

        """
        with self._once():
            handle: TaskHandle[T] = self._face.submit_prepared(self.submission, self.id)
        return handle


class AsyncPreparedSubmission(_Prepared[T]):
    """Made by `AsyncSupervisor.prepare`. Reserves the id and nothing else; dropping it is silent."""

    __slots__ = ()

    async def submit(self) -> TaskHandle[T]:
        """See `PreparedSubmission.submit`. Cancelled while it waits for the intake, it may be submitted again."""
        with self._once():
            handle: TaskHandle[T] = await self._face.submit_prepared(self.submission, self.id)
        return handle
