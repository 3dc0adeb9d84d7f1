"""What a forked child finds. Each test runs a script: the process that runs the tests does not fork itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

PRELUDE = '''
import os, signal, sys, threading, time
import pykka
from actors.runtime import DispatchedActor, ForkedError, Runtime, RuntimeActor, deliver
from actors.runtime.application import ApplicationDispatcher

signal.alarm(20)

class NoBodies:
    def close(self):
        print("bodies closed in", "child" if os.getpid() != parent else "parent", flush=True)

class Echo(RuntimeActor):
    def on_receive(self, message):
        return message

class Application(DispatchedActor):
    def on_receive(self, message):
        return message() if callable(message) else message

parent = os.getpid()

def in_child(function):
    """Forks; the child calls this, within five seconds, and ends; the parent waits for it."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm(5)
        try:
            function()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status

def raises_forked(function, *args, **kwargs):
    since = time.monotonic()
    try:
        function(*args, **kwargs)
    except ForkedError as error:
        assert time.monotonic() - since < 1
        return str(error)
    raise AssertionError("no ForkedError")
'''


def run(script):
    """Run a script; its last line of output must be `done`."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script) + "\nprint('done')"],
        cwd=Path(__file__).parents[3],
        timeout=40,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert last == "done"
    return lines


def test_a_runtime_and_its_refs_say_in_the_child_that_they_are_copies():
    run("""
        runtime = Runtime(NoBodies())
        runtime.start()
        ref, child_actor = Echo.start(runtime), Echo.spawn(runtime)
        assert ref.ask(1) == 1

        def child():
            assert runtime.forked
            for use in (runtime.check_forked, runtime.start):
                assert "make a new one after the fork" in raises_forked(use)
            for each in (ref, child_actor):
                assert not each.is_alive()
                assert "Echo belongs to the parent process" in raises_forked(each.tell, 1)
                raises_forked(each.ask, 1)
                raises_forked(each.ask, 1, block=False)
                deliver(each, 1)

        in_child(child)
        assert not runtime.forked
        assert ref.ask(2) == child_actor.ask(2) == 2
    """)


def test_to_close_and_join_a_copy_does_nothing():
    lines = run("""
        runtime = Runtime(NoBodies())
        runtime.start()
        in_child(lambda: (runtime.close(), runtime.join(60)))
        assert runtime.started
        runtime.close()
        runtime.join(5)
    """)
    assert lines == ["bodies closed in parent"]


def test_a_runtime_made_in_the_child_works():
    run("""
        runtime = Runtime(NoBodies())
        runtime.start()

        def child():
            own = Runtime(NoBodies())
            own.start()
            assert Echo.spawn(own).ask(1, timeout=5) == 1
            own.close()
            own.join(5)

        in_child(child)
        never_started = Runtime(NoBodies())
        in_child(lambda: raises_forked(never_started.start))
    """)


def test_the_application_s_actors_say_so_too_and_new_ones_work_in_the_child():
    run("""
        ref = Application.start()
        assert ref.ask(1) == 1

        def child():
            assert not ref.is_alive()
            raises_forked(ref.tell, 1)
            raises_forked(ref.ask, 1)
            deliver(ref, 1)
            own = [Application.start() for _ in range(10)]
            assert [each.ask(1, timeout=5) for each in own] == [1] * 10
            # also if one blocks: the watch and its timers are new, too
            gate = threading.Event()
            own[0].tell(lambda: gate.wait(5))
            assert own[1].ask(2, timeout=5) == 2
            gate.set()

        in_child(child)
        assert ref.ask(2) == 2
    """)


def test_to_stop_all_in_the_child_stops_what_was_started_there():
    run("""
        runtime = Runtime(NoBodies())
        runtime.start()
        refs = [Echo.start(runtime), Application.start()]

        def child():
            own = Application.start()
            assert pykka.ActorRegistry.stop_all(timeout=5) == [True, False, False]
            assert not own.is_alive()
            other, failing = Application.start(), Application.start()
            failing.tell(sys.exit)
            while other.is_alive():
                time.sleep(0.001)

        in_child(child)
        assert [ref.ask(1) for ref in refs] == [1, 1]
    """)


def test_a_lock_that_a_thread_of_the_parent_held_hangs_nobody_in_the_child():
    run("""
        runtime = Runtime(NoBodies())
        runtime.start()
        ref = Application.start()
        actor = Echo.spawn(runtime)
        assert ref.ask(1) == actor.ask(1) == 1
        dispatcher = ApplicationDispatcher.get()
        locks = [
            runtime._state, runtime.timers._condition, runtime.dispatcher._guard, runtime.observers._guard,
            dispatcher._guard, dispatcher._timers._condition, ApplicationDispatcher._lock,
        ]
        held, go = threading.Event(), threading.Event()

        def hold():
            for lock in locks:
                lock.acquire()
            held.set()
            go.wait()

        while dispatcher._watched:
            time.sleep(0.001)  # so that to deliver something needs the timers
        threading.Thread(target=hold, daemon=True).start()
        assert held.wait(5)

        def child():
            raises_forked(runtime.check_forked)
            raises_forked(runtime.start)
            runtime.close()
            runtime.join(5)
            for each in (ref, actor):
                raises_forked(each.ask, 1)
                deliver(each, 1)
            assert Application.start().ask(1, timeout=5) == 1

        in_child(child)
    """)


def test_a_child_of_the_child_is_a_copy_of_it():
    run("""
        def child():
            ref = Application.start()
            assert ref.ask(1, timeout=5) == 1
            in_child(lambda: (raises_forked(ref.ask, 1), Application.start().ask(1, timeout=5)))
            assert ref.ask(2, timeout=5) == 2

        in_child(child)
    """)
