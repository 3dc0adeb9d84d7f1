"""Keyed admission with actors: one job per key.

`Supervisor` is the face for threads, ``async with Supervisor()`` the one for event loops; `RegistryActor` and
`SlotActor` are the same protocol for Pykka actors.
"""

from actors.assembly import make_runtime, open_runtime
from actors.async_supervisor import AsyncSupervisor
from actors.bodies import AsyncTaskContext, TaskContext
from actors.bodies.context import CancellableAsyncTaskContext, CancellableTaskContext
from actors.handle import TaskHandle
from actors.messages import (
    Add,
    Alive,
    Cancel,
    Ended,
    Explain,
    Join,
    Lifecycle,
    Remove,
    Shutdown,
    Snapshot,
    Submit,
    Tasks,
)
from actors.observers.subscribers import Subscription
from actors.prepared import AsyncPreparedSubmission, PreparedSubmission
from actors.registry import RegistryActor
from actors.runtime import DispatchedActor, ForkedError, Runtime
from actors.slot import SlotActor
from actors.supervisor import Supervisor

__all__ = [
    "Add",
    "Alive",
    "AsyncPreparedSubmission",
    "AsyncSupervisor",
    "AsyncTaskContext",
    "Cancel",
    "CancellableAsyncTaskContext",
    "CancellableTaskContext",
    "DispatchedActor",
    "Ended",
    "Explain",
    "ForkedError",
    "Join",
    "Lifecycle",
    "PreparedSubmission",
    "RegistryActor",
    "Remove",
    "Runtime",
    "Shutdown",
    "SlotActor",
    "Snapshot",
    "Submit",
    "Subscription",
    "Supervisor",
    "TaskContext",
    "TaskHandle",
    "Tasks",
    "make_runtime",
    "open_runtime",
]
