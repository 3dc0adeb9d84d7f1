"""The verification itself: whatever is wrong or missing in what a run has left, it says so and the command exits 1."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import partial

import pytest

from docs.examples.demo.history import load
from docs.examples.demo.verify import LEAST, verify
from tests.demo.support import TINY, read_lines, write_lines

BODIES = ("body_entered", "body_left")


def violations(output):
    return re.findall(r"^violation: (.*)$", output, re.MULTILINE)


def rewrite(path, change):
    """Replace the objects of a file by what `change` makes of them."""
    objects = read_lines(path)
    write_lines(path, change(objects))


def without_record(run, wanted, *, renumber=True):
    """Take the first record out that is `wanted`, and close the gap, so that only its absence tells."""

    def change(records):
        gone = next(record for record in records if wanted(record))
        left = [record for record in records if record is not gone]
        return [{**record, "seq": seq} for seq, record in enumerate(left, 1)] if renumber else left

    rewrite(run.layout.log, change)


def twice_in_log(run, event):
    def change(records):
        one = next(record for record in records if record["event"] == event)
        return [{**record, "seq": seq} for seq, record in enumerate([one, *records], 1)]

    rewrite(run.layout.log, change)


def edit_first(path, wanted, **fields):
    def change(objects):
        one = next(each for each in objects if wanted(each))
        return [{**each, **fields} if each is one else each for each in objects]

    rewrite(path, change)


def is_event(*events):
    return lambda record: record["event"] in events


def is_end(outcome):
    return lambda record: record["event"] == "task_finished" and record["outcome_kind"] == outcome


def sql(run, slot, statement):
    with closing(sqlite3.connect(run.layout.index(slot))) as db, db:
        db.execute(statement)


def second_body_in_ledger(run):
    stay = next(each for each in read_lines(run.layout.ledger) if each["slot"] == "src")
    middle = (stay["entered"] + stay["left"]) / 2
    with run.layout.ledger.open("a") as book:
        book.write(f'{{"slot": "src", "rev": "r99", "entered": {middle}, "left": {middle + 9}}}\n')


def second_body_in_log(run):
    """Let the last body in `src` have entered while the one before was inside; ledger and numbers stay as they are."""

    def change(records):
        bodies = [record for record in records if record.get("slot") == "src" and record["event"] in BODIES]
        *_, before, late, _last = bodies
        assert (before["event"], late["event"]) == ("body_left", "body_entered")
        return [{**record, "entered_at": before["left_at"] - 1e-6} if record is late else record for record in records]

    rewrite(run.layout.log, change)


def old_revision(run):
    sql(run, "src", "UPDATE stamp SET rev = 'r2'")


def document_missing(run):
    sql(run, "src", "DELETE FROM documents WHERE rowid = 1")


def nothing_indexed(run):
    sql(run, "src", "DELETE FROM documents")
    sql(run, "src", "UPDATE stamp SET documents = 0")


def no_index(run):
    run.layout.index("src").unlink()


def broken_index(run):
    run.layout.index("src").write_bytes(b"no database" * 100)


def ledger_line_missing(run):
    rewrite(run.layout.ledger, lambda stays: stays[1:])


def body_still_inside_by_ledger(run):
    run.layout.inside("src").touch()


def other_times_in_ledger(run):
    rewrite(run.layout.ledger, lambda stays: [{**stays[0], "entered": 0.0}, *stays[1:]])


def file_missing(name, run):
    getattr(run.layout, name).unlink()


def cut_off(name, run):
    path = getattr(run.layout, name)
    path.write_bytes(path.read_bytes()[:-5])


def empty(name, run):
    getattr(run.layout, name).write_bytes(b"")


def log_without_its_end(run):
    rewrite(run.layout.log, lambda records: records[:-1])


def log_without_its_beginning(run):
    rewrite(run.layout.log, lambda records: records[3:])


def records_swapped(run):
    rewrite(run.layout.log, lambda records: [records[0], records[2], records[1], *records[3:]])


def another_supervisor(run):
    edit_first(run.layout.log, is_event("slot_transition"), supervisor="other")


def more_changes_than_submissions(run):
    with run.history.open("a") as history:
        history.write('{"at": 9, "slot": "src", "rev": "r99"}\n')


def a_change_the_history_lacks(run):
    rewrite(run.history, lambda changes: [change for change in changes if change["rev"] != "r1"])


def an_end_of_nothing(run):
    rewrite(run.layout.outcomes, lambda outcomes: outcomes[1:])


TAMPERED = [
    (old_revision, "src: its index carries r2, not its newest revision r13"),
    (document_missing, r"src: its index has \d+ documents, \d+ by its stamp"),
    (nothing_indexed, "src: its index has 0 documents, 0 by its stamp"),
    (no_index, "src: there is no index"),
    (broken_index, "src: its index can not be read"),
    (second_body_in_ledger, r"ledger: src@r99 entered .* s before r\d+ had left"),
    (second_body_in_log, r"log: src@r13 entered 0\.000001 s before r\d+ had left"),
    (ledger_line_missing, r"ledger: .* was inside and is missing"),
    (body_still_inside_by_ledger, "ledger: a body has not left slot src"),
    (other_times_in_ledger, "ledger: .* was inside at other times than the log says"),
    (partial(without_record, wanted=is_event("slot_transition"), renumber=False), r"log: a gap, seq \d+ is missing"),
    (partial(without_record, wanted=is_event("body_left"), renumber=False), r"log: a gap, seq \d+ is missing"),
    (log_without_its_beginning, "log: a gap, seq 1 to 3 is missing"),
    (log_without_its_end, "log: it ends with .*, not with shutdown_finished"),
    (records_swapped, "log: seq 2 comes after 3"),
    (another_supervisor, r"log: seq \d+ is of another supervisor, other"),
    (partial(without_record, wanted=is_event("body_left")), "log: .* has body_entered and no body_left"),
    (partial(without_record, wanted=is_event("body_entered")), "log: .* has body_left and no body_entered"),
    (partial(twice_in_log, event="body_entered"), "log: .* has body_entered twice"),
    (partial(without_record, wanted=is_end("outcome_completed")), "log: .* has 0 ends, not one"),
    (partial(without_record, wanted=is_end("outcome_cancelled")), "log: .* has 0 ends, not one"),
    (partial(without_record, wanted=is_event("submission_rejected")), "log: .* has 0 ends, not one"),
    (partial(twice_in_log, event="task_finished"), "log: .* has 2 ends, not one"),
    (
        lambda run: edit_first(run.layout.log, is_end("outcome_completed"), outcome_kind="outcome_failed"),
        "log: .* ended as outcome_failed, by its handle .* as outcome_completed",
    ),
    (
        lambda run: edit_first(run.layout.outcomes, lambda each: each["rejection"], rejection="queue_full"),
        r"src@r\d+ ended as queue_full",
    ),
    (
        lambda run: edit_first(run.layout.outcomes, lambda each: True, outcome=None),
        "src@r1 has no outcome",
    ),
    (
        lambda run: edit_first(
            run.layout.outcomes, lambda each: each["task"] == "src@r13", outcome="outcome_cancelled"
        ),
        "src@r13 is its slot's newest and ended as outcome_cancelled",
    ),
    (
        lambda run: edit_first(run.layout.log, is_event("shutdown_finished"), still_inside=["src@r13"]),
        "log: bodies were still inside when it ended",
    ),
    (
        lambda run: edit_first(run.layout.log, is_event("slot_transition"), event="runtime_failure"),
        "log: runtime_failure at seq",
    ),
    (
        lambda run: edit_first(run.layout.log, is_event("body_left"), left_at=0.0),
        "log: .* left before it entered",
    ),
    (
        lambda run: edit_first(run.layout.log, is_event("body_left"), left_at=None),
        r"demo\.jsonl, line \d+: a record without what it needs",
    ),
    (more_changes_than_submissions, "src@r99 was submitted 0 times, not once"),
    (a_change_the_history_lacks, "src@r1 is not in the history"),
    (an_end_of_nothing, r"log: submission \d+ ended and was never made"),
    (partial(cut_off, "log"), r"demo\.jsonl, line \d+: cut off"),
    (partial(cut_off, "ledger"), r"ledger\.jsonl, line \d+: cut off"),
    (partial(cut_off, "outcomes"), r"outcomes\.jsonl, line \d+: cut off"),
    (partial(empty, "log"), "log: it ends with nothing, not with shutdown_finished"),
    (partial(empty, "ledger"), "ledger: .* was inside and is missing"),
    (partial(empty, "outcomes"), "src@r1 was submitted 0 times, not once"),
    (partial(file_missing, "log"), r"demo\.jsonl can not be read: No such file"),
    (partial(file_missing, "ledger"), r"ledger\.jsonl can not be read: No such file"),
    (partial(file_missing, "outcomes"), r"outcomes\.jsonl can not be read: No such file"),
]


def test_a_run_that_nobody_touched_passes(a_run, capsys):
    assert a_run.verify() == 0

    output = capsys.readouterr().out
    assert "newest revision in the index: 3 of 3 slots" in output
    assert "overlaps: 0" in output
    assert output.endswith("everything holds\n")


@pytest.mark.parametrize(("tamper", "violation"), TAMPERED)
def test_what_is_wrong_or_missing_fails(a_run, capsys, tamper, violation):
    tamper(a_run)

    assert a_run.verify() == 1
    assert any(re.search(violation, line) for line in violations(capsys.readouterr().out))


@pytest.mark.parametrize("tamper", [old_revision, second_body_in_log, body_still_inside_by_ledger])
def test_each_check_stands_by_itself(a_run, capsys, tamper):
    tamper(a_run)

    assert a_run.verify() == 1
    output = capsys.readouterr().out
    assert len(violations(output)) == 1
    assert output.endswith("1 violation\n")


@pytest.mark.parametrize("tamper", [second_body_in_ledger, second_body_in_log])
def test_an_overlap_is_counted(a_run, capsys, tamper):
    tamper(a_run)
    a_run.verify()

    overlaps = re.search(r"overlaps: (\d+)", capsys.readouterr().out)
    assert overlaps is not None
    assert int(overlaps[1]) > 0


def test_the_figures_add_up(a_run):
    verdict = verify(load(a_run.history), a_run.layout)

    ends = verdict.completed, verdict.superseded, verdict.cancelled_midway, verdict.cancelled_before, verdict.otherwise
    assert sum(ends) == verdict.submissions == len(TINY)
    assert verdict.log_stays == verdict.ledger_stays == verdict.completed + verdict.cancelled_midway


def test_a_run_in_which_nothing_was_replaced_shows_nothing(a_run):
    verdict = verify(load(a_run.history), a_run.layout, LEAST)

    assert len(verdict.violations) == 2
    assert all("shows nothing" in violation for violation in verdict.violations)
