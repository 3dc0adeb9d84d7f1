"""An event-driven runtime for Pykka. Knows nothing about admission."""

from actors.runtime.actor import RuntimeActor
from actors.runtime.application import DispatchedActor
from actors.runtime.clock import Clock
from actors.runtime.dispatcher import Dispatcher, ElasticDispatcher
from actors.runtime.mailbox import Mailbox, Undeliverable
from actors.runtime.ref import DispatchedRef, ForkedError, deliver, mailbox_of
from actors.runtime.reply import Deferred
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
    "mailbox_of",
]
