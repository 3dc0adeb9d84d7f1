"""What the scenarios share: a simulated world with its log, a registry that can be held back, scripts."""

from __future__ import annotations

import pytest

from actors.messages import Register
from actors.runtime import deliver
from actors.testing import Script, Simulation
from actors.testing.scripts import FOREVER
from admission import Backoff, Jitter

FAST = Backoff(first=0.001, cap=0.001, factor=1, jitter=Jitter.NONE)
"""The least delay before every retry."""

GRACE = 5.0
OK = Script(0, "ok")
COOP = Script(FOREVER, on_cancel="ok")
"""Waits until it is asked to stop, and then returns."""
COOP_CANCELLED = Script(FOREVER)
"""The same, but it reports its cancellation."""

seeds = pytest.mark.parametrize("seed", range(10))
"""The order of steps matters: each seed is another one."""


def stubborn(seconds):
    """Stay inside for so long, whatever is asked."""
    return Script(seconds, ignores_cancel=True)


def gate(seconds, result="ok"):
    """The same, and return something."""
    return Script(seconds, result, ignores_cancel=True)


class World(Simulation):
    """A simulation whose log can be asked."""

    def of(self, event, who=None):
        """Return the records of this event, or those of this submission, in order."""
        self.run_until_idle()
        return [
            record
            for record in self.records
            if record["event"] == event and (who is None or record.get("id") == who.id)
        ]

    def count(self, event, who=None):
        """Tell how many there are."""
        return len(self.of(event, who))

    def events(self, who):
        """Return the names of all records of this submission, in order."""
        self.run_until_idle()
        return [record["event"] for record in self.records if record.get("id") == who.id]

    def edges(self, slot):
        """Return the phase changes of this slot as text, in order."""
        return [
            f"{record['from_phase']}>{record['to_phase']}"
            for record in self.of("slot_transition")
            if record["slot"] == slot
        ]

    def edge(self, slot, edge):
        """Return the one record of this phase change."""
        (found,) = (
            record
            for record in self.of("slot_transition")
            if record["slot"] == slot and f"{record['from_phase']}>{record['to_phase']}" == edge
        )
        return found

    def order(self, slot):
        """Return the ids whose bodies were entered in this slot, in order."""
        return [record["id"] for record in self.of("body_entered") if record["slot"] == slot]

    @property
    def now(self):
        """Seconds since the world began."""
        return self.clock.monotonic()


class Held:
    """Keeps back what slots ask the registry to register, of these slots or of all: nothing is decided meanwhile."""

    def __init__(self, world, supervisor, *slots):
        self._world = world
        self._slots = slots
        self._messages = []
        self._registry = registry_of(supervisor)
        self._decide = self._registry.handlers[Register]
        self._registry.handlers = {**self._registry.handlers, Register: self._keep}

    def _keep(self, registry, message):
        if self._slots and message.ticket.slot not in self._slots:
            self._decide(registry, message)
        else:
            self._messages.append(message)

    def let_go(self):
        """Have everything decided that was kept back, and whatever follows from it without time passing."""
        del self._registry.handlers  # that of its class is back
        for message in self._messages:
            deliver(self._registry.actor_ref, message)
        self._world.run_until_idle()


def registry_of(supervisor):
    """Return the registry itself."""
    return supervisor.registry._actor_weakref()


def slot_of(supervisor, key):
    """Return the ref of a slot."""
    return registry_of(supervisor).slots[key].ref


def ask(supervisor, message):
    """Put a question into the registry's mailbox; returns the future of its answer."""
    return supervisor.registry.ask(message, block=False)


def look(supervisor, slot="s"):
    """Return status, owner and depth of a slot; None for one without work."""
    found = supervisor.snapshot().slot(slot)
    return found and (found.status, found.owner_id, found.queue_depth)
