"""Who a submission is: the process-local number that never names anything else."""

from __future__ import annotations

import itertools
from typing import Self

__all__ = ["TaskId"]

_next_number = itertools.count(1).__next__
_new = int.__new__


class TaskId(int):
    """The number of one submission, from the call that made it to its outcome.

    Starts at 1, strictly increases within a process and is never reused: a cancellation by id can never hit
    a successor. Rejected work consumes its id too. Shown as ``#42``.
    """

    __slots__ = ()

    def __new__(cls, number: int) -> Self:
        """Make the id with this number; :meth:`allocate` makes a fresh one."""
        if isinstance(number, bool) or not isinstance(number, int):
            msg = f"TaskId takes an int, not {type(number).__name__}"
            raise TypeError(msg)
        if number < 1:
            msg = f"TaskId starts at 1, got {number}"
            raise ValueError(msg)
        return super().__new__(cls, number)

    @classmethod
    def allocate(cls) -> Self:
        """Take the next number of this process. Safe from any thread."""
        return _new(cls, _next_number())

    def __str__(self) -> str:
        return f"#{int(self)}"

    def __repr__(self) -> str:
        return f"TaskId({int(self)})"
