"""What a shutdown came to."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ShutdownReport"]


@dataclass(frozen=True, slots=True)
class ShutdownReport:
    """The one result of a shutdown, the same for every caller.

    `clean`: every run ended within the grace and no internal fault showed. `stuck`: names of the runs that the shutdown
    deadline forced, sorted. `still_inside`: names whose body has not left yet, sorted; their code still runs.
    `grace` in seconds. `log_dropped`: log records that the log handler had not taken by the end. `events_dropped`:
    events that waited for their subscribers when `observer_timeout` was over.
    """

    clean: bool
    stuck: tuple[str, ...] = ()
    still_inside: tuple[str, ...] = ()
    grace: float = 0.0
    log_dropped: int = 0
    events_dropped: int = 0
