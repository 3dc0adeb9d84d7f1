"""What the scenarios about runs without a slot share: named specs, messages in flight, and a look behind the face."""

from __future__ import annotations

import asyncio
import threading

import pykka

from actors.testing import Script, scripted
from actors.testing.scripts import FOREVER
from admission import TaskSpec
from tests.actors.support import eventually
from tests.conformance.support import OK

LONG = 20.0
"""Seconds that many threads together may take on a busy machine."""


def named(name, *attempts):
    """Make a spec of one attempt under this name."""
    return TaskSpec.once(scripted(*(attempts or (OK,))), name=name)


def slow_to_stop(seconds):
    """Wait until asked to stop; then take so long, and return."""
    return Script(FOREVER, cleanup=seconds, on_cancel="ok")


def ask(supervisor, message):
    """Put a message into the registry's mailbox, behind everything before it; returns the future of its reply."""
    return supervisor.registry.ask(message, block=False)


def is_pending(future):
    """Tell whether there is no reply yet."""
    try:
        future.get(timeout=0)
    except pykka.Timeout:
        return True
    return False


def registry_of(supervisor):
    """Return the registry itself."""
    return supervisor.registry._actor_weakref()


def tables_of(registry):
    """Return how much is in each table of a registry."""
    names = ("routes", "members", "names", "lingering", "lingering_names", "callers", "joining", "private", "refused")
    return {name: len(getattr(registry, name)) for name in names}


async def until(condition):
    """Wait, without holding up the event loop, until it is so."""
    assert await asyncio.to_thread(eventually, condition, LONG)


class Lagging:
    """A subscriber that does not come back from its first event until it is let go."""

    def __init__(self):
        self.open = threading.Event()
        self.inside = threading.Event()
        self.told = 0

    def on_event(self, _event):
        self.inside.set()
        self.open.wait(LONG)
        self.told += 1
