"""How a caller's values are checked: an error at the call that names the parameter and says what is accepted."""

from __future__ import annotations

import math
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

__all__ = ["FOREVER", "check_count", "check_duration", "check_member", "check_optional_duration", "check_text"]

E = TypeVar("E", bound=StrEnum)

FOREVER = math.inf


def check_duration(name: str, value: object) -> float:
    """Return `value` as seconds; accepts finite or infinite non-negative numbers and timedeltas.

    Raises:
        TypeError: not a number of seconds or a timedelta (bool and str are neither).
        ValueError: negative or NaN.

    """
    if type(value) is float:
        seconds = value
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = FOREVER if value > 0 else -FOREVER
    else:
        msg = f"{name} must be seconds (int or float) or a timedelta, not {type(value).__name__}"
        raise TypeError(msg)
    if not seconds >= 0:  # also catches NaN, for which every comparison is false
        msg = f"{name} must not be negative or NaN, got {seconds}"
        raise ValueError(msg)
    return seconds


def check_optional_duration(name: str, value: object, *, positive: bool = False) -> float | None:
    """Return `value` as seconds, or None for *no limit* (None and infinity).

    Raises:
        TypeError: not None, a number of seconds or a timedelta.
        ValueError: negative, NaN, or zero where `positive` is asked for.

    """
    if value is None:
        return None
    seconds = check_duration(name, value)
    if positive and seconds == 0:
        msg = f"{name} must be more than 0 seconds; pass None for no limit"
        raise ValueError(msg)
    return None if seconds == FOREVER else seconds


def check_count(name: str, value: object, *, least: int = 0) -> int | None:
    """Return `value` as a whole number of at least `least`, or None for *no limit*.

    Raises:
        TypeError: neither None nor an int (bool is not one).
        ValueError: below `least`.

    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{name} must be an int or None (no limit), not {type(value).__name__}"
        raise TypeError(msg)
    if value < least:
        msg = f"{name} must be at least {least} or None (no limit), got {value}"
        raise ValueError(msg)
    return value


def check_text(name: str, value: object) -> str:
    """Return `value`, a non-empty str.

    Raises:
        TypeError: not a str; keys are never converted, so that two different ones can never fold into one.
        ValueError: empty.

    """
    if not isinstance(value, str):
        msg = f"{name} must be a str, not {type(value).__name__}"
        raise TypeError(msg)
    if not value:
        msg = f"{name} must not be empty"
        raise ValueError(msg)
    return value if type(value) is str else str.__str__(value)  # what a subclass overrides must not run in our actors


def check_member(name: str, kind: type[E], value: object) -> E:
    """Return the member of a vocabulary that `value` is, or is the label of.

    Raises:
        ValueError: neither; the message names every label.

    """
    try:
        return kind(value)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        msg = f"{name} must be {article} {kind.__name__} or one of {known}, not {value!r}"
        raise ValueError(msg) from None
