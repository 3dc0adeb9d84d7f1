"""The slot: one actor per key. It runs the two state machines of `admission` and carries out what they order.

A handler decides (nothing has changed yet), commits (plain assignments), and carries the effects out one by one, each
behind its own barrier. If deciding fails, the slot is reset in place: same actor, mailbox and refs, so that no second
body can start in it and nothing that it held is leaked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.hands import Inform, Inside, SlotHands, SlotServices
from actors.messages import (
    Admit,
    AttemptEnded,
    AttemptReleased,
    AttemptStarted,
    Denied,
    Drain,
    Finished,
    Granted,
    Refused,
    Registered,
    Released,
    Retire,
    Return,
    Ticket,
    View,
    Viewed,
    Withdraw,
    Withdrawn,
)
from actors.runtime import TimerFired
from admission import effects as ordered
from admission.effects import Cause, Effect, Phase, Rank
from admission.events import EventKind
from admission.outcome import Panicked, RejectionKind
from admission.run import RunDecision, RunMachine, RunPhase, WorkerPanicked
from admission.slot import PUBLIC_STATUS, SlotDecision, SlotMachine, Standing
from admission.snapshot import SlotView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykka import ActorRef


__all__ = ["SLOT_HANDLERS", "SlotActor"]

_Emit, _Edge, _TRANSITION = ordered.Emit, ordered.Edge, EventKind.SLOT_TRANSITION


class SlotActor(SlotHands):
    """One key: at most one owner, at most one body, and a line behind them.

    Started with `start` it is a slot of its own, without a registry: see there.
    """

    def __init__(self, key: str, services: SlotServices) -> None:
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
        self._decided(machine.submit(ticket, unit=unit))
        ticket.decided()

    def on_registered(self, message: Registered) -> None:
        """The owner is registered."""
        self._decided(self.machine.registered(message.id, message.epoch))

    def on_refused(self, message: Refused) -> None:
        """The owner is turned away. The registry hears when that is done: only then may it take the slot for idle."""
        done = Inform(self.services.to_registry, Released(message.id), Rank.END)
        decision = self.machine.refused(message.id)
        if decision is None:
            self.runtime.perform(self, [done])
        else:
            decision.effects.append(done)  # type: ignore[arg-type]
            self._decided(decision)

    def on_withdraw(self, message: Withdraw) -> None:
        """Somebody wants a submission gone."""
        standing = self.run.standing if self.run is not None else Standing.FREE
        self._decided(self.machine.withdraw(message.id, message.op, message.cause, standing))

    def on_view(self, message: View) -> None:
        """Say what the slot looks like."""
        machine = self.machine
        view = None
        if machine.owner is not None:
            age = self.runtime.clock.monotonic() - self.since
            view = SlotView(self.key, PUBLIC_STATUS[machine.phase], machine.owner.id, len(machine.line), age)
        self.services.to_registry(Viewed(message.op, view))

    def on_drain(self, message: Drain) -> None:
        """Shutdown."""
        self.draining = True
        self._decided(self.machine.drain(message.deadline))

    def on_retire(self, _message: Retire) -> None:
        """End, or wait for the release of the body that is still inside."""
        self.retiring = True
        if self.inside is None:
            self.end()

    def on_granted(self, message: Granted) -> None:
        """A permit is there."""
        if self._concerns_run(message):
            self._ran(None if self.run is None else self.run.granted(message.attempt))

    def on_denied(self, message: Denied) -> None:
        """A permit will never be there."""
        if self._concerns_run(message):
            self.services.publisher.failure("limiter", message, message.error)
            now = self.runtime.clock.monotonic()
            self._ran(None if self.run is None else self.run.denied(message.attempt, message.error, now))

    def on_attempt_started(self, message: AttemptStarted) -> None:
        """The body is inside."""
        inside = self._current(message)
        if inside is None or inside.entered:
            return
        inside.entered = True
        self.log_body(EventKind.BODY_ENTERED, inside, {"entered_at": message.at})
        self._ran(None if self.run is None else self.run.started(message.attempt, message.at))

    def on_attempt_ended(self, message: AttemptEnded) -> None:
        """The attempt has ended; its body may still be inside."""
        inside = self._current(message)
        if inside is None:
            return
        if message.released:
            self._left(inside, message.at)
        if isinstance(message.result, WorkerPanicked):
            self.services.publisher.failure("worker", message, RuntimeError(message.result.reason))
        now = message.at if message.at is not None else self.runtime.clock.monotonic()
        self._ran(
            None
            if self.run is None
            else self.run.ended(message.attempt, message.result, released=message.released, now=now)
        )
        self._end_if_retired()

    def on_attempt_released(self, message: AttemptReleased) -> None:
        """The body of an attempt that has ended before has left."""
        inside = self._current(message)
        if inside is None:
            return
        self._left(inside, message.at)
        now = message.at if message.at is not None else self.runtime.clock.monotonic()
        self._ran(None if self.run is None else self.run.released(message.attempt, now=now))
        self._end_if_retired()

    def on_run_timer(self, message: TimerFired) -> bool:
        """A timer of the run is due, if it is still one; tell whether it is."""
        for kind, token in self.timers.items():
            if token is message.token:
                del self.timers[kind]
                self._ran(None if self.run is None else self.run.fired(kind, self.runtime.clock.monotonic()))
                return True
        return False

    # -- from decisions to effects -------------------------------------------------------------------------------------

    def _decided(self, decision: SlotDecision | None) -> None:
        """Commit what the slot's machine decided, follow it through, and carry it all out."""
        if decision is not None:
            self._commit(decision)
            if decision.effects:
                self._follow(decision.effects)

    def _ran(self, decision: RunDecision | None) -> None:
        """Commit what the run's machine decided, follow it through, and carry it all out."""
        if decision is not None and self.run is not None:
            self.run.commit(decision)
            if decision.effects:
                self._follow(decision.effects)

    def _commit(self, decision: SlotDecision) -> None:
        machine = self.machine
        if decision.phase is not machine.phase and PUBLIC_STATUS[decision.phase] is not PUBLIC_STATUS[machine.phase]:
            self.since = self.runtime.clock.monotonic()
        machine.commit(decision)

    def _follow(self, effects: list[Effect]) -> None:
        """Let each machine decide about what the other ordered, then carry everything out in the order of ranks.

        If a decision fails on the way, what was decided before it is still carried out: it is committed.
        """
        chain: list[Any] = effects
        out: list[Any] = []
        silent = self.services.publisher.silent
        passed_over = 0  # of most events nobody wants to hear
        effect: Any = None
        try:
            for effect in chain:  # grows while it is walked
                kind = type(effect)  # pyright: ignore[reportUnknownVariableType]
                if kind is _Emit:
                    if effect.kind in silent and effect.entry.notify is None:
                        passed_over += 1
                        continue
                elif kind is _Edge:
                    if _TRANSITION in silent:
                        passed_over += 1
                        continue
                elif kind in _STEPS:
                    chain += _STEPS[kind](self, effect, out)
                    continue
                out.append(effect)
            if passed_over:
                self.services.publisher.skip(passed_over)
        except BaseException:
            rest = chain[chain.index(effect) + 1 :]
            self.runtime.perform(self, ordered.in_order(out + [left for left in rest if type(left) not in _STEPS]))
            raise
        if out:
            self.runtime.perform(self, ordered.in_order(out) if len(out) > 1 else out)

    def _step_start(self, effect: ordered.StartRun, _out: list[Any]) -> Iterable[Any]:
        ticket = effect.entry
        assert isinstance(ticket, Ticket)
        services = self.services
        self.run = run = RunMachine(
            ticket,
            ticket.spec.resolve(services.defaults),
            grace=services.grace,
            limited=services.limiter is not None,
            random=services.runtime.random,
        )
        decision = run.start(cancelled=effect.cancelled)
        run.commit(decision)
        return decision.effects

    def _step_claim(self, effect: ordered.ClaimRun, _out: list[Any]) -> Iterable[Any]:
        return self._claim(effect.cause, None)

    def _step_drain(self, effect: ordered.DrainRun, _out: list[Any]) -> Iterable[Any]:
        return self._claim(Cause.DRAIN, effect.deadline)

    def _claim(self, cause: Cause, deadline: float | None) -> Iterable[Any]:
        run = self.run
        decision = run.claim(cause, self.runtime.clock.monotonic(), deadline) if run is not None else None
        if run is None or decision is None:
            return ()
        run.commit(decision)
        return decision.effects

    def _step_finish(self, effect: ordered.Finish, out: list[Any]) -> Iterable[Any]:
        finished = Finished(self.owner(), effect.outcome, effect.lingering, effect.forced_by)
        out.append(Inform(self.services.to_registry, finished, Rank.END))  # first: the run is over whatever comes now
        decision = self.machine.finished(lingering=effect.lingering)
        self._commit(decision)
        if not effect.lingering:
            self.run = None
        return decision.effects

    def _step_release(self, _effect: ordered.ReleaseRun, out: list[Any]) -> Iterable[Any]:
        ticket = self.owner()
        decision = self.machine.released()
        out.append(Inform(self.services.to_registry, Released(ticket.id), Rank.END))
        self._commit(decision)
        self.run = None
        return decision.effects

    def _step_return_permit(self, effect: ordered.ReturnPermit, out: list[Any]) -> Iterable[Any]:
        limiter, run = self.services.limiter, self.run
        if limiter is not None and run is not None:
            out.append(Inform(limiter.actor_inbox.put, Return(run.entry.id, effect.attempt), Rank.RETURN))
        return ()

    # -- faults --------------------------------------------------------------------------------------------------------

    def on_fault(self, message: Any, error: BaseException) -> Any:
        """Reset the slot in place, and settle what the failing message stood for."""
        self.services.publisher.failure("slot", message, error)
        if isinstance(message, View):  # it decides nothing: a look that fails costs nobody's job
            self.services.to_registry(Viewed(message.op, None))
            return error
        self._remember(message)
        failing = message.ticket if isinstance(message, Admit) else None
        self._reset(f"slot failed over {type(message).__name__}", failing)
        match message:
            case Withdraw():
                self.services.to_registry(Withdrawn(message.id, message.op, claimed=False))
            case Refused():
                self.services.to_registry(Released(message.id))
            case _:
                pass
        self._end_if_retired()
        return error

    def _remember(self, message: Any) -> None:
        """Take from a failing message what it tells of the world; nobody will tell it again."""
        match message:
            case Drain():
                self.draining = True
            case Retire():
                self.retiring = True
            case AttemptStarted() if (inside := self._current(message)) is not None and not inside.entered:
                inside.entered = True
                self.log_body(EventKind.BODY_ENTERED, inside, {"entered_at": message.at})
            case AttemptReleased() | AttemptEnded(released=True) if (inside := self._current(message)) is not None:
                self._left(inside, message.at)
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
        over = run is not None and run.standing is Standing.OVER
        out: list[Any] = []
        for kind in list(self.timers):
            self.drop_timer(kind)
        if services.limiter is not None and run is not None and inside is None:
            out.append(Inform(services.limiter.actor_inbox.put, Return(run.entry.id, run.attempt), Rank.RETURN))
        if inside is not None:
            inside.scope.cancel(Cause.CANCEL)
            out.append(ordered.KillAttempt())
        for entry in machine.line:
            assert isinstance(entry, Ticket)
            out += self._lost_in_reset(entry, reason)
        if failing is not None:
            failing.decided()
        if failing is not None and failing is not owner and machine.line.get(failing.id) is None:
            out += self._lost_in_reset(failing, reason)
        if owner is not None and not over:
            assert isinstance(owner, Ticket)
            finished = Finished(owner, Panicked(reason), lingering=inside is not None)
            out.append(Inform(services.to_registry, finished, Rank.END))
        elif owner is not None and inside is None:
            out.append(Inform(services.to_registry, Released(owner.id), Rank.END))
        services.budget.give(self.units)
        self.units = 0
        self.machine = fresh = SlotMachine(services.max_queue)
        fresh.draining = self.draining
        fresh.owner = owner if inside is not None else None
        fresh.phase = Phase.TERMINATING if inside is not None else Phase.CLOSED if self.draining else Phase.IDLE
        out += _edges(machine.phase, fresh.phase)
        self.run = self._lingering_run(inside) if inside is not None else None
        self.since = self.runtime.clock.monotonic()
        self.runtime.perform(self, ordered.in_order(out))

    def _lost_in_reset(self, ticket: Ticket, reason: str) -> tuple[Any, ...]:
        kind = RejectionKind.ADMISSION_FAILED
        fields = {"rejection_kind": kind, "reason": reason}
        return (
            ordered.Emit(EventKind.SUBMISSION_REJECTED, ticket, None, fields),
            ordered.Reject(ticket, kind, reason),
        )

    def _lingering_run(self, inside: Inside) -> RunMachine:
        """Make the machine of a run that has its outcome and whose body has not left."""
        services = self.services
        run = RunMachine(
            inside.ticket,
            services.defaults.settings,
            grace=services.grace,
            limited=services.limiter is not None,
            random=services.runtime.random,
        )
        run.phase, run.attempt, run.claimed = RunPhase.LINGERING, inside.attempt, True
        return run

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _concerns_run(self, message: Granted | Denied) -> bool:
        return self.run is not None and self.run.entry.id == message.id

    def _current(self, message: AttemptStarted | AttemptEnded | AttemptReleased) -> Inside | None:
        """Return the attempt that has a worker if the message is about it."""
        inside = self.inside
        current = inside is not None and inside.ticket.id == message.id and inside.attempt == message.attempt
        return inside if current else None

    def _left(self, inside: Inside, at: float | None) -> None:
        """Remember that the code of this attempt has left, before anything is decided about it."""
        self.inside = None
        if at is not None and inside.entered:
            self.log_body(EventKind.BODY_LEFT, inside, {"left_at": at})
        if self.run is not None and self.run.phase is RunPhase.LINGERING:
            self.log_body(EventKind.ATTEMPT_RELEASED, inside, {})

    def _end_if_retired(self) -> None:
        if self.retiring and self.inside is None:
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
    ordered.ReturnPermit: SlotActor._step_return_permit,  # noqa: SLF001
}
"""Effects of one machine about which the other decides, in the same turn."""

SlotActor.handlers = SLOT_HANDLERS
