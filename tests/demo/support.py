"""What the tests of the demo share: a tiny history, and a run with its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from docs.examples.demo import run
from docs.examples.demo.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

BURST = 12
TINY = [
    *((0, "src", f"r{number}") for number in range(1, BURST + 1)),
    (0, "src/core", "r12"),
    (0, ".", "r12"),
    (1, "src", "r13"),
    (1, "src/core", "r13"),
    (2, "src/core", "r14"),
]
"""Three slots. `src` gets a burst, of which some must be superseded, and its newest revision later."""
FEW = "30"
"""Documents, so that a run takes no time."""


class Run:
    """The files of a finished run, and the command that judges them."""

    def __init__(self, directory: Path):
        self.history = directory / "history.jsonl"
        self.layout = Layout(directory / "out")

    def arguments(self, *more):
        return ["--history", str(self.history), "--out", str(self.layout.root), "--documents", FEW, *more]

    def replay(self, seconds="0.4"):
        return run.main(self.arguments("--seconds", seconds))

    def verify(self):
        return run.main(self.arguments("--verify"))


def write_lines(path, objects):
    path.write_text("".join(f"{json.dumps(each)}\n" for each in objects))


def write_history(path):
    write_lines(path, [{"at": at, "slot": slot, "rev": rev} for at, slot, rev in TINY])


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
