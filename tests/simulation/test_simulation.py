"""The simulation: the true actors under a seeded scheduler and a virtual clock."""

from __future__ import annotations

import threading
from random import Random

import pytest

from actors.testing import Script, Simulation, Verdict, check, scripted
from actors.testing.simulation import StuckError
from admission import (
    AdmissionLimits,
    AdmissionPolicy,
    Backoff,
    Cancelled,
    Completed,
    Failed,
    FatalError,
    ForceAborted,
    Rejected,
    RejectionKind,
    TaskSpec,
)

GRACE = 5.0


def body(chance: Random):
    """Make a body that is quick, slow, failing, deaf or slow to clean up."""
    return scripted(
        *(
            Script(
                seconds=chance.choice([0, 0.5, 2, 30]),
                result=chance.choice([1, ValueError("no"), FatalError("never")]),
                ignores_cancel=chance.random() < 0.25,
                cleanup=chance.choice([0, 0, 1, 9]),
                on_cancel=chance.choice([2, ValueError("late")]),
            )
            for _ in range(2)
        )
    )


def spec(chance: Random):
    common = {"attempt_timeout": chance.choice([None, 1, 10]), "max_retries": chance.choice([0, 1, 3])}
    made = chance.choice([TaskSpec.once, TaskSpec.restartable])
    return made(body(chance), backoff=Backoff.exponential(0.1), **common)


def a_busy_hour(seed: int):
    """Submit, cancel, remove and look at random, then shut down in the middle of it."""
    chance = Random(seed)  # noqa: S311 - a schedule, not a secret
    limits = AdmissionLimits(
        max_slot_queue=chance.choice([0, 2, 100]),
        max_concurrent=chance.choice([None, 1, 2]),
        max_total_pending=chance.choice([None, 3]),
        max_tasks=chance.choice([None, 2]),
        max_slots=chance.choice([None, 2]),
        max_warm_slots=chance.choice([0, 1000]),
    )
    simulation = Simulation(seed)
    handles = []
    with simulation:
        supervisor = simulation.supervisor(grace=GRACE, limits=limits).start()
        for _ in range(25):
            match chance.randrange(6):
                case 0 if handles:
                    chance.choice(handles).cancel()
                case 1 if handles:
                    supervisor.remove(chance.choice(handles).id)
                case 2:
                    simulation.advance(chance.choice([0.1, 1, 10]))
                case 3:
                    for _ in range(chance.randrange(30)):
                        simulation.step()
                case _:
                    policy = chance.choice(list(AdmissionPolicy))
                    handles.append(supervisor.submit(spec(chance), slot=f"slot-{chance.randrange(3)}", policy=policy))
        report = supervisor.shutdown()
        simulation.advance(60)
    return simulation, handles, report


@pytest.mark.parametrize("start", range(0, 200, 25))
def test_what_must_always_hold_holds_for_every_seed(start):
    for seed in range(start, start + 25):
        simulation, handles, report = a_busy_hour(seed)
        assert all(handle.done() for handle in handles), f"seed {seed}"
        finding = check(simulation.records)
        assert finding.verdict is Verdict.HOLDS, f"seed {seed}: {finding}\n{simulation.timeline()}"
        assert bool(report.stuck) != report.clean, f"seed {seed}"


def test_the_same_seed_gives_the_same_trace_and_the_same_log_to_the_byte():
    (first, _, _), (second, _, _) = a_busy_hour(11), a_busy_hour(11)
    assert first.timeline().encode() == second.timeline().encode()
    assert repr(first.records).encode() == repr(second.records).encode()


@pytest.mark.parametrize("seed", [1138, 4528])
def test_a_slot_is_retired_although_its_time_is_no_round_number(seed):
    simulation, handles, _ = a_busy_hour(seed)
    assert all(handle.done() for handle in handles)
    assert check(simulation.records).verdict is Verdict.HOLDS


def test_another_seed_gives_another_trace():
    assert a_busy_hour(1)[0].trace != a_busy_hour(2)[0].trace


def test_no_thread_is_started():
    before = threading.active_count()
    a_busy_hour(3)
    assert threading.active_count() == before


def test_a_sleep_of_a_year_takes_no_time():
    with Simulation() as simulation, simulation.supervisor() as supervisor:
        handle = supervisor.submit(scripted(Script(365 * 86400.0, "slept")))
        assert handle.outcome() == Completed("slept")
        assert simulation.clock.monotonic() == 365 * 86400.0


def test_a_wait_ends_at_its_timeout_of_virtual_seconds():
    with Simulation() as simulation, simulation.supervisor() as supervisor:
        handle = supervisor.submit(scripted(Script(100)))
        with pytest.raises(TimeoutError):
            handle.outcome(timeout=40)
        assert simulation.clock.monotonic() == 40


def test_waiting_for_what_can_not_happen_is_an_error_and_not_a_hang():
    simulation = Simulation(5)
    simulation.start()
    supervisor = simulation.supervisor(grace=1).start()
    handle = supervisor.submit(scripted(Script(float("inf"), ignores_cancel=True)))
    with pytest.raises(StuckError, match="seed 5"):
        handle.outcome()
    assert supervisor.shutdown().stuck == (handle.slot,)


def test_a_plain_callable_runs_as_a_body():
    with Simulation() as simulation, simulation.supervisor() as supervisor:
        assert supervisor.submit(lambda ctx: ctx.attempt, slot="s").result() == 1


def test_a_scripted_body_runs_nowhere_else():
    with pytest.raises(RuntimeError, match="Simulation"):
        scripted()()


# -- the rules of the straight road, each in virtual time ----------------------------------------------------------


def test_a_replaced_owner_has_its_grace_and_the_replacement_waits_for_the_release():
    with Simulation() as simulation, simulation.supervisor(grace=GRACE) as supervisor:
        deaf = supervisor.submit(scripted(Script(60, ignores_cancel=True)), slot="s")
        simulation.run_until_idle()
        newer = supervisor.submit(scripted(Script(1)), slot="s", policy="replace")
        assert deaf.outcome() == ForceAborted()
        assert simulation.clock.monotonic() == GRACE
        assert not newer.done()
        assert newer.outcome() == Completed(None)
        assert simulation.clock.monotonic() == 61


def test_a_body_that_times_out_and_stays_is_given_up_a_grace_later_whoever_claims_it_meanwhile():
    with Simulation() as simulation, simulation.supervisor(grace=GRACE) as supervisor:
        deaf = supervisor.submit(
            TaskSpec.restartable(scripted(Script(60, ignores_cancel=True)), attempt_timeout=10), slot="s"
        )
        simulation.advance(13)
        assert deaf.cancel()
        assert deaf.outcome() == ForceAborted()
        assert simulation.clock.monotonic() == 15


def test_an_overdue_body_that_comes_back_is_retried_from_its_release_and_its_result_is_not_kept():
    with Simulation() as simulation, simulation.supervisor(grace=GRACE) as supervisor:
        attempts = scripted(Script(12, "late", ignores_cancel=True), Script(1, "in time"))
        spec = TaskSpec.restartable(attempts, attempt_timeout=10, backoff=Backoff.constant(3))
        assert supervisor.submit(spec, slot="s").outcome() == Completed("in time")
        assert simulation.clock.monotonic() == 12 + 3 + 1


def test_a_backoff_is_interrupted_at_once():
    with Simulation() as simulation, simulation.supervisor() as supervisor:
        spec = TaskSpec.restartable(scripted(Script(1, ValueError("no"))), backoff=Backoff.constant(1000))
        handle = supervisor.submit(spec, slot="s")
        simulation.advance(2)
        assert handle.cancel(wait=True)
        assert handle.outcome() == Cancelled()
        assert simulation.clock.monotonic() == 2


def test_retries_are_counted_since_the_last_success_and_the_limit_ends_the_run():
    with Simulation() as simulation, simulation.supervisor() as supervisor:
        no = Script(0, ValueError("no"))
        spec = TaskSpec.periodic(scripted(no, Script(0, "yes"), no, no), every=1, max_retries=1)
        outcome = supervisor.submit(spec, slot="s").outcome()
        assert isinstance(outcome, Failed)
        simulation.run_until_idle()
        attempts = [record["event"] for record in simulation.records if record["event"].startswith("attempt_")]
        assert attempts[1::2] == ["attempt_failed", "attempt_succeeded", "attempt_failed", "attempt_failed"]


def test_a_permit_goes_to_whoever_asked_first_and_is_not_held_in_a_pause():
    with Simulation() as simulation:
        limits = AdmissionLimits(max_concurrent=1)
        with simulation.supervisor(limits=limits) as supervisor:
            spec = TaskSpec.restartable(scripted(Script(1, ValueError("no")), Script(1)), backoff=Backoff.constant(50))
            pausing = supervisor.submit(spec, slot="a")
            simulation.run_until_idle()
            assert supervisor.submit(scripted(Script(1)), slot="b").outcome() == Completed(None)
            assert simulation.clock.monotonic() == 2
            assert pausing.outcome() == Completed(None)


def test_shutdown_turns_the_line_away_and_forces_what_does_not_stop_at_one_deadline():
    with Simulation() as simulation:
        supervisor = simulation.supervisor(grace=GRACE).start()
        stubborn = [supervisor.submit(scripted(Script(60, ignores_cancel=True)), slot=f"s{n}") for n in range(3)]
        polite = supervisor.submit(scripted(Script(60)), slot="polite")
        waiting = supervisor.submit(scripted(Script(1)), slot="polite")
        simulation.run_until_idle()
        report = supervisor.shutdown()
        assert simulation.clock.monotonic() == GRACE
        assert report.stuck == report.still_inside == ("s0", "s1", "s2")
        assert [handle.outcome() for handle in stubborn] == [ForceAborted()] * 3
        assert polite.outcome() == Cancelled()
        assert waiting.outcome() == Rejected(RejectionKind.SHUTTING_DOWN, "shutdown has begun")
        assert check(simulation.records).verdict is Verdict.HOLDS


def test_a_submission_that_fills_the_intake_waits_by_driving_the_simulation():
    with Simulation() as simulation, simulation.supervisor(limits=AdmissionLimits(intake=1)) as supervisor:
        handles = [supervisor.submit(scripted(Script(1, n)), slot="s") for n in range(5)]
        assert [handle.result() for handle in handles] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(30))
def test_whoever_has_seen_an_outcome_finds_the_slot_free(seed):
    with Simulation(seed) as simulation, simulation.supervisor() as supervisor:
        for _ in range(20):
            handle = supervisor.submit(scripted(Script(1)), slot="s", policy="drop_if_running")
            assert handle.outcome() == Completed(None)


@pytest.mark.parametrize("seed", range(30))
def test_a_cancellation_right_behind_a_submission_finds_it_wherever_it_is(seed):
    with Simulation(seed) as simulation, simulation.supervisor() as supervisor:
        owner = supervisor.submit(scripted(Script(50)), slot="s")
        queued = supervisor.submit(scripted(Script(50)), slot="s")
        for _ in range(seed % 12):
            simulation.step()
        assert queued.cancel()
        assert owner.cancel(wait=True)
        assert queued.outcome().kind is RejectionKind.REMOVED_FROM_QUEUE
        assert owner.outcome() == Cancelled()
