"""What time it is: monotonic for every duration, wall clock only for the timestamps of records."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """The clocks of the process. The simulation brings its own."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; its zero means nothing."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch, for people."""
        return time.time()
