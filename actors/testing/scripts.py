"""Bodies for the simulation: what each attempt does, in virtual time, instead of code that does it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from actors.bodies.job import judge, returned
from admission.effects import Cause
from admission.errors import TaskCancelledError
from admission.labels import Label
from admission.run import AttemptCancelled

if TYPE_CHECKING:
    from actors.bodies import BodyJob
    from actors.testing.simulation import Simulation
    from admission.identity import TaskId
    from admission.run import BodyResult
    from admission.spec import TaskSpec

__all__ = ["FOREVER", "Mark", "Moment", "Script", "ScriptedBodies", "scripted"]

FOREVER = math.inf
_ASKED_TO_STOP = TaskCancelledError("asked to stop")


@dataclass(frozen=True, slots=True)
class Script:
    """One attempt: stay inside for `seconds`, then return `result`, or raise it if it is an exception.

    Asked to stop, it leaves after `cleanup` seconds with `on_cancel` (returned, or raised if it is an exception),
    unless it `ignores_cancel`. One that is `killable` is ended from outside, like a process: at once when it times out,
    and when it is given up.
    """

    seconds: float = 0.0
    result: Any = None
    ignores_cancel: bool = False
    cleanup: float = 0.0
    on_cancel: Any = _ASKED_TO_STOP
    killable: bool = False


class Moment(Label):
    """What a scripted body's own side can tell of it."""

    ENTERED = "entered"
    ASKED = "asked"
    """It saw that it is asked to stop."""
    LEFT = "left"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that a scripted body did, at this virtual instant; `result` is what it left with."""

    at: float
    id: TaskId
    attempt: int
    moment: Moment
    result: Any = None


class _Scripted:
    """A body made of scripts. Callable only in name: it runs in a simulation."""

    def __init__(self, attempts: tuple[Script, ...]) -> None:
        self.attempts = attempts
        self.__qualname__ = "scripted"

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        msg = "a scripted body runs only on a Simulation"
        raise RuntimeError(msg)

    def of_attempt(self, attempt: int) -> Script:
        return self.attempts[min(attempt, len(self.attempts)) - 1]


def scripted(*attempts: Script) -> Any:
    """Make a body whose attempts follow these scripts; the last one repeats."""
    return _Scripted(attempts or (Script(),))


class _Inside:
    """A scripted body that has been entered."""

    __slots__ = ("leaving", "script", "stops", "timer")

    def __init__(self, script: Script) -> None:
        self.script = script
        self.timer: Any = None
        self.leaving = False
        self.stops = 0


class ScriptedBodies:
    """Runs scripts by the simulation's clock, and real callables in one step, on the thread that drives it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._inside: dict[BodyJob, _Inside] = {}
        self.marks: list[Mark] = []

    def of(self, _spec: TaskSpec[Any]) -> ScriptedBodies:
        """Return itself: one runner for all bodies."""
        return self

    def start(self, job: BodyJob) -> None:
        """Have the body entered, in a step of its own."""
        self._simulation.post(f"enter {_name(job)}", partial(self._enter, job))

    def stop(self, job: BodyJob) -> None:
        """Wake the body, or end it: one that can be ended has no time left once it has timed out."""
        if job.claim_entry():
            job.given_up()
            return
        inside = self._inside.get(job)
        if inside is None:
            return
        inside.stops += 1
        # A slot asks twice only where a claim and the timeout meet; the context keeps the first cause.
        timed_out = inside.stops > 1 or job.ctx._cause is Cause.TIMEOUT  # noqa: SLF001
        if inside.script.killable and timed_out:
            self._end(job)
        else:
            self._wake(job, inside)

    def kill(self, job: BodyJob) -> None:
        """End a body that can be ended; any other is asked to stop, like a thread."""
        inside = self._inside.get(job)
        if inside is not None and inside.script.killable:
            self._end(job)
        else:
            self.stop(job)

    def close(self) -> None:
        """Nothing to let go of."""

    def _enter(self, job: BodyJob) -> None:
        if not job.claim_entry():
            return
        job.entered()
        body = job.spec.body
        if isinstance(body, _Scripted):
            script = body.of_attempt(job.ctx.attempt)
            inside = self._inside[job] = _Inside(script)
            self._mark(job, Moment.ENTERED)
            self._leave_after(job, inside, script.seconds, script.result)
            if job.ctx.cancelled:
                self._wake(job, inside)
            return
        try:
            result = returned(job.context.run(job.call))
        except BaseException as error:  # noqa: BLE001 - whatever a body raises is its result
            result = judge(error)
        self._simulation.post(f"leave {_name(job)}", partial(job.left, result))

    def _wake(self, job: BodyJob, inside: _Inside) -> None:
        script = inside.script
        if script.ignores_cancel or inside.leaving:
            return
        inside.leaving = True
        self._simulation.timers.cancel(inside.timer)
        self._mark(job, Moment.ASKED)
        self._leave_after(job, inside, script.cleanup, script.on_cancel)

    def _end(self, job: BodyJob) -> None:
        self._simulation.timers.cancel(self._inside.pop(job).timer)

        def ended() -> None:
            self._mark(job, Moment.KILLED)
            job.left(AttemptCancelled())

        self._simulation.post(f"end {_name(job)}", ended)

    def _leave_after(self, job: BodyJob, inside: _Inside, seconds: float, value: Any) -> None:
        result: BodyResult[Any] = judge(value) if isinstance(value, BaseException) else returned(value)
        simulation = self._simulation
        due = simulation.clock.monotonic() + seconds

        def leave() -> None:
            if self._inside.pop(job, None) is not None:  # it may have been ended in this very instant
                self._mark(job, Moment.LEFT, value)
                job.left(result)

        inside.timer = simulation.timers.call_at(due, partial(simulation.post, f"leave {_name(job)}", leave))

    def _mark(self, job: BodyJob, moment: Moment, result: Any = None) -> None:
        now = self._simulation.clock.monotonic()
        self.marks.append(Mark(now, job.ctx.task_id, job.attempt, moment, result))


def _name(job: BodyJob) -> str:
    return f"{job.ctx.task_id}/{job.ctx.attempt}"
