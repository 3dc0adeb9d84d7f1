from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from docs.examples.demo import index
from docs.examples.demo.index import BATCHES, Build, Document, IndexUnavailableError, Stamp

DOCUMENTS = [Document(f"module_{number}.py", f"def function_{number}(): ...\n" * 10) for number in range(40)]


def paths(plan):
    return [document.path for batch in plan for document in batch]


def test_the_documents_are_the_standard_librarys_own_sources():
    documents = index.read_documents(20)

    assert len(documents) == 20
    assert all(document.path.endswith(".py") for document in documents)
    assert all(index.SMALLEST <= len(document.text) <= index.LARGEST for document in documents)


def test_a_python_without_sources_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))

    with pytest.raises(IndexUnavailableError, match="no sources of the standard library"):
        index.read_documents()


def test_a_machines_speed_is_measured_by_indexing():
    assert index.measure(DOCUMENTS) > 0


def test_a_job_has_as_many_batches_of_the_size_asked_for():
    size = 2 * len(DOCUMENTS[-1].text)

    plan = index.plan(DOCUMENTS, 0.5, size)

    assert [len(batch) for batch in plan] == [2] * BATCHES
    assert paths(plan)[0] == "module_20.py"


def test_where_documents_are_few_each_is_taken_once():
    plan = index.plan(DOCUMENTS, 0.9, 1e9)

    assert len(plan) == BATCHES
    assert sorted(paths(plan)) == sorted(document.path for document in DOCUMENTS)
    assert paths(index.plan(DOCUMENTS[:3], 0, 1e9)) == ["module_0.py", "module_1.py", "module_2.py"]


def test_a_published_index_carries_its_revision_and_finds_text(tmp_path):
    path = tmp_path / "slot.sqlite"
    with Build(path) as build:
        build.add(DOCUMENTS[:20])
        build.add(DOCUMENTS[20:])
        assert build.publish("r1") == 40

    assert index.stamp(path) == Stamp("r1", 40, 40)
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT path FROM documents WHERE text LIKE '%function_17(%'").fetchall()
    assert found == [("module_17.py",)]


def test_a_build_that_is_left_early_changes_nothing(tmp_path):
    path = tmp_path / "slot.sqlite"
    with Build(path) as build:
        build.add(DOCUMENTS)
        build.publish("r1")

    with Build(path) as build:
        build.add(DOCUMENTS[:5])

    assert index.stamp(path) == Stamp("r1", 40, 40)
    assert [file.name for file in tmp_path.iterdir()] == ["slot.sqlite"]


def test_no_index_has_no_stamp(tmp_path):
    assert index.stamp(tmp_path / "slot.sqlite") is None
    assert not list(tmp_path.iterdir())
