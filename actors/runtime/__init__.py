"""An event-driven runtime for Pykka. Knows nothing about admission."""

from actors.runtime.actor import Deferred, DispatchedActor, DispatchedRef, ForkedError, RuntimeActor, deliver
from actors.runtime.clock import Clock
from actors.runtime.dispatcher import Dispatcher, ElasticDispatcher
from actors.runtime.mailbox import Mailbox, Undeliverable
from actors.runtime.runtime import Bodies, Calls, Runtime, Waitable
from actors.runtime.timers import TimerFired, Timers, TimerToken

__all__ = [
    "Bodies",
    "Calls",
    "Clock",
    "Deferred",
    "DispatchedActor",
    "DispatchedRef",
    "Dispatcher",
    "ElasticDispatcher",
    "ForkedError",
    "Mailbox",
    "Runtime",
    "RuntimeActor",
    "TimerFired",
    "TimerToken",
    "Timers",
    "Undeliverable",
    "Waitable",
    "deliver",
]
