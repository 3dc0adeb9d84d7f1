"""Runs the benchmark: measures every row, prints a table, writes the same as JSON, judges what may be judged.

    python tests/bench/run.py [--row NAME] [--rounds N | --quick] [--results FILE]

Exit code: 0 if every judged goal is met (or none was judged), 1 if one is not, 2 if a measurement failed. How it is
measured is said in `tests/bench/method.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import method
from tests.bench.parallel import parallelism
from tests.bench.rows import noop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROWS = (noop.ROW,)
"""All rows, in the order of the table; each has its file in `rows/`."""
RESULTS = method.ROOT / "build" / "bench" / "results.json"
QUICK = 3


def main(
    arguments: Sequence[str],
    rows: Sequence[method.Row] = ROWS,
    gauge: Callable[[], float] = parallelism,
) -> int:
    options = parse(arguments, [row.name for row in rows])
    chosen = [row for row in rows if options.row in (None, row.name)]
    try:
        goals = [result for row in chosen for result in run(row, options.rounds, gauge)]
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"the measurement failed: {error}", file=sys.stderr)
        return 2
    results = {**surroundings(), "warm_ups": method.WARM_UPS, "rounds": options.rounds, "goals": goals}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(results, indent=2) + "\n")
    print(report(results))
    return 1 if any(goal["met"] is False for goal in goals) else 0


def parse(arguments: Sequence[str], names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Runs the benchmark.")
    parser.add_argument("--row", choices=names, help="this row only")
    count = parser.add_mutually_exclusive_group()
    count.add_argument(
        "--rounds",
        type=at_least_two,
        default=method.LEAST_ROUNDS,
        metavar="N",
        help=f"rounds that count (default: {method.LEAST_ROUNDS}; with fewer nothing is judged)",
    )
    count.add_argument(
        "--quick", dest="rounds", action="store_const", const=QUICK, help=f"{QUICK} rounds, to see that it runs"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where the JSON goes")
    return parser.parse_args(arguments)


def at_least_two(text: str) -> int:
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError("quartiles need two rounds")
    return number


def run(row: method.Row, rounds: int, gauge: Callable[[], float]) -> list[dict[str, Any]]:
    """Measures one row, each pair between two looks at the machine."""
    results = []
    before = gauge()
    for goal in row.goals:
        print(f"{row.name}: {goal.ours.name} and {goal.other.name} ...", file=sys.stderr)
        measured = method.measure(goal, rounds)
        after = gauge()
        figure = method.ratio(goal, measured)
        verdict = method.judge(goal, figure, rounds=rounds, parallel=(before, after))
        results.append(
            {
                "row": row.name,
                "title": row.title,
                "goal": str(goal),
                "now": goal.now,
                "later": goal.later,
                "figure": figure._asdict(),
                "met": verdict.met,
                "verdict": str(verdict),
                "parallel": {"before": before, "after": after, "quiet": min(before, after) >= method.QUIET},
                "sides": [
                    {
                        "name": side.name,
                        "jobs": side.jobs,
                        "rate": method.summary(method.rates(side, seconds))._asdict(),
                        "seconds": seconds,
                    }
                    for side, seconds in ((goal.ours, measured.ours), (goal.other, measured.other))
                ],
            }
        )
        before = after
    return results


def surroundings() -> dict[str, Any]:
    return {
        "slotkeeper": version("slotkeeper"),
        "pykka": version("pykka"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def report(results: dict[str, Any]) -> str:
    """Returns what `results` says, for people."""
    goals = results["goals"]
    judgements = [["row", "goal", "later", "figure (quartiles)", "verdict", "parallel"]]
    sides = [["row", "side", "jobs a round", "jobs/s (quartiles)"]]
    for goal in goals:
        parallel = goal["parallel"]
        machine = f"{parallel['before']:.2f}, {parallel['after']:.2f}{'' if parallel['quiet'] else ' not quiet'}"
        figure = with_quartiles(goal["figure"], ".3f")
        judgements.append([goal["row"], goal["goal"], f"{goal['later']:g}", figure, goal["verdict"], machine])
        sides.extend(
            [goal["row"], side["name"], f"{side['jobs']:,}", with_quartiles(side["rate"], ",.0f")]
            for side in goal["sides"]
        )
    titles = dict.fromkeys(f"{goal['row']}: {goal['title']}" for goal in goals)
    notes = [
        f"{results['rounds']} rounds in turn after {results['warm_ups']} warm-ups, a fresh process for each pair;",
        "figure: ratio of the medians of jobs/s (sides may differ in jobs a round), quartiles of the rounds' own;",
        f"parallel: two busy processes against one, before and after; judged from {method.QUIET} on.",
    ]
    return "\n".join([*titles, "", *aligned(judgements), "", *aligned(sides), "", *notes])


def with_quartiles(figure: dict[str, float], form: str) -> str:
    return f"{figure['value']:{form}} ({figure['low']:{form}} .. {figure['high']:{form}})"


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
