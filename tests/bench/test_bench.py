from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest
from pykka import ActorRegistry

from tests.bench import measure, method, run, thread_per_actor
from tests.bench.method import Figure, Goal, Measured, Row, Sense, Side, Verdict
from tests.bench.parallel import parallelism
from tests.bench.rows import noop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOBS = 200
UNREACHABLE = 1e9
QUIET_MACHINE, BUSY_MACHINE = 2.0, 1.2


def tiny(*bounds: float) -> Row:
    """The real row with few jobs, and as many of its goals as there are bounds."""

    def few(side: Side) -> Side:
        return replace(side, jobs=JOBS)

    goals = zip(noop.ROW.goals, bounds, strict=False)
    return replace(
        noop.ROW, goals=tuple(replace(goal, ours=few(goal.ours), other=few(goal.other), now=now) for goal, now in goals)
    )


@pytest.fixture
def bench(tmp_path, capfd):
    """Runs the harness on rows of ours; gives its exit code, its table and its JSON."""

    def bench(*arguments: str, row: Row, parallel: float = QUIET_MACHINE) -> tuple[int, str, Any]:
        path = tmp_path / "bench" / "results.json"
        code = run.main([*arguments, "--results", str(path)], rows=[row], gauge=lambda: parallel)
        return code, capfd.readouterr().out, json.loads(path.read_text()) if path.exists() else None

    return bench


def test_the_json_has_what_the_table_shows(bench):
    code, table, results = bench("--quick", row=tiny(0.3, 5))

    assert code == 0
    assert (results["rounds"], results["warm_ups"]) == (3, 2)
    assert [goal["goal"] for goal in results["goals"]] == [
        ">= 0.3 times ThreadPoolExecutor(4)",
        ">= 5 times a ThreadingActor per slot and attempt",
    ]
    lines = table.splitlines()
    for goal, judgement in zip(results["goals"], lines[3:5], strict=True):
        figure = "{value:.3f} ({low:.3f} .. {high:.3f})".format(**goal["figure"])
        shown = [goal["row"], goal["goal"], f"{goal['later']:g}", figure, goal["verdict"], "2.00, 2.00"]
        assert re.split(r" {2,}", judgement) == shown
    sides = [side for goal in results["goals"] for side in goal["sides"]]
    for side, line in zip(sides, lines[7:11], strict=True):
        rate = "{value:,.0f} ({low:,.0f} .. {high:,.0f})".format(**side["rate"])
        assert re.split(r" {2,}", line) == ["noop", side["name"], "200", rate]
        assert len(side["seconds"]) == 3


def test_three_rounds_are_not_judged(bench):
    code, table, results = bench("--quick", row=tiny(UNREACHABLE, UNREACHABLE))

    assert code == 0
    assert {goal["met"] for goal in results["goals"]} == {None}
    assert table.count("not judged: fewer than 9 rounds") == 2


def test_a_goal_that_is_not_met_makes_it_exit_1(bench):
    code, table, results = bench("--rounds", "9", row=tiny(0, UNREACHABLE))

    assert code == 1
    assert [goal["met"] for goal in results["goals"]] == [True, False]
    assert (table.count("  met  "), table.count("  not met  ")) == (1, 1)


def test_goals_that_are_met_make_it_exit_0(bench):
    code, _, results = bench("--rounds", "9", row=tiny(0))

    assert code == 0
    assert [goal["met"] for goal in results["goals"]] == [True]


def test_a_run_on_a_busy_machine_is_marked_and_not_judged(bench):
    code, table, results = bench("--rounds", "9", row=tiny(UNREACHABLE), parallel=BUSY_MACHINE)

    assert code == 0
    assert results["goals"][0]["parallel"] == {"before": BUSY_MACHINE, "after": BUSY_MACHINE, "quiet": False}
    assert "not judged: not quiet  1.20, 1.20 not quiet" in table


@contextmanager
def broken(jobs: int) -> Iterator[Callable[[], float]]:
    def one_round() -> float:
        raise AssertionError("one was rejected")

    yield one_round


def test_a_round_that_fails_is_no_result(bench):
    side = Side(name="broken", jobs=1, opened=broken)
    row = Row(name="broken", title="a row that fails", goals=(Goal(ours=side, other=side, now=1, later=1),))

    code, table, results = bench("--quick", row=row)

    assert (code, table, results) == (2, "", None)


def test_it_starts_as_a_script_and_knows_its_rows():
    command = [sys.executable, str(method.ROOT / "tests" / "bench" / "run.py"), "--row", "no such row"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(row.name in done.stderr for row in run.ROWS)


def test_the_real_row_has_its_full_size_and_the_goals_of_now():
    first, second = noop.ROW.goals
    assert (first.ours.jobs, first.other.jobs, first.now, first.later) == (20_000, 20_000, 0.3, 0.5)
    assert (second.ours.jobs, second.now, second.later) == (20_000, 5, 8)


# -- the method --------------------------------------------------------------------------------------------------------


def test_sides_take_turns_and_the_warm_ups_are_thrown_away(monkeypatch):
    turns: list[int] = []

    @contextmanager
    def opened(jobs: int) -> Iterator[Callable[[], float]]:
        def one_round() -> float:
            turns.append(jobs)
            return float(len(turns))

        yield one_round

    monkeypatch.setattr(measure, "resolve_name", lambda name: opened)
    monkeypatch.setattr(measure, "rest", lambda: None)
    monkeypatch.setattr(measure, "watch", lambda: None)  # it would end the process of the tests
    sides = [{"opened": "", "jobs": 1}, {"opened": "", "jobs": 2}]
    assert measure.run({"warm_ups": 2, "rounds": 3, "sides": sides}) == [[5, 7, 9], [6, 8, 10]]
    assert turns == [1, 2] * 5


def goal(sense: Sense = Sense.RATE) -> Goal:
    ours, other = (Side(name=name, jobs=jobs, opened=broken) for name, jobs in (("ours", 100), ("other", 50)))
    return Goal(ours=ours, other=other, now=2, later=3, sense=sense)


def test_the_figure_is_the_ratio_of_the_median_rates_with_the_quartiles_of_the_rounds():
    measured = Measured(ours=[1, 2, 4], other=[0.5, 1, 1])  # 100, 50, 25 jobs/s against 100, 50, 50
    assert method.ratio(goal(), measured) == Figure(1.0, 0.75, 1.0)


def test_a_cost_is_the_ratio_the_other_way_round():
    measured = Measured(ours=[1, 2, 4], other=[0.5, 1, 1])
    assert method.ratio(goal(Sense.COST), measured) == Figure(1.0, 1.0, 1.5)
    assert str(goal(Sense.COST)) == "<= 2 times the cost of other"


@pytest.mark.parametrize(
    ("sense", "value", "met"),
    [
        (Sense.RATE, 2.0, True),
        (Sense.RATE, 1.999, False),
        (Sense.COST, 2.0, True),
        (Sense.COST, 2.001, False),
    ],
)
def test_a_goal_is_met_from_its_bound_on(sense, value, met):
    assert method.judge(goal(sense), Figure(value, 0, 9), rounds=9, parallel=(1.7, 2.0)) == Verdict(met)


@pytest.mark.parametrize(
    ("rounds", "parallel", "reason"),
    [
        (8, (2.0, 2.0), "fewer than 9 rounds"),
        (9, (1.69, 2.0), "not quiet"),
        (9, (2.0, 1.69), "not quiet"),
    ],
)
def test_only_a_quiet_run_of_nine_rounds_is_judged(rounds, parallel, reason):
    verdict = method.judge(goal(), Figure(9, 9, 9), rounds=rounds, parallel=parallel)
    assert verdict == Verdict(None, reason)


def test_the_machine_is_between_useless_and_more_than_parallel():
    assert parallelism(samples=1, seconds=0.01) > 0


# -- what is compared with ---------------------------------------------------------------------------------------------


def test_the_thread_per_actor_build_runs_one_job_per_key_in_order_and_stops_its_actors():
    threads = set(threading.enumerate())
    busy = {key: Lock() for key in ("a", "b", "c")}
    order: dict[str, list[int]] = {key: [] for key in busy}

    def body(key: str, number: int, _ctx: None) -> int:
        assert busy[key].acquire(blocking=False)
        order[key].append(number)
        busy[key].release()
        return number

    with thread_per_actor.opened() as pipeline:
        jobs = [(key, number) for number in range(20) for key in busy]
        outcomes = [pipeline.submit(partial(body, key, number), key) for key, number in jobs]
        assert [outcome.get(timeout=10) for outcome in outcomes] == [number for _, number in jobs]

    assert order == {key: list(range(20)) for key in busy}
    assert not ActorRegistry.get_all()
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
        assert not thread.is_alive()
