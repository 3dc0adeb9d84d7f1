"""The demo: 294 days in the life of a repository, replayed in seconds on slots that rebuild their index.

    python docs/examples/demo/run.py [--seconds N] [--out DIR] [--history FILE] [--documents N] [--verify]

Every change to a directory asks its slot for a new index, with the policy *replace*: the job that runs is asked to
stop, the one that waits is superseded. In the end every index carries its slot's newest revision, and no two jobs were
ever inside the same slot; `verify.py` finds that out from the files under ``build/demo``. ``--verify`` does it again.

Exit code: 0 if everything holds, 1 if not, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

DEMO: Final = Path(__file__).parent
OUT: Final = DEMO.parents[2] / "build" / "demo"
HISTORY: Final = DEMO / "history.jsonl"
SECONDS: Final = 15.0


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        return run(options)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not disturb the end of the process
        print(f"\ninterrupted: all jobs were asked to stop; {options.out} is not complete", file=sys.stderr)
        return 130
    except BrokenPipeError:  # nobody reads on; what is still in the buffer must not complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def run(options: argparse.Namespace) -> int:
    # These take a moment, in which Ctrl-C must end us just as cleanly.
    from docs.examples.demo.history import HistoryError, load  # noqa: PLC0415
    from docs.examples.demo.index import IndexUnavailableError  # noqa: PLC0415
    from docs.examples.demo.layout import Layout  # noqa: PLC0415
    from docs.examples.demo.replay import replay  # noqa: PLC0415
    from docs.examples.demo.verify import LEAST, NO_LEAST, verify  # noqa: PLC0415

    layout = Layout(options.out)
    try:
        changes = load(options.history)
        faults = [] if options.verify else replay(changes, layout, options.seconds, options.documents)
        verdict = verify(changes, layout, LEAST if options.history == HISTORY else NO_LEAST)
        verdict.violations += faults
        print("", *verdict.lines(), sep="\n", flush=True)
    except (HistoryError, IndexUnavailableError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 1 if verdict.violations else 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Replays a repository's history on slots.")
    parser.add_argument("--seconds", type=seconds, default=SECONDS, help="for the whole history (%(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="for log, ledger and indexes (build/demo)")
    parser.add_argument("--history", type=Path, default=HISTORY, metavar="FILE", help="another history than ours")
    parser.add_argument("--documents", type=count, metavar="N", help="index at most so many documents")
    parser.add_argument("--verify", action="store_true", help="run nothing, judge what an earlier run has left")
    return parser.parse_args(argv)


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


if __name__ == "__main__":
    sys.exit(main())
