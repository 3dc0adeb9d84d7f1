"""Performs a recorded scenario here: the true actors on a simulation, in virtual time, through the ordinary face."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pykka import Timeout

from actors.messages import Cancel, Remove, Shutdown
from actors.testing import Script, Simulation, Verdict, check, scripted
from actors.testing.scripts import FOREVER, Moment
from admission import (
    AdmissionLimits,
    Backoff,
    FatalError,
    Jitter,
    Rejected,
    TaskCancelledError,
    TaskFailedError,
    TaskSpec,
)
from admission.errors import SlotkeeperError
from admission.report import ShutdownReport
from tests.conformance.golden.recording import Account, Ended, Mark, Op, name_of, step
from tests.conformance.golden.rules import in_our_words, is_ours_only

if TYPE_CHECKING:
    from actors.handle import TaskHandle
    from actors.supervisor import Supervisor
    from tests.conformance.golden.recording import Recording

__all__ = ["perform"]

_OVER = 3600.0
"""Seconds after the last command until which a body may still leave."""

_MOMENTS = {Moment.ENTERED: "start", Moment.ASKED: "cancel_seen", Moment.LEFT: "end", Moment.KILLED: "dropped"}

_OF_SLOT = ("submission_accepted", "submission_rejected", "slot_transition")
_OF_RUNTIME = ("shutdown_requested", "all_stopped_within_grace", "grace_exceeded", "runtime_failure")


class PanickedBodyError(Exception):
    """What stands for a panic: an exception that says nothing about itself."""


def perform(recording: Recording, *, killable: bool = True, seed: int = 0) -> Account:
    """Perform a scenario; `killable` says whether bodies can be ended from outside, like processes but not threads."""
    with Simulation(seed) as simulation:
        stage = _Stage(recording, simulation, killable=killable)
        stage.perform()
        return stage.told()


class _Stage:
    """One performance."""

    def __init__(self, recording: Recording, simulation: Simulation, *, killable: bool) -> None:
        self.recording = recording
        self.simulation = simulation
        self.killable = killable
        self.account = Account()
        self.handles: dict[str, TaskHandle[Any]] = {}
        self.labels: dict[int, str] = {}
        self.ended_at: dict[str, float] = {}
        self.in_background: list[tuple[dict[str, Any], Any]] = []
        self.expired: set[Any] = set()
        settings = recording.configuration
        limits = AdmissionLimits(
            intake=settings.get("queue_capacity", 1024),
            max_slot_queue=settings.get("max_slot_queue", 100),
            max_concurrent=settings.get("max_concurrent"),
        )
        self.supervisor: Supervisor = simulation.supervisor(grace=recording.grace_ms / 1000, limits=limits).start()

    @property
    def now(self) -> float:
        return self.simulation.clock.monotonic() * 1000

    # -- commands ------------------------------------------------------------------------------------------------------

    def perform(self) -> None:
        try:
            for command in self.recording.scenario:
                getattr(self, f"do_{command['cmd']}")(command)
                if self.recording.spaced:
                    self.simulation.run_until_idle()
        finally:
            self.supervisor.shutdown()  # again, if the scenario has done it
        self.simulation.advance(_OVER)
        for command, reply in self.in_background:
            self._returned(command, partial(self._reply, reply), timed=False)

    def do_configure(self, command: dict[str, Any]) -> None:
        """Done before."""

    def do_sleep(self, command: dict[str, Any]) -> None:
        self.simulation.advance(command["ms"] / 1000)

    def do_submit(self, command: dict[str, Any]) -> None:
        def submit() -> bool:
            policy = in_our_words(command["policy"])
            self._take(command, self.supervisor.submit(self._spec(command), slot=command.get("slot"), policy=policy))
            return True

        self._returned(command, submit)

    def do_add(self, command: dict[str, Any]) -> None:
        def add() -> bool:
            self._take(command, self.supervisor.add(self._spec(command)))
            return True

        self._returned(command, add)

    def do_remove(self, command: dict[str, Any]) -> None:
        target = self._target(command)
        self._ask(command, Remove(target), lambda: self.supervisor.remove(target))

    def do_cancel(self, command: dict[str, Any]) -> None:
        target, milliseconds = self._target(command), command.get("timeout_ms")
        timeout = None if milliseconds is None else milliseconds / 1000
        self._ask(command, Cancel(target, wait=True), lambda: self.supervisor.cancel(target, timeout=timeout))

    do_remove_by_task, do_cancel_by_task = do_remove, do_cancel

    def do_list(self, command: dict[str, Any]) -> None:
        self._returned(command, lambda: sorted(name for _, name in self.supervisor.tasks()))

    def do_snapshot(self, command: dict[str, Any]) -> None:
        snapshot = self.supervisor.snapshot()
        self.account.snapshots.append(
            {
                "slots": [
                    {
                        "slot": view.slot,
                        "status": view.status.value,
                        "owner": self.labels.get(int(view.owner_id)) if view.owner_id is not None else None,
                        "queue_depth": view.queue_depth,
                    }
                    for view in snapshot.slots
                ],
                "running_count": snapshot.running_count,
                "total_queued": snapshot.total_queued,
            }
        )

    def do_wait_all(self, command: dict[str, Any]) -> None:
        with suppress(TimeoutError, SlotkeeperError):
            self.supervisor.join(command["ms"] / 1000)

    def do_shutdown(self, command: dict[str, Any]) -> None:
        self._ask(command, Shutdown(), self.supervisor.shutdown)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _target(self, command: dict[str, Any]) -> Any:
        return command["task_name"] if "label" not in command else self.handles[command["label"]].id

    def _take(self, command: dict[str, Any], handle: TaskHandle[Any]) -> None:
        label = command["label"]
        self.handles[label] = handle
        self.labels[int(handle.id)] = label

        def seen(_: Any) -> None:
            self.ended_at[label] = self.now

        handle.add_done_callback(seen)

    def _ask(self, command: dict[str, Any], message: Any, call: Any) -> None:
        """Have it done through the face, which waits, or by the actor behind it, where nobody waits."""
        if not command.get("bg"):
            self._returned(command, call)
            return
        reply = self.supervisor.registry.ask(message, block=False)
        self.in_background.append((command, reply))
        if "timeout_ms" in command:
            due = self.simulation.clock.monotonic() + command["timeout_ms"] / 1000
            self.simulation.timers.call_at(due, lambda: reply._result is None and self.expired.add(reply))

    def _reply(self, reply: Any) -> Any:
        if reply in self.expired:
            raise TimeoutError
        return reply.get(timeout=0)

    def _returned(self, command: dict[str, Any], call: Any, *, timed: bool = True) -> None:
        name = command.get("label", command.get("task_name"))
        stuck: tuple[str, ...] = ()
        try:
            result = call()
        except SlotkeeperError as error:
            result = error.label
        except (TimeoutError, Timeout):
            result = "task_termination_timeout"
        if isinstance(result, ShutdownReport):
            result, stuck = "ok" if result.clean else "grace_exceeded", result.stuck
        self.account.ops.append(Op(command["cmd"], name, result, stuck, self.now if timed else None))

    def _spec(self, command: dict[str, Any]) -> TaskSpec[Any]:
        options: dict[str, Any] = {"name": name_of(command)}
        if "max_retries" in command:
            options["max_retries"] = command["max_retries"]
        if "timeout_ms" in command:
            options["attempt_timeout"] = command["timeout_ms"] / 1000
        if "backoff_ms" in command:
            options["backoff"] = Backoff.constant(command["backoff_ms"] / 1000)
        if "backoff_exp" in command:
            growing = command["backoff_exp"]
            backoff = Backoff.exponential(growing["first_ms"] / 1000).with_cap(growing["max_ms"] / 1000)
            options["backoff"] = backoff.with_jitter(Jitter.NONE)
        body = scripted(*(self._script(attempt) for attempt in command["body"]))
        match command.get("kind", "once"):
            case "once":
                return TaskSpec.once(body, **options)
            case "restartable":
                return TaskSpec.restartable(body, **options)
            case "periodic":
                return TaskSpec.periodic(body, every=command.get("every_ms", 0) / 1000, **options)
            case _:
                return TaskSpec.from_defaults(body, **options)

    def _script(self, attempt: dict[str, Any]) -> Script:
        milliseconds = attempt.get("sleep_ms", 0)
        return Script(
            FOREVER if milliseconds < 0 else milliseconds / 1000,
            _result(attempt.get("result", "ok"), attempt),
            ignores_cancel=attempt.get("ignore_cancel", False),
            cleanup=attempt.get("cleanup_ms", 0) / 1000,
            on_cancel=_result(attempt.get("on_cancel", "canceled"), attempt),
            killable=self.killable,
        )

    # -- what is told of it --------------------------------------------------------------------------------------------

    def told(self) -> Account:
        account = self.account
        for label, handle in self.handles.items():
            outcome = handle.outcome(timeout=0)
            rejection = outcome.kind.value if isinstance(outcome, Rejected) else None
            exit_code = getattr(outcome, "exit_code", None)
            kind = in_our_words(outcome.label.value)
            account.outcomes[label] = Ended(kind, rejection, exit_code, self.ended_at.get(label))
        account.marks = [mark for mark in map(self._mark, self.simulation.marks) if mark is not None]
        for record in self.simulation.records:
            self._tell(record)
        finding = check(self.simulation.records)
        if finding.verdict is not Verdict.HOLDS:
            account.streams["log"] = [(str(finding),)]
        return account

    def _mark(self, mark: Any) -> Mark | None:
        label = self.labels[int(mark.id)]
        attempt = self.recording.attempt_of(label, mark.attempt)
        if mark.moment is Moment.ASKED and not {"on_cancel", "cleanup_ms"} & attempt.keys():
            return None  # a body that does nothing about it does not say that it saw it
        result = _word(mark.result) if mark.moment is Moment.LEFT else None
        slot = self.recording.slot_of(label)
        return Mark(label, mark.attempt, _MOMENTS[mark.moment], result, slot, ms=mark.at * 1000)

    def _tell(self, record: dict[str, Any]) -> None:
        if is_ours_only(record):
            return
        kind = record["event"]
        label = self.labels.get(record.get("id", 0))
        rejection = record.get("rejection_kind")
        event = step(
            kind,
            label=label,
            attempt=record.get("attempt"),
            outcome="rejected" if rejection is not None else record.get("outcome_kind"),
            rejection=rejection,
            backoff=record.get("backoff_source"),
        )
        if kind in _OF_RUNTIME:
            self._put("runtime", event)
        else:
            self._put(f"controller/{record['slot']}" if kind in _OF_SLOT else f"task/{label}", event)

    def _put(self, chain: str, event: Any) -> None:
        self.account.streams.setdefault(chain, []).append(event)


def _result(word: str, attempt: dict[str, Any]) -> Any:
    reason, code = attempt.get("reason", word), attempt.get("exit_code")
    match word:
        case "ok":
            return None
        case "fail":
            return TaskFailedError(reason, exit_code=code)
        case "fatal":
            return FatalError(reason, exit_code=code)
        case "panic":
            return PanickedBodyError(reason)
        case _:
            return TaskCancelledError(reason)


def _word(result: Any) -> str:
    words = {TaskFailedError: "fail", FatalError: "fatal", PanickedBodyError: "panic", TaskCancelledError: "cancelled"}
    return words.get(type(result), "ok")
