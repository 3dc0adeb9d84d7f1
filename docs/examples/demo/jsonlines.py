"""Reads files of one JSON object per line, and says exactly where one is broken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["BadLineError", "read"]


class BadLineError(ValueError):
    """A line that is not what it should be; the message names the file, the line and the fault."""

    def __init__(self, path: Path, line: int, fault: str) -> None:
        super().__init__(f"{path}, line {line}: {fault}")


def read(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for every line.

    Raises:
        BadLineError: a line that is not a JSON object, or a last line that was cut off.
        OSError: the file can not be read.

    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                raise BadLineError(path, number, "cut off, there is no end of line")
            try:
                value = json.loads(line)
            except ValueError as error:
                raise BadLineError(path, number, f"not JSON: {error}") from None
            if not isinstance(value, dict):
                raise BadLineError(path, number, f"a JSON object was expected, not {type(value).__name__}")
            yield number, value
