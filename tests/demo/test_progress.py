from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from docs.examples.demo import progress, run
from docs.examples.demo.history import load
from docs.examples.demo.progress import HIDE_CURSOR, SHOW_CURSOR, WRAP_OFF, WRAP_ON, redraws
from tests.demo.support import FEW, TINY

SCRIPT = Path(run.__file__)
SOON = 20.0
"""Seconds after which something that has not happened never will."""


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Drawn:
    """The demo as a process on a pseudo-terminal, and what it has drawn so far."""

    def __init__(self, arguments):
        self.end, other = os.openpty()
        environ = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=other,
            stderr=other,
            env={**environ, "TERM": "xterm-256color"},
        )
        os.close(other)
        self.text = ""

    def read(self, until=None):
        """Read up to a text, or to the end."""
        deadline = time.monotonic() + SOON
        while until is None or until not in self.text:
            ready, _, _ = select.select([self.end], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"not in time: {self.text!r}"
            try:
                part = os.read(self.end, 65536)
            except OSError:  # Linux: the other end is closed
                part = b""
            if not part:
                assert until is None, self.text
                break
            self.text += part.decode()
        return self.text

    def close(self):
        self.process.kill()
        self.process.wait(SOON)
        os.close(self.end)


@pytest.fixture
def draw():
    drawn = []

    def start(*arguments):
        drawn.append(Drawn(arguments))
        return drawn[-1]

    yield start
    for each in drawn:
        each.close()


@pytest.mark.parametrize(
    ("stream", "environ", "expected"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "xterm", "CI": "true"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_only_a_terminal_that_can_and_may_be_drawn_on_is(stream, environ, expected):
    assert redraws(stream, environ) is expected


def test_on_a_terminal_the_table_is_drawn_over_itself_and_the_cursor_comes_back(to_run, draw):
    drawn = draw(*to_run.arguments("--seconds", "0.8"))

    text = drawn.read()

    assert drawn.process.wait(SOON) == 0
    assert text.count(HIDE_CURSOR + WRAP_OFF) == text.count(WRAP_ON + SHOW_CURSOR) == 1
    drawings = text[text.index(HIDE_CURSOR) : text.index(SHOW_CURSOR)].split("\x1b[6A")  # as many lines as it has
    assert len(drawings) > 1
    assert all("src/core" in drawing for drawing in drawings)
    assert "\x1b[2J" not in text
    assert "src                       13/13" in drawings[-1]
    assert text.endswith("everything holds\r\n")


@pytest.fixture
def interruptible():
    """Let processes started here be interrupted, even where the tests themselves can not be (in the background)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_it_cleanly_with_130(tmp_path, draw):
    drawn = draw("--out", str(tmp_path), "--documents", FEW, "--seconds", "60")
    drawn.read(until=progress.CYAN)  # a body is inside

    drawn.process.send_signal(signal.SIGINT)

    assert drawn.process.wait(SOON) == 130
    text = drawn.read()
    assert "interrupted: all jobs were asked to stop" in text
    assert "Traceback" not in text
    assert text.count(HIDE_CURSOR) == text.count(SHOW_CURSOR) == 1
    assert '"event": "shutdown_finished"' in (tmp_path / "demo.jsonl").read_text().splitlines()[-1]
    assert not list((tmp_path / "inside").iterdir())


def test_elsewhere_there_are_plain_lines(to_run, capsys, monkeypatch):
    monkeypatch.setattr(progress._Lines, "period", 0.05)

    assert to_run.replay() == 0

    output = capsys.readouterr().out
    lines = output.splitlines()
    assert "\x1b" not in output
    assert "\r" not in output
    assert max(map(len, lines)) < 100
    totals = [line for line in lines if "submitted" in line]
    assert len(totals) > 1
    assert f"submitted  {len(TINY)}" in totals[-1]
    (src,) = (line for line in lines if line.startswith("src "))
    assert src.split()[1] == "13/13"
    assert src.endswith("  r13")


def test_the_table_fits_a_usual_terminal():
    board = progress.Board(load(run.HISTORY), 15.0)

    table = board.table({}, 80, colour=False)

    assert len(table) == 1 + 1 + 16 + 1
    assert max(map(len, table)) <= 80
    assert "\x1b" not in "".join(table)


def test_a_reader_that_has_gone_is_no_traceback(to_run):
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), *to_run.arguments("--seconds", "0.3")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()

        assert process.wait(SOON) == 1
    assert errors == b""
