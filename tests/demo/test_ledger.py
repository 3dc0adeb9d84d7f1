from __future__ import annotations

import pytest

from docs.examples.demo import ledger
from docs.examples.demo.jsonlines import BadLineError
from docs.examples.demo.layout import Layout
from docs.examples.demo.ledger import Ledger, OverlapError, Stay, overlaps


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path)
    layout.clear()
    return layout


def test_a_stay_is_written_down_when_it_is_over(layout):
    with Ledger(layout) as book:
        with book.inside("src/core", "r1"):
            assert [mark.name for mark in layout.marks()] == ["src%2Fcore"]
            assert ledger.read(layout.ledger) == []
        with pytest.raises(KeyError), book.inside("src/core", "r2"):
            raise KeyError

    assert layout.marks() == []
    one, two = ledger.read(layout.ledger)
    assert (one.rev, two.rev) == ("r1", "r2")
    assert one.entered <= one.left <= two.entered <= two.left


def test_a_second_body_is_refused_and_written_down(layout):
    with Ledger(layout) as book, book.inside(".", "r1"):
        with book.inside("src", "r1"):
            pass
        with pytest.raises(OverlapError), book.inside(".", "r2"):
            pytest.fail("it was let in")

    assert [(one.rev, two.rev) for one, two in overlaps(ledger.read(layout.ledger))] == [("r1", "r2")]


def test_only_stays_in_the_same_slot_overlap():
    first, touches, inside = Stay("a", "r1", 1, 5), Stay("a", "r2", 5, 6), Stay("a", "r3", 2, 3)

    assert overlaps([first, touches, Stay("b", "r1", 2, 6)]) == []
    assert overlaps([touches, inside, first]) == [(first, inside)]


def test_a_long_stay_overlaps_with_all_that_enter_during_it():
    first, second, third = Stay("a", "r1", 1, 9), Stay("a", "r2", 2, 3), Stay("a", "r3", 4, 10)

    assert overlaps([third, second, first]) == [(first, second), (first, third)]


def test_a_line_that_is_no_stay_is_named(layout):
    layout.ledger.write_text('{"slot": "a", "rev": "r1", "entered": 1}\n')

    with pytest.raises(BadLineError, match="line 1: slot, rev, entered and left were expected"):
        ledger.read(layout.ledger)
