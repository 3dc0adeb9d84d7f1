"""Ids: one number per submission, never used again."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest

from admission import TaskId
from tests.admission.support import pickled


def test_ids_start_at_one_or_later_and_only_grow():
    ids = [TaskId.allocate() for _ in range(100)]
    assert ids[0] >= 1
    assert ids == sorted(set(ids))


def test_no_id_is_given_out_twice_whoever_asks():
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: TaskId.allocate(), range(4000)))
    assert len(set(ids)) == 4000


def test_an_allocated_id_is_a_task_id():
    assert type(TaskId.allocate()) is TaskId


@pytest.mark.parametrize("text", [str(TaskId(42)), f"{TaskId(42)}", "%s" % TaskId(42)])  # noqa: UP031 - one of the ways
def test_an_id_is_shown_as_its_number_behind_a_hash_sign(text):
    assert text == "#42"


def test_the_repr_of_an_id_makes_it():
    assert eval(repr(TaskId(42))) == TaskId(42)  # noqa: S307 - our own repr


def test_ids_compare_and_hash_like_their_numbers():
    assert TaskId(1) < TaskId(2)
    assert {TaskId(7): "x"}[TaskId(7)] == "x"


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_a_copy_of_an_id_is_the_same_id(copied):
    id_ = copied(TaskId(42))
    assert (type(id_), id_) == (TaskId, 42)


@pytest.mark.parametrize("number", [True, 1.0, "1", None])
def test_an_id_is_made_of_an_int_only(number):
    with pytest.raises(TypeError, match=type(number).__name__):
        TaskId(number)


@pytest.mark.parametrize("number", [0, -1])
def test_there_is_no_id_below_one(number):
    with pytest.raises(ValueError, match=str(number)):
        TaskId(number)
