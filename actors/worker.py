"""The worker: one attempt. It starts the body, passes on what the body reports, and ends with its release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.messages import (
    AttemptEnded,
    AttemptReleased,
    AttemptStarted,
    Begin,
    BodyEntered,
    BodyReturned,
    Kill,
    Stop,
)
from actors.runtime import RuntimeActor
from admission.run import AttemptRaised, WorkerPanicked

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.bodies import BodyJob, BodyRunner
    from actors.runtime import Runtime

__all__ = ["WorkerActor"]

_BEGIN = Begin()  # it says nothing but itself


class WorkerActor(RuntimeActor):
    """Between one body and the slot. If it fails it says so and lives on until the body has left."""

    handed_over = False
    """Whether the runner has the body."""
    ended = False
    """Whether the slot knows how the attempt ended."""

    def __init__(self, runtime: Runtime, to_slot: Callable[[Any], object], runner: BodyRunner, job: BodyJob) -> None:
        super().__init__(runtime)
        self.to_slot = to_slot
        self.runner = runner
        self.job = job
        job.inbox = self.actor_inbox

    @classmethod
    def begin(cls, runtime: Runtime, to_slot: Callable[[Any], object], runner: BodyRunner, job: BodyJob) -> None:
        """Start a worker and have it begin. The job knows its mailbox; nobody needs a ref."""
        cls(runtime, to_slot, runner, job).attach()
        job.inbox.put(_BEGIN)

    def on_begin(self, _message: Begin) -> None:
        """Hand the body over."""
        self.handed_over = True
        try:
            self.runner.start(self.job)
        except BaseException as error:  # noqa: BLE001 - no thread, no loop: it failed to start and may be retried
            self.handed_over = False
            self._report(AttemptRaised(error, f"failed to start: {error}"), released=True, at=None)
            self.end()

    def on_entered(self, message: BodyEntered) -> None:
        """Tell the slot that the body is inside."""
        if not self.ended:
            ctx = self.job.ctx
            self.to_slot(AttemptStarted(ctx.task_id, ctx.attempt, message.at))

    def on_returned(self, message: BodyReturned) -> None:
        """Tell the slot that the body has left, and end."""
        ctx = self.job.ctx
        if self.ended:
            self.to_slot(AttemptReleased(ctx.task_id, ctx.attempt, message.at))
        else:
            self.to_slot(AttemptEnded(ctx.task_id, ctx.attempt, message.result, True, message.at))  # noqa: FBT003
            self.ended = True  # only now: if that failed, the slot has yet to hear how the attempt ended
        self.end()

    def on_stop_body(self, _message: Stop) -> None:
        """Wake the body."""
        self.runner.stop(self.job)

    def on_kill_body(self, _message: Kill) -> None:
        """End the body where it can be ended."""
        self.runner.kill(self.job)

    def on_fault(self, message: Any, error: BaseException) -> Any:
        """Report that this worker failed; if the body is inside, its release is still to come."""
        left = isinstance(message, BodyReturned)
        self._panic(f"worker failed over {type(message).__name__}: {type(error).__name__}", message if left else None)
        return error

    def on_stop_requested(self) -> bool:
        """Nobody stops a worker from outside: that counts as a failure, and the body's release is waited for."""
        self._panic("worker was asked to stop", None)
        return True

    def _panic(self, reason: str, left: BodyReturned | None) -> None:
        released = left is not None or not self.handed_over
        if not self.ended:
            self._report(WorkerPanicked(reason), released=released, at=left.at if left is not None else None)
        elif left is not None:
            self.to_slot(AttemptReleased(self.job.ctx.task_id, self.job.ctx.attempt, left.at))
        if released:
            self.end()

    def _report(self, result: Any, *, released: bool, at: float | None) -> None:
        ctx = self.job.ctx
        self.to_slot(AttemptEnded(ctx.task_id, ctx.attempt, result, released, at))
        self.ended = True


WorkerActor.handlers = {
    Begin: WorkerActor.on_begin,
    BodyEntered: WorkerActor.on_entered,
    BodyReturned: WorkerActor.on_returned,
    Stop: WorkerActor.on_stop_body,
    Kill: WorkerActor.on_kill_body,
}
