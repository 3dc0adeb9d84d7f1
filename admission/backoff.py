"""How long to wait before the next attempt after a retryable failure.

The arithmetic is the reference's (taskvisor's BackoffPolicy and JitterPolicy), in seconds as float.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Protocol

from admission.checks import check_duration, check_member
from admission.labels import Label

__all__ = ["Backoff", "Jitter", "RandomSource"]

_DEFAULT_CAP = 30.0
_LEAST_DELAY = 0.001
_LARGEST_INDEX = 2**31 - 1
_LARGEST_FACTOR = sys.float_info.max


class RandomSource(Protocol):
    """Where jitter comes from; `random.Random` is one."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


def _between(low: float, high: float, random: RandomSource) -> float:
    if high <= low:
        return low
    if high == math.inf:  # an unbounded range has no uniform draw; its lower end is the only finite answer
        return low
    return low + (high - low) * random.random()


class Jitter(Label):
    """How a computed delay is spread, so that many failing runs do not come back in step."""

    NONE = "none"
    """The delay itself."""
    FULL = "full"
    """Uniform from 0 to the delay."""
    EQUAL = "equal"
    """Half of the delay, plus uniform from 0 to the other half."""
    RANDOMIZED_BAND = "randomized_band"
    """Uniform from the first delay to three times the computed one, within the cap."""

    def apply(self, delay: float, random: RandomSource) -> float:
        """Spread `delay` seconds. Without a band to draw from, RANDOMIZED_BAND is FULL."""
        if self is Jitter.NONE:
            return delay
        return _between(delay / 2 if self is Jitter.EQUAL else 0.0, delay, random)

    def apply_band(self, lower: float, seed: float, cap: float, random: RandomSource) -> float:
        """Draw from [lower, 3 * seed] within `cap` seconds; any other jitter spreads `lower` instead."""
        lower = min(lower, cap)
        if self is not Jitter.RANDOMIZED_BAND:
            return self.apply(lower, random)
        return _between(lower, max(lower, min(3 * seed, cap)), random)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before retry `i` (0, 1, ...): ``first * factor ** i``, at most `cap`, jittered, then at least `floor`.

    All in seconds. The default is 0.2 s doubling to at most 30 s with EQUAL jitter. A delay above zero is lifted to
    one millisecond (or to `cap`, where that is less), so that a failing run never spins.

    Raises:
        TypeError: a duration that is no number of seconds.
        ValueError: `factor` not finite or below 1; negative or NaN durations; `first` above `cap`.

    """

    first: float = 0.2
    cap: float = _DEFAULT_CAP
    factor: float = 2.0
    jitter: Jitter = Jitter.EQUAL
    floor: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.factor, bool) or not isinstance(self.factor, (int, float)):
            msg = f"factor must be a number, not {type(self.factor).__name__}"
            raise TypeError(msg)
        if not 1 <= self.factor <= _LARGEST_FACTOR:  # also catches NaN
            msg = f"factor must be finite and at least 1, got {self.factor}"
            raise ValueError(msg)
        first, cap, floor = (check_duration(name, getattr(self, name)) for name in ("first", "cap", "floor"))
        if first > cap:
            msg = f"first ({first} s) must not exceed cap ({cap} s)"
            raise ValueError(msg)
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "cap", cap)
        object.__setattr__(self, "factor", float(self.factor))
        object.__setattr__(self, "jitter", check_member("jitter", Jitter, self.jitter))
        object.__setattr__(self, "floor", min(floor, cap))

    @classmethod
    def constant(cls, delay: object) -> Backoff:
        """Wait `delay` seconds before every retry, without jitter."""
        seconds = check_duration("delay", delay)
        return cls(first=seconds, cap=max(seconds, _DEFAULT_CAP), factor=1.0, jitter=Jitter.NONE)

    @classmethod
    def exponential(cls, first: object) -> Backoff:
        """Wait `first` seconds, then twice as long each time up to 30 s (or `first`), without jitter."""
        seconds = check_duration("first", first)
        return cls(first=seconds, cap=max(seconds, _DEFAULT_CAP), factor=2.0, jitter=Jitter.NONE)

    def with_cap(self, cap: object) -> Backoff:
        """Return a copy with this cap in seconds; `first` and `floor` come down to it where they exceed it."""
        seconds = check_duration("cap", cap)
        return replace(self, cap=seconds, first=min(self.first, seconds), floor=min(self.floor, seconds))

    def with_jitter(self, jitter: Jitter) -> Backoff:
        """Return a copy with this jitter."""
        return replace(self, jitter=jitter)

    def with_floor(self, floor: object) -> Backoff:
        """Return a copy that never waits less than `floor` seconds (at most `cap`), whatever the jitter says."""
        return replace(self, floor=check_duration("floor", floor))

    def delay_for_retry(self, index: int, random: RandomSource) -> float:
        """Return the seconds to wait before retry `index`, counted from 0. Overflow counts as the cap."""
        base = self._base(index)
        if self.jitter is Jitter.RANDOMIZED_BAND:
            jittered = self.jitter.apply_band(self.first, base, self.cap, random)
        else:
            jittered = self.jitter.apply(base, random)
        delay = max(jittered, self.floor)
        return max(delay, min(_LEAST_DELAY, self.cap)) if base else delay

    def _base(self, index: int) -> float:
        if self.first == 0:
            return 0.0
        try:
            grown = self.first * self.factor ** min(index, _LARGEST_INDEX)
        except OverflowError:
            return self.cap
        return min(grown, self.cap)
