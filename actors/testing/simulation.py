"""The true actors under a seeded scheduler and a virtual clock. No thread is started; the same seed, the same trace.

A step is one message handled, one effect of a turn carried out, one body entered or left, or one callback. Which comes
next is chosen by the seed among all that are possible: messages of one mailbox and effects of one turn keep their
order, and an actor handles its next message only after its turn's effects. Time passes only when nothing else is left.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Self

from pykka._envelope import Envelope

from actors.runtime import Clock, Runtime, TimerFired
from actors.runtime.mailbox import Mailbox
from actors.supervisor import Supervisor
from actors.testing.scripts import ScriptedBodies
from admission.identity import TaskId

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from pykka import ActorRef, Future

    from actors.runtime import RuntimeActor, TimerToken, Waitable
    from actors.testing.scripts import Mark

__all__ = ["Simulation", "StuckError"]

_EPOCH = 1_000_000_000.0


class StuckError(RuntimeError):
    """Somebody waits in a simulation for what can not happen any more: no step and no timer is left."""


class VirtualClock(Clock):
    """A clock that stands still until the simulation moves it."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds since the simulation began."""
        return self.now

    def wall(self) -> float:
        """The same, as a wall clock."""
        return _EPOCH + self.now


class _Steps:
    """What stands in for every dispatcher: remembers what is ready, runs nothing."""

    def __init__(self) -> None:
        self.ready: dict[Any, None] = {}
        self.forked = False

    def schedule(self, runnable: Any) -> None:
        self.ready[runnable] = None

    def is_own_thread(self) -> bool:
        return False

    def leave_behind(self, thread: threading.Thread) -> None:
        del thread

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def join(self, timeout: float) -> None:
        del timeout


class _Timers:
    """A heap without a thread."""

    def __init__(self) -> None:
        self.heap: list[TimerToken] = []
        self._numbers = count()

    def schedule(self, due: float, ref: ActorRef[Any]) -> TimerToken:
        token: TimerToken = [due, next(self._numbers), None]
        token[2] = lambda: ref.actor_inbox.put(TimerFired(token))  # type: ignore[arg-type]
        return self._push(token)

    def call_at(self, due: float, action: Callable[[], object]) -> TimerToken:
        return self._push([due, next(self._numbers), action])

    def _push(self, token: TimerToken) -> TimerToken:
        if token[0] != float("inf"):  # what is never due is no timer
            heapq.heappush(self.heap, token)
        return token

    def cancel(self, token: TimerToken) -> None:
        token[2] = None

    def next_due(self) -> float | None:
        while self.heap and self.heap[0][2] is None:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def fire_next(self) -> None:
        token = heapq.heappop(self.heap)
        action, token[2] = token[2], None
        if action is not None:
            action()

    def start(self) -> None:
        pass

    def close(self) -> None:
        self.heap.clear()

    def join(self, timeout: float) -> None:
        del timeout


class _Post:
    """A step that belongs to no actor."""

    __slots__ = ("action", "name")

    def __init__(self, name: str, action: Callable[[], object]) -> None:
        self.name = name
        self.action = action


class _Records:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def _keep(self, event: str, **fields: Any) -> None:
        self.records.append({"event": event, **fields})

    debug = info = warning = error = critical = _keep


class Simulation(Runtime):
    """A runtime for tests.

    ``with Simulation(seed=7).supervisor() as supervisor:`` gives the ordinary face: `submit`, `outcome()` and the rest
    drive the simulation until what they wait for has happened, in no time at all. Bodies are scripts
    (`scripted(Script(...))`) or plain callables that do not wait. `records` is the structured log, `trace` the steps,
    `marks` what the scripted bodies did.

    Raises:
        StuckError: something is waited for that can not happen any more.

    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.steps = _Steps()
        self.log = _Records()
        self.trace: list[str] = []
        self._choice = Random(seed)  # noqa: S311 - a schedule, not a secret
        self._pending: dict[RuntimeActor, deque[Any]] = {}
        self._carrying: tuple[RuntimeActor, list[Any]] | None = None
        self._virtual = VirtualClock()
        self._scripts = ScriptedBodies(self)
        numbers, names = count(1), count(1)
        super().__init__(
            self._scripts,
            clock=self._virtual,
            chance=Random(seed + 1),  # noqa: S311 - as above
            new_id=lambda: TaskId(next(numbers)),
            new_name=lambda: f"simulation-{seed}-{next(names)}",
        )

    def _make_threads(self) -> None:
        self.dispatcher = self.observers = self.steps  # type: ignore[assignment]
        self.timers = _Timers()  # type: ignore[assignment]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records(self) -> list[dict[str, Any]]:
        """The log records written so far."""
        return self.log.records

    @property
    def marks(self) -> list[Mark]:
        """What scripted bodies did so far, in order."""
        return self._scripts.marks

    def supervisor(self, **options: Any) -> Supervisor:
        """Make a supervisor on this simulation that logs to `records`; options as for `Supervisor`."""
        return Supervisor(runtime=self, logger=self.log, **options)

    # -- driving -----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do one step, chosen by the seed; False where nothing is ready."""
        candidates: list[Any] = list(self._pending)
        candidates += [
            ready for ready in self.steps.ready if not isinstance(ready, Mailbox) or ready.owner not in self._pending
        ]
        if not candidates:
            return False
        chosen = candidates[self._choice.randrange(len(candidates))]
        if isinstance(chosen, Mailbox):
            self._handle_one(chosen)
        elif isinstance(chosen, _Post):
            del self.steps.ready[chosen]
            self._note(chosen.name)
            chosen.action()
        else:
            self._carry_out_one(chosen)
        return True

    def run_until_idle(self) -> None:
        """Do every step that is possible without time passing."""
        while self.step():
            pass

    def advance(self, seconds: float) -> None:
        """Let this much time pass, with everything that happens meanwhile."""
        self._run_to(self._virtual.now + seconds)

    def post(self, name: str, action: Callable[[], object]) -> None:
        """Have this done in a step of its own."""
        self.steps.ready[_Post(name, action)] = None

    def timeline(self) -> str:
        """Return the trace as text."""
        return "\n".join(self.trace)

    def _run_to(self, until: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Go on until `done`, or this instant; tell whether it is done."""
        while not done():
            if self.step():
                continue
            due = self.timers.next_due()  # type: ignore[attr-defined]
            if due is None or due > until:
                if until == float("inf"):
                    msg = f"nothing is left that could happen (seed {self.seed}, {len(self.trace)} steps)"
                    raise StuckError(msg)
                self._virtual.now = max(self._virtual.now, until)
                return done()
            self._virtual.now = max(self._virtual.now, due)
            self.timers.fire_next()  # type: ignore[attr-defined]
        return True

    # -- what a runtime does -----------------------------------------------------------------------------------------

    def perform(self, actor: RuntimeActor, effects: Sequence[Any]) -> None:
        """Make every effect a step of its own, before the actor's next message."""
        if self._carrying is not None and self._carrying[0] is actor:
            self._carrying[1].extend(effects)  # ordered by an effect: goes before the rest of its turn
        elif effects:
            self._pending.setdefault(actor, deque()).extend(effects)

    def wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Drive the simulation until it is set, or `timeout` virtual seconds are over."""
        return self._run_to(self._deadline(timeout), waitable.done)

    def reply(self, future: Future[Any], timeout: float | None = None) -> Any:
        """Drive the simulation until the reply is there, or `timeout` virtual seconds are over."""
        if not self._run_to(self._deadline(timeout), lambda: future._result is not None):  # type: ignore[attr-defined]  # noqa: SLF001
            msg = f"no reply within {timeout} s"
            raise TimeoutError(msg)
        return future.get(timeout=0)

    def _deadline(self, timeout: float | None) -> float:
        return float("inf") if timeout is None else self._virtual.now + timeout

    # -- steps -------------------------------------------------------------------------------------------------------

    def _handle_one(self, mailbox: Mailbox) -> None:
        del self.steps.ready[mailbox]
        owner = mailbox.owner
        self._handling = owner
        mailbox.run(1)

    def _carry_out_one(self, actor: RuntimeActor) -> None:
        effects = self._pending[actor]
        effect = effects.popleft()
        self._note(f"{_actor(actor)} -> {_message(effect)}")
        ordered: list[Any] = []
        self._carrying = (actor, ordered)
        try:
            super().perform(actor, [effect])
        finally:
            self._carrying = None
        effects.extendleft(reversed(ordered))
        if not effects:
            del self._pending[actor]

    def _note(self, what: str) -> None:
        self.trace.append(f"{self._virtual.now:12.6f} {what}")


def _actor(actor: Any) -> str:
    key = getattr(actor, "key", None)
    return f"{type(actor).__name__}[{key}]" if key is not None else type(actor).__name__


def _message(item: Any) -> str:
    if type(item) is Envelope:
        return f"{_message(item.message)} (asked)"  # pyright: ignore[reportUnknownMemberType]
    parts = [type(item).__name__]
    inner = getattr(item, "message", None)
    if inner is not None:
        parts.append(_message(inner))
    for name in ("id", "attempt", "kind", "from_phase", "to_phase"):
        value = getattr(item, name, None)
        if value is not None:
            parts.append(str(value))
    entry = getattr(item, "ticket", None) or getattr(item, "entry", None)
    if entry is not None:
        parts.append(str(entry.id))
    return " ".join(parts)
