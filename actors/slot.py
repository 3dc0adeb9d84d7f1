"""The slot: one actor per key. It runs the two state machines of `admission` and carries out what they order.

A handler has a machine decide and assign, and carries the effects out one by one, each behind its own barrier. If
deciding fails, the slot is reset in place: same actor, mailbox and refs, so that no second body can start in it and
nothing that it held is leaked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.bodies import cancel
from actors.hands import SlotHands, SlotServices
from actors.messages import (
    Admit,
    Adopt,
    AttemptEnded,
    AttemptReleased,
    AttemptStarted,
    Denied,
    Drain,
    Granted,
    Refused,
    Registered,
    Released,
    Retire,
    Ticket,
    View,
    Viewed,
    Withdraw,
    Withdrawn,
)
from actors.runtime import TimerFired
from actors.slot_views import explain, glance, who_is_inside
from admission import effects as ordered
from admission.effects import Cause, Phase
from admission.events import EventKind
from admission.outcome import Panicked, RejectionKind
from admission.run import RunMachine, RunPhase, WorkerPanicked
from admission.slot import PUBLIC_STATUS, SlotMachine, Standing, rejection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykka import ActorRef

    from actors.bodies import BodyJob
    from admission.effects import Effect

__all__ = ["SLOT_HANDLERS", "SlotActor"]


class SlotActor(SlotHands):
    """One key: at most one owner, at most one body, and a line behind them.

    Started with `start` it is a slot of its own, without a registry: see there.
    """

    def __init__(self, key: str | None, services: SlotServices) -> None:
        super().__init__(services.runtime)
        self.set_up(key, services)

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> ActorRef[Any]:
        """Start a slot of its own, without a registry; see `LoneSlotActor` for what it takes and answers."""
        if cls is not SlotActor:
            return super().start(*args, **kwargs)
        from actors.lone import LoneSlotActor  # noqa: PLC0415 - it is built on this class

        return LoneSlotActor.start(*args, **kwargs)

    # -- messages ------------------------------------------------------------------------------------------------------

    def on_admit(self, message: Admit) -> None:
        """Decide about a submission."""
        ticket, machine = message.ticket, self.machine
        unit = True
        if machine.needs_unit(ticket.policy):
            unit = self.services.budget.take()
            self.units += unit
        self._follow(machine.submit(ticket, unit=unit))
        ticket.decided()

    def on_adopt(self, message: Adopt) -> None:
        """Run what is registered already: this is a private slot."""
        self._follow(self.machine.adopt(message.ticket, message.epoch))

    def on_registered(self, message: Registered) -> None:
        """The owner is registered."""
        self._follow(self.machine.registered(message.id, message.epoch))

    def on_refused(self, message: Refused) -> None:
        """The owner is turned away. The registry hears when that is done: only then may it take the slot for idle."""
        effects = self.machine.refused(message.id) or []
        effects.append(ordered.Vacate(message.id))
        self._follow(effects)

    def on_withdraw(self, message: Withdraw) -> None:
        """Somebody wants a submission gone."""
        standing = self.run.standing if self.run is not None else Standing.FREE
        self._follow(self.machine.withdraw(message.id, message.op, message.cause, standing))

    def on_view(self, message: View) -> None:
        """Say what the slot looks like."""
        view = explain(self, message.about) if message.explain else glance(self)
        self.services.to_registry(Viewed(message.op, view, who_is_inside(self)))

    def on_drain(self, message: Drain) -> None:
        """Shutdown."""
        self.draining = True
        self._follow(self.machine.drain(message.deadline))

    def on_retire(self, _message: Retire) -> None:
        """End, or wait for the release of the body that is still inside."""
        self.retiring = True
        self._end_if_empty()

    def on_granted(self, message: Granted) -> None:
        """A permit is there."""
        run = self.run
        if run is not None and run.entry.id == message.id:
            self._follow(run.granted(message.attempt))

    def on_denied(self, message: Denied) -> None:
        """A permit will never be there."""
        run = self.run
        if run is not None and run.entry.id == message.id:
            self.services.publisher.failure("limiter", message, message.error)
            self._follow(run.denied(message.attempt, message.error, self.runtime.clock.monotonic()))

    def on_attempt_started(self, message: AttemptStarted) -> None:
        """The body is inside."""
        job, run = self._current(message), self.run
        if job is None or job.known_inside:
            return
        job.known_inside = True
        if not self.services.publisher.passes_over(job.ticket):
            self._log_entered(job, message.at)
        if run is not None:
            self._follow(run.started(message.attempt, message.at))

    def on_attempt_ended(self, message: AttemptEnded) -> None:
        """The attempt has ended; its body may still be inside."""
        job, run, at = self.inside, self.run, message.at
        if job is None or job.attempt != message.attempt or job.ticket.id != message.id:
            return
        if message.released:
            self._left(job, at)
        if type(message.result) is WorkerPanicked:
            self.services.publisher.failure("worker", message, RuntimeError(message.result.reason))
        if run is not None:
            now = at if at is not None else self.runtime.clock.monotonic()
            self._follow(run.ended(message.attempt, message.result, released=message.released, now=now))
        if self.retiring:
            self._end_if_empty()

    def on_attempt_released(self, message: AttemptReleased) -> None:
        """The body of an attempt that has ended before has left."""
        job, run, at = self._current(message), self.run, message.at
        if job is None:
            return
        self._left(job, at)
        if run is not None:
            self._follow(run.released(message.attempt, now=at if at is not None else self.runtime.clock.monotonic()))
        if self.retiring:
            self._end_if_empty()

    def on_run_timer(self, message: TimerFired) -> bool:
        """A timer of the run is due, if it is still one; tell whether it is."""
        for kind, token in self.timers.items():
            if token is message.token:
                del self.timers[kind]
                if self.run is not None:
                    self._follow(self.run.fired(kind, self.runtime.clock.monotonic()))
                return True
        return False

    # -- from decisions to effects -------------------------------------------------------------------------------------

    def _follow(self, effects: list[Effect] | None) -> None:
        """Let each machine decide about what the other ordered, then carry everything out in the order of ranks.

        If a decision fails on the way, what was decided before it is still carried out.
        """
        if not effects:
            return
        out: list[Effect] = []
        effect: Any = None
        try:
            for effect in effects:  # grows while it is walked
                kind = type(effect)  # pyright: ignore[reportUnknownVariableType]
                if kind in _STEPS:
                    effects.extend(_STEPS[kind](self, effect, out))
                else:
                    out.append(effect)
            status = PUBLIC_STATUS[self.machine.phase]
            if status is not self.status:
                self.since = self.runtime.clock.monotonic()
                self.status = status
            if len(out) > 1:
                out = ordered.in_order(out)
        except BaseException:
            rest = effects[effects.index(effect) + 1 :]
            self.runtime.perform(self, out + [left for left in rest if type(left) not in _STEPS])
            raise
        if out:
            self.runtime.perform(self, out)

    def _step_start(self, effect: ordered.StartRun, _out: list[Effect]) -> Iterable[Effect]:
        ticket, services = effect.entry, self.services
        assert isinstance(ticket, Ticket)
        self.run = run = RunMachine(ticket, ticket.spec.resolve(services.defaults), services.rules)
        return run.start(cancelled=effect.cancelled)

    def _step_claim(self, effect: ordered.ClaimRun, _out: list[Effect]) -> Iterable[Effect]:
        return self._claim(effect.cause, None)

    def _step_drain(self, effect: ordered.DrainRun, _out: list[Effect]) -> Iterable[Effect]:
        return self._claim(Cause.DRAIN, effect.deadline)

    def _claim(self, cause: Cause, deadline: float | None) -> Iterable[Effect]:
        run = self.run
        return (run.claim(cause, self.runtime.clock.monotonic(), deadline) or ()) if run is not None else ()

    def _step_finish(self, effect: ordered.Finish, out: list[Effect]) -> Iterable[Effect]:
        out.append(effect)  # first: the run is over whatever comes now
        freed = self.machine.finished(lingering=effect.lingering)
        if not effect.lingering:
            self.run = None
        return freed

    def _step_release(self, _effect: ordered.ReleaseRun, out: list[Effect]) -> Iterable[Effect]:
        out.append(ordered.Vacate(self.owner().id))
        freed = self.machine.released()
        self.run = None
        return freed

    # -- faults --------------------------------------------------------------------------------------------------------

    def on_fault(self, message: Any, error: BaseException) -> Any:
        """Reset the slot in place, and settle what the failing message stood for."""
        self.services.publisher.failure("slot", message, error)
        if isinstance(message, View):  # it decides nothing: a look that fails costs nobody's job
            self.services.to_registry(Viewed(message.op, None))
            return error
        self._remember(message)
        failing = message.ticket if isinstance(message, (Admit, Adopt)) else None
        self._reset(f"slot failed over {type(message).__name__}", failing)
        match message:
            case Withdraw():
                self.services.to_registry(Withdrawn(message.id, message.op, claimed=False))
            case Refused():
                self.services.to_registry(Released(message.id))
            case _:
                pass
        if self.retiring:
            self._end_if_empty()
        return error

    def _remember(self, message: Any) -> None:
        """Take from a failing message what it tells of the world; nobody will tell it again."""
        match message:
            case Drain():
                self.draining = True
            case Retire():
                self.retiring = True
            case AttemptStarted() if (job := self._current(message)) is not None and not job.known_inside:
                job.known_inside = True
                self._log_entered(job, message.at)
            case AttemptReleased() | AttemptEnded(released=True) if (job := self._current(message)) is not None:
                self._left(job, message.at)
            case _:
                pass

    def on_stop_requested(self) -> Any:
        """Only its registry ends a slot; from anybody else it counts as a failing handler."""
        reason = "slot was asked to stop"
        self.services.publisher.failure("slot", self, RuntimeError(reason))
        self._reset(reason, None)
        return True

    def _reset(self, reason: str, failing: Ticket | None) -> None:
        """Give up the owner and the line, keep the actor; with a body inside stay *terminating* until it has left."""
        machine, run, inside, services = self.machine, self.run, self.inside, self.services
        owner = machine.owner
        out: list[Effect] = []
        for kind in list(self.timers):
            self.drop_timer(kind)
        if run is not None and inside is None:
            out.append(ordered.ReturnPermit(run.entry.id, run.attempt))
        if inside is not None:
            cancel(inside.ctx, Cause.CANCEL)
            out.append(ordered.KillAttempt())
        for entry in machine.line:
            if entry is not owner:
                out += rejection(entry, RejectionKind.ADMISSION_FAILED, reason)
        if failing is not None:
            failing.decided()
            if failing is not owner and machine.line.get(failing.id) is None:
                out += (
                    rejection(failing, RejectionKind.ADMISSION_FAILED, reason)
                    if self.key is not None
                    else (ordered.Finish(failing, Panicked(reason)),)  # it is registered
                )
        if owner is not None:  # one that has its outcome keeps it; and then its name is free, if nothing is inside
            out.append(ordered.Finish(owner, Panicked(reason), lingering=inside is not None))
            if inside is None:
                out.append(ordered.Vacate(owner.id))
        services.budget.give(self.units)
        self.units = 0
        self.machine = fresh = SlotMachine(services.rules)
        fresh.draining = self.draining
        fresh.owner = owner if inside is not None else None
        fresh.phase = Phase.TERMINATING if inside is not None else Phase.CLOSED if self.draining else Phase.IDLE
        out += _edges(machine.phase, fresh.phase)
        self.run = self._lingering_run(inside) if inside is not None else None
        self.status = PUBLIC_STATUS[fresh.phase]
        self.since = self.runtime.clock.monotonic()
        self.runtime.perform(self, ordered.in_order(out))

    def _lingering_run(self, job: BodyJob) -> RunMachine:
        """Make the machine of a run that has its outcome and whose body has not left."""
        run = RunMachine(job.ticket, self.services.defaults.settings, self.services.rules)
        run.phase, run.attempt, run.claimed = RunPhase.LINGERING, job.attempt, True
        return run

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _current(self, message: AttemptStarted | AttemptEnded | AttemptReleased) -> BodyJob | None:
        """Return the attempt that has a worker if the message is about it."""
        job = self.inside
        current = job is not None and job.attempt == message.attempt and job.ticket.id == message.id
        return job if current else None

    def _log_entered(self, job: BodyJob, at: float) -> None:
        self.log_body(EventKind.BODY_ENTERED, job, {"entered_at": at})

    def _left(self, job: BodyJob, at: float | None) -> None:
        """Remember that the code of this attempt has left, before anything is decided about it."""
        self.inside = None
        if at is not None and job.known_inside and not self.services.publisher.passes_over(job.ticket):
            self.log_body(EventKind.BODY_LEFT, job, {"left_at": at})
        if self.run is not None and self.run.phase is RunPhase.LINGERING:
            self.log_body(EventKind.ATTEMPT_RELEASED, job, {})

    def _end_if_empty(self) -> None:
        """Being retired: end as soon as no body is inside."""
        if self.inside is None:
            self.end()


def _edges(before: Phase, after: Phase) -> list[ordered.Edge]:
    """Return the legal edges from one phase to the other for a slot that is reset."""
    if before is after or before is Phase.CLOSED:
        return []
    if before is Phase.ABSENT:
        return [ordered.Edge(before, Phase.ADMITTING), ordered.Edge(Phase.ADMITTING, after)]
    return [ordered.Edge(before, after, reason="reset")]


SLOT_HANDLERS: Final[dict[type, Any]] = {
    Admit: SlotActor.on_admit,
    Adopt: SlotActor.on_adopt,
    Registered: SlotActor.on_registered,
    Refused: SlotActor.on_refused,
    Withdraw: SlotActor.on_withdraw,
    View: SlotActor.on_view,
    Drain: SlotActor.on_drain,
    Retire: SlotActor.on_retire,
    Granted: SlotActor.on_granted,
    Denied: SlotActor.on_denied,
    AttemptStarted: SlotActor.on_attempt_started,
    AttemptEnded: SlotActor.on_attempt_ended,
    AttemptReleased: SlotActor.on_attempt_released,
    TimerFired: SlotActor.on_run_timer,
}

_STEPS: dict[type, Any] = {
    ordered.StartRun: SlotActor._step_start,  # noqa: SLF001
    ordered.ClaimRun: SlotActor._step_claim,  # noqa: SLF001
    ordered.DrainRun: SlotActor._step_drain,  # noqa: SLF001
    ordered.Finish: SlotActor._step_finish,  # noqa: SLF001
    ordered.ReleaseRun: SlotActor._step_release,  # noqa: SLF001
}
"""Effects of one machine about which the other decides, in the same turn."""

SlotActor.handlers = SLOT_HANDLERS
