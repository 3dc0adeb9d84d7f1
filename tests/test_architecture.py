"""What the rooms of the house promise about their lines, mostly read off the syntax tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from actors import RegistryActor, SlotActor
from actors.desk import Desk
from actors.limiter import LimiterActor
from actors.lone import LoneSlotActor
from actors.observers.log import LogObserver
from actors.runtime import RuntimeActor
from actors.worker import WorkerActor

ROOT = Path(__file__).parents[1]
NEVER_IMPORTED = {"threading", "queue", "asyncio", "multiprocessing", "time"}
NEVER_CALLED = {"ask", "wait", "sleep", "acquire", "result"}
LONGEST_FILE = 450

DECIDING = [
    *sorted((ROOT / "admission").glob("*.py")),
    *(ROOT / "actors" / f"{name}.py" for name in ("registry", "slot", "worker", "limiter", "ending", "lone")),
]
SOURCES = sorted(path for package in ("actors", "admission") for path in (ROOT / package).rglob("*.py"))


def named(path):
    return path.relative_to(ROOT).as_posix()


def imports_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def calls_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Attribute(attr=name) | ast.Name(id=name):
                    yield name, node.lineno
                case _:
                    pass


@pytest.mark.parametrize("path", DECIDING, ids=named)
def test_what_decides_knows_no_threads_and_no_clock(path):
    assert NEVER_IMPORTED.isdisjoint(imports_of(ast.parse(path.read_text())))


@pytest.mark.parametrize("path", DECIDING, ids=named)
def test_what_decides_never_waits(path):
    calls = calls_of(ast.parse(path.read_text()))
    assert [f"line {line}: {name}()" for name, line in calls if name in NEVER_CALLED] == []


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_no_file_is_too_long_to_be_read_in_one_go(path):
    lines = path.read_text().count("\n")
    assert lines <= LONGEST_FILE


@pytest.mark.parametrize(
    ("source", "imported"),
    [("import time", {"time"}), ("from queue import Queue", {"queue"}), ("import asyncio.events", {"asyncio"})],
)
def test_the_reader_sees_every_form_of_import(source, imported):
    assert set(imports_of(ast.parse(source))) == imported


def test_the_reader_sees_calls_of_names_and_of_attributes():
    assert {name for name, _ in calls_of(ast.parse("sleep(1); a.b.wait(2); f(x)(y)"))} == {"sleep", "wait", "f"}


def own_names(*classes):
    return {name for each in classes for name in vars(each) if not name.startswith(("__", "_abc"))}


def test_the_two_halves_of_a_slot_alone_share_only_what_it_decides_between():
    assert own_names(Desk) & own_names(SlotActor) <= own_names(LoneSlotActor)


@pytest.mark.parametrize("actor", [Desk, RegistryActor, SlotActor, WorkerActor, LimiterActor, LogObserver])
def test_no_actor_of_ours_hides_what_an_actor_is_made_of(actor):
    private = {name for name in own_names(*RuntimeActor.__mro__[:-1]) if name.startswith("_")}
    assert own_names(actor) & private <= {"_choose_dispatcher"}
