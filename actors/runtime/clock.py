"""What time it is: monotonic for every duration, wall clock only for the timestamps of records."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """The clocks of the process. The simulation brings its own."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)
    """Seconds on a clock that never goes back; its zero means nothing."""
    wall = staticmethod(time.time)
    """Seconds since the epoch, for people."""
