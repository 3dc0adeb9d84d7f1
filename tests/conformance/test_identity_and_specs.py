"""Scenarios 1 to 32: identity, specs, backoff, errors, labels, limits."""

from __future__ import annotations

import asyncio
import math
import sys
from random import Random

import pytest

from actors.bodies.job import judge
from actors.testing import Script, scripted
from admission import (
    INHERIT,
    AdmissionLimits,
    AdmissionPolicy,
    AttemptTimeoutError,
    Backoff,
    BackoffSource,
    Completed,
    EventKind,
    Failed,
    Fatal,
    FatalError,
    Jitter,
    OutcomeKind,
    RejectionKind,
    RestartPolicy,
    SlotStatus,
    Submission,
    TaskCancelledError,
    TaskDefaults,
    TaskFailedError,
    TaskId,
    TaskSpec,
    errors,
)
from admission.run import AttemptCancelled, AttemptRaised
from tests.actors.support import noop, outcome_of
from tests.conformance.support import COOP, FAST, gate
from tests.conformance.verdicts import adapted

LARGEST = 2**32 - 1
LOWEST, HIGHEST = (
    type("Lowest", (), {"random": lambda _: 0.0})(),
    type("Highest", (), {"random": lambda _: 1 - 2**-53})(),
)
NO = Script(0, ValueError("no"))


def bounds(draw):
    """Return the least and the greatest of what may be drawn."""
    return pytest.approx(draw(LOWEST)), pytest.approx(draw(HIGHEST))


def many(draw):
    return [draw(Random(seed)) for seed in range(2000)]  # noqa: S311 - jitter


async def never_ends(_ctx):
    await asyncio.get_running_loop().create_future()


# -- identity ------------------------------------------------------------------------------------------------------


def test_s001_ids():
    """Ids start at 1, are distinct, grow, and are shown as # and the number."""
    ids = [TaskId.allocate() for _ in range(100)]
    assert min(ids) >= 1
    assert ids == sorted(set(ids))
    assert [str(each) for each in ids] == [f"#{int(each)}" for each in ids]


def test_s002_ids_made_by_hand(supervisor):
    """Ids that a test takes come from the same sequence as those of a supervisor."""
    ids = [
        taken
        for _ in range(20)
        for taken in (TaskId.allocate(), supervisor.submit(noop).id, supervisor.add(noop).id, TaskId.allocate())
    ]
    assert ids == sorted(set(ids))


# -- specs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "restart"),
    [
        (TaskSpec.once(noop), RestartPolicy.NEVER),
        (TaskSpec.restartable(noop), RestartPolicy.ON_FAILURE),
        (TaskSpec.periodic(noop, 5), RestartPolicy.always(5)),
    ],
    ids=["once", "restartable", "periodic"],
)
def test_s003_what_a_constructor_sets(spec, restart):
    """The three constructors set the restart policy and inherit the other settings."""
    assert spec.restart == restart
    assert (spec.backoff, spec.attempt_timeout, spec.max_retries) == (INHERIT, INHERIT, INHERIT)


def test_s004_periodic_without_interval():
    """A periodic spec of 0 seconds has no interval."""
    assert TaskSpec.periodic(noop, 0).restart == RestartPolicy.always(None)


def test_s005_everything_explicit():
    """A spec that sets everything takes nothing from the defaults; explicit unlimited retries stay unlimited."""
    spec = TaskSpec(noop, restart=RestartPolicy.NEVER, backoff=FAST, attempt_timeout=None, max_retries=None)
    others = TaskDefaults(
        restart=RestartPolicy.always(1), backoff=Backoff.constant(9), attempt_timeout=3, max_retries=7
    )
    settings = spec.resolve(others)
    assert INHERIT not in (spec.restart, spec.backoff, spec.attempt_timeout, spec.max_retries)
    assert (settings.restart, settings.backoff) == (RestartPolicy.NEVER, FAST)
    assert (settings.attempt_timeout, settings.max_retries) == (None, None)


@adapted("a timeout of 0 is refused at the call; only None says *no timeout*", rule="durations")
def test_s006_no_timeout():
    """A timeout can be set to *none*, which is not the same as inheriting one."""
    with pytest.raises(ValueError, match="attempt_timeout"):
        TaskSpec.once(noop, attempt_timeout=0)
    spec = TaskSpec.once(noop, attempt_timeout=None)
    assert spec.attempt_timeout is None
    assert spec.attempt_timeout is not INHERIT
    assert spec.resolve(TaskDefaults(attempt_timeout=3)).attempt_timeout is None


@adapted("0 retries are one attempt and no error; a negative number is one, at the call", rule="max_retries")
@pytest.mark.parametrize("make", [lambda **o: TaskSpec.restartable(noop, **o), TaskDefaults], ids=["spec", "defaults"])
def test_s007_bad_retry_limit(make, simulate):
    """A retry limit that makes no sense is an error where it is given, named by its field."""
    with pytest.raises(ValueError, match="max_retries"):
        make(max_retries=-1)
    assert make(max_retries=0).max_retries == 0
    world, supervisor = simulate()
    handle = supervisor.submit(TaskSpec.restartable(scripted(NO), max_retries=0))
    assert isinstance(handle.outcome(), Failed)
    assert world.count("attempt_starting", handle) == 1


# -- defaults ------------------------------------------------------------------------------------------------------

QUICK = TaskDefaults(attempt_timeout=0.02)


def test_s008_default_timeout_of_an_added_run(start):
    """A default timeout ends the attempt of a run that was added directly and never ends by itself."""
    outcome = outcome_of(start(defaults=QUICK).add(TaskSpec.once(never_ends)))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AttemptTimeoutError)


def test_s009_default_timeout_of_a_batch(simulate):
    """A batch whose only run times out by a default comes to its natural end."""
    world, supervisor = simulate(defaults=QUICK)
    report = supervisor.run([TaskSpec.once(scripted(COOP))])
    assert report.clean
    assert [record["outcome_kind"] for record in world.of("task_finished")] == ["outcome_failed"]


def test_s010_default_timeout_of_a_submission(start):
    """A default timeout ends the attempt of a submission that never ends by itself."""
    outcome = outcome_of(start(defaults=QUICK).submit(TaskSpec.once(never_ends), slot="s"))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AttemptTimeoutError)


def test_s011_no_timeout_in_spite_of_the_default(simulate):
    """An explicit *no timeout* outlasts the default."""
    world, supervisor = simulate(defaults=QUICK)
    handle = supervisor.submit(TaskSpec.once(scripted(gate(1)), attempt_timeout=None), slot="s")
    world.advance(0.06)
    assert not handle.done()
    assert handle.outcome() == Completed("ok")


def test_s012_default_restart_policy(simulate):
    """A spec that inherits a default of *never again* runs once."""
    world, supervisor = simulate(defaults=TaskDefaults(restart=RestartPolicy.NEVER, backoff=FAST))
    handle = supervisor.submit(TaskSpec.from_defaults(scripted(NO)), slot="s")
    assert isinstance(handle.outcome(), Failed)
    assert world.count("body_entered", handle) == 1


@pytest.mark.parametrize(
    ("options", "runs", "outcome"),
    [({}, 2, Failed), ({"max_retries": None}, 3, Completed)],
    ids=["inherited", "unlimited"],
)
def test_s013_default_retry_limit(simulate, options, runs, outcome):
    """A default retry limit is inherited; an explicit *unlimited* overrides it."""
    world, supervisor = simulate(defaults=TaskDefaults(max_retries=1, backoff=FAST))
    handle = supervisor.submit(TaskSpec.restartable(scripted(NO, NO, Script()), **options), slot="s")
    assert isinstance(handle.outcome(), outcome)
    assert world.count("body_entered", handle) == runs


@adapted("a submission is a value: another policy or spec is another submission", rule="dropped")
def test_s014_slot_of_a_submission(simulate):
    """An explicit slot stays whatever spec goes with it; without one the slot is the task's name."""
    _, supervisor = simulate()
    first, second = (TaskSpec.once(noop, name=name) for name in ("first", "second"))
    submission = Submission(first, "shared")
    swapped = Submission(second, submission.slot, AdmissionPolicy.REPLACE)
    assert supervisor.submit(swapped).slot == "shared"
    bare = Submission(second, policy=AdmissionPolicy.REPLACE)
    assert bare.slot is None
    assert supervisor.submit(bare).slot == "second"


# -- backoff -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "low", "high"), [(0, 0.1, 0.2), (1, 0.2, 0.4), (2, 0.4, 0.8), (20, 15, 30)])
def test_s015_default_backoff(index, low, high):
    """The default waits 100 to 200 ms, doubles, and ends at 15 to 30 s."""
    assert bounds(lambda random: Backoff().delay_for_retry(index, random)) == (low, high)


@pytest.mark.parametrize("index", [100, LARGEST])
def test_s016_growth_ends_at_the_cap(index):
    """However large the index, the delay is the cap."""
    backoff = Backoff(first=0.1, cap=60, factor=2, jitter=Jitter.NONE)
    assert backoff.delay_for_retry(index, HIGHEST) == 60


@pytest.mark.parametrize("seconds", [5, 60])
@pytest.mark.parametrize("index", [0, 1, 7, LARGEST])
def test_s017_constant(seconds, index):
    """A constant delay is the same at every index, above the usual cap too."""
    assert Backoff.constant(seconds).delay_for_retry(index, HIGHEST) == seconds


def test_s018_exponential():
    """An exponential delay doubles up to 30 s; a longer first one is its own cap."""
    backoff, long = Backoff.exponential(0.1), Backoff.exponential(45)
    delays = [backoff.delay_for_retry(index, HIGHEST) for index in (0, 1, 2, 20)]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 30])
    assert (long.cap, long.delay_for_retry(0, HIGHEST), long.delay_for_retry(3, HIGHEST)) == (45, 45, 45)


def test_s019_lowering_the_cap():
    """A cap below the first delay or the floor brings them down."""
    lowered = Backoff(first=1, cap=10, floor=5).with_cap(0.5)
    assert (lowered.first, lowered.floor, lowered.cap) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("factor", [0.5, math.nan, math.inf])
def test_s020_bad_factor(factor):
    """A factor below 1 or not finite is refused, before a first delay above the cap is."""
    with pytest.raises(ValueError, match="factor"):
        Backoff(factor=factor)
    with pytest.raises(ValueError, match="factor"):
        Backoff(first=2, cap=1, factor=factor)
    with pytest.raises(ValueError, match="first"):
        Backoff(first=2, cap=1)


def test_s021_floor():
    """No draw is below the floor; a floor above the cap comes down to it."""
    backoff = Backoff(first=1, jitter=Jitter.FULL).with_floor(0.75)
    assert min(many(lambda random: backoff.delay_for_retry(0, random))) == 0.75
    assert Backoff(cap=10).with_floor(20).floor == 10


@pytest.mark.parametrize("index", [0, 1, LARGEST])
@pytest.mark.parametrize(
    ("backoff", "delay"),
    [
        (Backoff(first=0.0005, cap=1, factor=1, jitter=Jitter.FULL), 0.001),
        (Backoff(first=0, factor=2, jitter=Jitter.FULL), 0),
        (Backoff(first=0.0005, cap=0.0005, factor=1, jitter=Jitter.FULL), 0.0005),
    ],
    ids=["lifted", "zero stays", "no further than the cap"],
)
def test_s022_least_delay(backoff, delay, index):
    """A delay below a millisecond is lifted to one, or to the cap below that; none at all stays none."""
    assert set(many(lambda random: backoff.delay_for_retry(index, random))) == {delay}


@pytest.mark.parametrize("index", [0, 1, LARGEST])
def test_s023_longest_delay(index):
    """The largest delay that there is comes out of the band as it went in."""
    longest = sys.float_info.max
    backoff = Backoff(first=longest, cap=longest, factor=1, jitter=Jitter.RANDOMIZED_BAND)
    assert backoff.delay_for_retry(index, HIGHEST) == longest


# -- jitter --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitter", Jitter)
def test_s024_nothing_to_spread(jitter):
    """Every kind spreads 0 to 0."""
    assert set(many(lambda random: jitter.apply(0.0, random))) == {0.0}


def test_s025_band_without_bounds():
    """Without bounds, the band is the range from 0 to the delay."""
    assert bounds(lambda random: Jitter.RANDOMIZED_BAND.apply(0.5, random)) == (0, 0.5)


def test_s026_band():
    """The band reaches from the lower bound to three times the seed, within the cap."""
    band = Jitter.RANDOMIZED_BAND
    assert bounds(lambda random: band.apply_band(0.1, 0.3, 10, random)) == (0.1, 0.9)
    assert set(many(lambda random: band.apply_band(10, 0.05, 5, random))) == {5}


def test_s027_band_of_another_kind():
    """Any other kind spreads the lower bound instead."""
    assert bounds(lambda random: Jitter.FULL.apply_band(0.1, 0.3, 10, random)) == (0, 0.1)


def test_s028_band_of_a_late_retry():
    """The band of a late retry is that of its grown delay."""
    backoff = Backoff(first=0.1, factor=2, jitter=Jitter.RANDOMIZED_BAND)
    low, high = bounds(lambda random: backoff.delay_for_retry(8, random))
    assert (low, high) == (0.1, 30)
    assert max(many(lambda random: backoff.delay_for_retry(8, random))) > 0.3


@pytest.mark.parametrize("jitter", [Jitter.FULL, Jitter.EQUAL, Jitter.RANDOMIZED_BAND])
def test_s029_fine_jitter(jitter):
    """Below a millisecond, too, draws differ and keep to their range."""
    draws = many(lambda random: jitter.apply_band(0.0002, 0.0003, 0.0009, random))
    assert len(set(draws)) > 100
    assert 0 <= min(draws) < max(draws) <= 0.0009


# -- errors and labels ---------------------------------------------------------------------------------------------

CAUSE = OSError("the disk")


def chained(error):
    error.__cause__ = CAUSE
    return error


@adapted(
    "whatever a body raises counts; an exit code is given once, the source is the exception itself", rule="failing"
)
@pytest.mark.parametrize(
    ("error", "label", "outcome", "exit_code"),
    [
        (TaskFailedError("no"), "task_failed", Failed, None),
        (TaskFailedError("no", exit_code=7), "task_failed", Failed, 7),
        (FatalError("never"), "task_fatal", Fatal, None),
        (FatalError("never", exit_code=9), "task_fatal", Fatal, 9),
        (AttemptTimeoutError(7), "task_timeout", Failed, None),
        (TaskCancelledError(), "task_cancelled", None, None),
        (OSError("disk"), None, Failed, None),
        (KeyboardInterrupt(), None, Fatal, None),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseException) else "",
)
def test_s030_what_a_body_raises(error, label, outcome, exit_code):
    """Errors have labels, tell whether they may be retried, carry an exit code, and keep what caused them."""
    assert getattr(error, "label", None) == label
    result = judge(chained(error))
    if outcome is None:
        assert isinstance(result, AttemptCancelled)
        return
    assert isinstance(result, AttemptRaised)
    assert result.fatal is (outcome is Fatal)
    assert result.exit_code == exit_code
    assert result.error is error
    assert result.error.__cause__ is CAUSE


LABELS = {
    RejectionKind: "already_exists batch_rejected slot_busy queue_full superseded_by_replace removed_from_queue "
    "shutting_down admission_failed resource_limit",
    OutcomeKind: "outcome_completed outcome_failed outcome_fatal outcome_cancelled outcome_force_aborted "
    "outcome_panicked outcome_rejected",
    BackoffSource: "success failure",
    SlotStatus: "idle admitting running terminating",
    AdmissionPolicy: "queue replace drop_if_running",
}
EVENTS = """
    submission_accepted submission_rejected slot_transition task_add_requested task_added task_add_failed
    task_remove_requested attempt_starting attempt_succeeded attempt_cancelled attempt_failed attempt_timed_out
    backoff_scheduled task_finished task_removed shutdown_requested all_stopped_within_grace grace_exceeded
    runtime_failure
"""
ERRORS = {
    "TaskExistsError": "task_already_exists",
    "ResourceLimitError": "resource_limit_reached",
    "AlreadyRunningError": "already_running",
    "SupervisorClosedError": "shutting_down",
    "NotStartedError": "not_started",
    "IntakeFullError": "intake_full",
    "SubmissionRejectedError": "submission_rejected",
    "TaskFailedError": "task_failed",
    "FatalError": "task_fatal",
    "AttemptTimeoutError": "task_timeout",
    "TaskCancelledError": "task_cancelled",
    "TaskAbortedError": "task_force_aborted",
    "TaskPanickedError": "task_panicked",
}


@adapted("no prefix says where a label comes from, and what does not exist here has none", rule="words")
def test_s031_labels():
    """Every error, event, rejection, outcome and source has the label that it is documented with."""
    for vocabulary, labels in LABELS.items():
        assert sorted(vocabulary) == sorted(labels.split()), vocabulary
    assert set(EVENTS.split()) <= set(EventKind)
    found = {name: error.label for name, error in vars(errors).items() if getattr(error, "label", None)}
    assert found.items() >= ERRORS.items()


@adapted(
    "the defaults are larger, and only 0 places of an intake or of concurrent attempts are refused", rule="defaults"
)
def test_s032_limits():
    """The limits have their defaults; a 0 that makes no sense is refused by name; nobody waiting does make sense."""
    limits = AdmissionLimits()
    assert (limits.intake, limits.max_slot_queue) == (1024, 100)
    assert (limits.max_slots, limits.max_total_pending) == (100_000, 100_000)
    assert (limits.max_tasks, limits.max_concurrent) == (None, None)
    for field in ("intake", "max_concurrent"):
        with pytest.raises(ValueError, match=field):
            AdmissionLimits(**{field: 0})
    assert AdmissionLimits(max_slot_queue=0).max_slot_queue == 0
