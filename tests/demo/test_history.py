from __future__ import annotations

import pytest

from docs.examples.demo import run
from docs.examples.demo.history import HistoryError, load, newest

GOOD = b'{"at": 0, "slot": "src", "rev": "a1"}\n'


def test_ours_is_what_it_says_it_is():
    changes = load(run.HISTORY)

    assert len(changes) == 447
    assert len(newest(changes)) == 16
    assert round(changes[-1].at / 86_400) == 294


def test_the_newest_revision_of_a_slot_is_the_last_one(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_bytes(GOOD + b'{"at": 1.5, "slot": "docs", "rev": "b2"}\n{"at": 1.5, "slot": "src", "rev": "b2"}\n')

    assert newest(load(path)) == {"docs": "b2", "src": "b2"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"", "is empty"),
        (GOOD + b"\n", "line 2: not JSON"),
        (GOOD + b"{]\n", "line 2: not JSON"),
        (GOOD + b"\xff\n", "line 2: not JSON"),
        (GOOD + b"[1]\n", "line 2: a JSON object was expected, not list"),
        (GOOD + GOOD[:-1], "line 2: cut off"),
        (b'{"at": 0, "slot": "src"}\n', "line 1: the fields must be at, slot, rev; found at, slot"),
        (b'{"at": 0, "slot": "src", "rev": "a1", "by": "me"}\n', "line 1: the fields must be"),
        (b'{"at": "0", "slot": "src", "rev": "a1"}\n', "line 1: at must be a number of seconds from 0, not '0'"),
        (b'{"at": true, "slot": "src", "rev": "a1"}\n', "line 1: at must be a number"),
        (b'{"at": NaN, "slot": "src", "rev": "a1"}\n', "line 1: at must be a number"),
        (b'{"at": -1, "slot": "src", "rev": "a1"}\n', "line 1: at must be a number"),
        (b'{"at": 0, "slot": "", "rev": "a1"}\n', "line 1: slot must be a non-empty text, not ''"),
        (b'{"at": 0, "slot": "src", "rev": 7}\n', "line 1: rev must be a non-empty text, not 7"),
        (GOOD + GOOD, "line 2: revision a1 of slot src comes twice"),
        (GOOD.replace(b"0", b"5") + GOOD, "line 2: at 0 is earlier than in the line above"),
    ],
)
def test_a_history_that_makes_no_sense_is_refused_with_its_line(tmp_path, text, fault):
    path = tmp_path / "history.jsonl"
    path.write_bytes(text)

    with pytest.raises(HistoryError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert fault in str(caught.value)


def test_the_command_says_what_is_wrong_with_the_history_and_exits_1(tmp_path, capsys):
    missing = tmp_path / "nowhere.jsonl"

    assert run.main(["--history", str(missing), "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == f"demo: {missing} can not be read: No such file or directory\n"
    assert not (tmp_path / "out").exists()
