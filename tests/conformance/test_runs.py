"""Running a batch to its end, once for a supervisor, with or without the signals of the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from actors import Supervisor
from actors.face import Core
from admission import AlreadyRunningError, Cancelled, Completed, SupervisorClosedError, TaskSpec
from tests.actors.support import call_in_thread
from tests.conformance.direct import LONG, named
from tests.conformance.support import COOP, OK, World, gate, seeds
from tests.conformance.verdicts import adapted

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT]

SCRIPT = """
import signal
from actors import Supervisor
from actors.face import Core
from actors.testing.simulation import StuckError
from admission import TaskSpec

class Log:
    def _write(self, event, **fields):
        if event in ("shutdown_requested", "task_finished", "all_stopped_within_grace"):
            print(event, flush=True)
    debug = info = warning = error = critical = _write

def listens(ctx):
    print("inside", flush=True)
    ctx.wait()

numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT]
before = [signal.getsignal(number) for number in numbers]
report = Supervisor(grace=20, logger=Log()).CALL([TaskSpec.once(listens, name="svc")])
print("clean" if report.clean else "not clean", flush=True)
print("restored" if [signal.getsignal(number) for number in numbers] == before else "not restored", flush=True)
"""


def child(call):
    """Start a process that runs a batch, and wait until its body is inside."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.replace("CALL", call)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = call_in_thread(process.stdout.readline)(LONG)
    except BaseException:
        process.kill()
        raise
    if line != "inside\n":
        process.kill()
        pytest.fail(f"{line}{process.communicate()[1]}")
    return process


def end_of(process):
    """Return how a process ends and what it has printed; it does not outlive this call."""
    try:
        out, err = process.communicate(timeout=LONG)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out.split("\n")[:-1], err


@adapted("The error itself is raised, nothing has been started, and the call can be made again.", rule="signals")
def test_s273_signals_that_can_not_be_set_up_start_nothing(monkeypatch):
    """The system refuses a handler: its error is raised unchanged, nothing runs, no shutdown is told of."""
    refusal, original = OSError(22, "not that one"), signal.signal
    refused = []

    def refuse(number, handler):
        if number is signal.SIGTERM and not refused:
            refused.append(number)
            raise refusal
        return original(number, handler)

    before = [signal.getsignal(number) for number in SIGNALS]
    with World() as world:
        supervisor = world.supervisor(grace=1)
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", refuse)
            with pytest.raises(OSError, match="not that one") as raised:
                supervisor.run_with_os_signals([named("svc", OK)])
        assert raised.value is refusal
        assert [signal.getsignal(number) for number in SIGNALS] == before
        assert world.records == []
        assert supervisor.run_with_os_signals([named("svc", OK)]).clean
        assert world.count("shutdown_requested") == 0
        assert world.count("task_removed") == 1
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_s274_a_signal_begins_the_shutdown(number):
    """A process that runs with signals and gets one drains, ends cleanly, and its handlers are as before."""
    process = child("run_with_os_signals")
    process.send_signal(number)
    assert end_of(process) == (
        0,
        ["shutdown_requested", "task_finished", "all_stopped_within_grace", "clean", "restored"],
        "",
    )


def test_a_signal_while_it_starts_begins_the_shutdown(monkeypatch):
    """A signal that comes between the handlers and the registry is not lost: the run is shut down."""
    original = Core.start

    def start(core):
        signal.raise_signal(signal.SIGTERM)
        return original(core)

    monkeypatch.setattr(Core, "start", start)
    with World() as world:
        supervisor = world.supervisor(grace=1)
        try:
            assert supervisor.run_with_os_signals([named("svc", COOP)]).clean
        finally:
            supervisor.shutdown()


def test_s275_without_asking_for_signals_a_process_dies_of_one():
    """A process that runs a batch the plain way keeps what the system does at SIGTERM: it dies."""
    process = child("run")
    process.send_signal(signal.SIGTERM)
    code, out, _ = end_of(process)
    assert code == -signal.SIGTERM
    assert out == []


def test_s276_a_batch_is_run_once(start, body):
    """A second run is refused, also while the first one waits for a body; the first returns when that has left."""
    supervisor, work = start(grace=LONG), body("late", stubborn=True)
    running = call_in_thread(supervisor.run, [TaskSpec.once(work, name="svc")])
    assert work.is_inside()
    for again in (supervisor.run, lambda: supervisor.run_until([], threading.Event())):
        with pytest.raises(AlreadyRunningError):
            again()
    with pytest.raises(AssertionError, match="still not back"):
        running(0.05)
    work.let_go()
    assert running(LONG).clean
    assert not work.ctx.cancelled
    with pytest.raises(AlreadyRunningError):
        supervisor.run()
    with World() as world:
        assert world.supervisor().run([]).clean


def test_s277_a_stop_that_is_set_comes_before_the_batch(nothing_is_left, body):
    """A batch whose stop is set already never starts, and the report is clean; one that is set later ends the batch."""
    stop = threading.Event()
    stop.set()
    with World() as world:
        assert world.supervisor().run_until([named("svc", OK)], stop).clean
        assert world.count("task_added") == world.count("body_entered") == 0
        assert world.count("shutdown_requested") == 1
    stop.clear()
    work = body()
    running = call_in_thread(Supervisor(grace=LONG).run_until, [TaskSpec.once(work, name="svc")], stop)
    assert work.is_inside()
    assert not work.ctx.cancelled
    stop.set()
    assert running(LONG).clean
    assert work.ctx.cancelled


@seeds
def test_s278_a_batch_that_ends_by_itself_is_no_requested_shutdown(simulate, seed):
    """A run that is over because nothing is left tells that all have stopped, and not that anybody asked for it."""
    world, supervisor = simulate(seed)
    handle = supervisor.add(named("before", gate(3)))
    assert supervisor.run([named("svc", gate(1))]).clean
    assert world.now == 3
    assert handle.outcome(0) == Completed("ok")
    assert (world.count("all_stopped_within_grace"), world.count("shutdown_requested")) == (1, 0)


@pytest.mark.parametrize("started", [True, False], ids=["started", "never started"])
def test_s279_after_the_shutdown_nothing_is_added(started):
    """Adding after the shutdown raises a closed error, whether it was ever started or not."""
    with World() as world:
        supervisor = world.supervisor(grace=1)
        if started:
            handle = supervisor.start().add(named("svc", COOP))
        assert supervisor.shutdown().clean
        with pytest.raises(SupervisorClosedError):
            supervisor.add(named("late", OK))
        assert not started or handle.outcome(0) == Cancelled()
