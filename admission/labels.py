"""Enums whose members are their labels, and cost no more than a string as a key."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Label"]


class Label(StrEnum):
    """A closed vocabulary; a member is the string that stands in logs.

    `Enum` hashes in Python code, by name; a member is equal to its string, so it may as well hash like it.
    """

    __hash__ = str.__hash__
