from __future__ import annotations

import pykka
import pytest

from actors import AsyncSupervisor, RegistryActor, SlotActor, Supervisor, open_runtime
from tests.actors.support import Body, eventually, our_threads


@pytest.fixture
def body():
    """Makes bodies with a gate; all gates are open in the end."""
    made = []

    def make(*args, **kwargs):
        made.append(Body(*args, **kwargs))
        return made[-1]

    def let_all_go():
        for each in made:
            each.let_go()

    make.let_all_go = let_all_go
    yield make
    let_all_go()


@pytest.fixture
def nothing_is_left():
    """The test ends with the actors and threads that it found."""
    actors, threads = set(pykka.ActorRegistry.get_all()), set(our_threads())
    yield
    assert eventually(lambda: set(pykka.ActorRegistry.get_all()) <= actors), pykka.ActorRegistry.get_all()
    assert eventually(lambda: set(our_threads()) <= threads), our_threads()


@pytest.fixture
def start(nothing_is_left, body):
    """Starts supervisors; shuts them down in the end."""
    started = []

    def make(**settings):
        settings.setdefault("grace", 1)
        started.append(Supervisor(**settings).start())
        return started[-1]

    yield make
    body.let_all_go()
    for supervisor in started:
        supervisor.shutdown()


@pytest.fixture
def supervisor(start):
    return start()


@pytest.fixture
def face(supervisor):
    """The supervisor's face for event loops, without the block around it."""
    return AsyncSupervisor(supervisor._core)


@pytest.fixture
def runtime(nothing_is_left, body):
    """A runtime of the application's own; in the end every actor is stopped and the runtime closed."""
    runtime = open_runtime()
    yield runtime
    body.let_all_go()
    pykka.ActorRegistry.stop_all()
    runtime.close()
    runtime.join(1)


@pytest.fixture
def registry(runtime):
    return RegistryActor.start(runtime, grace=1)


@pytest.fixture
def lone_slot(runtime):
    return SlotActor.start("alone", runtime=runtime, grace=1)
