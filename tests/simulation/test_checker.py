"""The checker: what it must notice, one tampered log each. A log that is not whole is never a pass."""

from __future__ import annotations

import json

import pytest

from actors.testing import Script, Simulation, Verdict, check, scripted
from actors.testing.checker import main


@pytest.fixture(scope="module")
def whole():
    """The log of two slots, a replacement, a retry and a body that is still inside at the end."""
    with Simulation(4) as simulation:
        supervisor = simulation.supervisor(grace=1).start()
        first = supervisor.submit(scripted(Script(5)), slot="a")
        simulation.advance(2)
        supervisor.submit(scripted(Script(1)), slot="a", policy="replace")
        supervisor.submit(scripted(Script(1)), slot="a", policy="drop_if_running")
        supervisor.submit(scripted(Script(99, ignores_cancel=True)), slot="b")
        first.outcome()
        simulation.advance(10)
        supervisor.shutdown()
        return tuple(simulation.records)


def renumbered(records):
    return [{**record, "seq": number} for number, record in enumerate(records, start=1)]


def without(records, event, which=0):
    found = [record for record in records if record["event"] == event][which]
    return renumbered(record for record in records if record is not found)


def changed(records, event, which=0, **fields):
    found = [record for record in records if record["event"] == event][which]
    return [{**record, **fields} if record is found else record for record in records]


def test_an_honest_log_holds(whole):
    assert check(whole).verdict is Verdict.HOLDS


def test_foreign_records_are_passed_over(whole):
    assert check([{"event": "something else"}, *whole]).verdict is Verdict.HOLDS


def test_lines_out_of_order_are_put_in_order(whole):
    assert check(reversed(whole)).verdict is Verdict.HOLDS


@pytest.mark.parametrize("gone", range(0, 30, 3))
def test_a_missing_record_makes_it_incomplete(whole, gone):
    finding = check(record for record in whole if record["seq"] != gone + 1)
    assert finding.verdict is Verdict.INCOMPLETE
    assert f"records {gone + 1} to {gone + 1} are missing" in str(finding)


def test_a_level_that_was_filtered_out_makes_it_incomplete(whole):
    assert check(record for record in whole if record["event"] != "slot_transition").verdict is Verdict.INCOMPLETE


def test_a_log_that_is_cut_off_is_incomplete(whole):
    assert "does not end with shutdown_finished" in str(check(whole[:-1]))


def test_a_record_that_is_there_twice_is_incomplete(whole):
    assert check([*whole, whole[3]]).verdict is Verdict.INCOMPLETE


def test_no_records_are_incomplete():
    assert check([]).verdict is Verdict.INCOMPLETE


def test_two_supervisors_in_one_log_are_incomplete(whole):
    assert "mixed" in str(check([*whole, {**whole[0], "supervisor": "another"}]))


def test_i1_a_second_body_in_a_slot(whole):
    entered = [record for record in whole if record["event"] == "body_entered" and record["slot"] == "a"]
    finding = check(changed(whole, "body_entered", whole_index(whole, entered[1]), entered_at=entered[0]["entered_at"]))
    assert finding.verdict is Verdict.VIOLATED
    assert "I1: slot 'a'" in str(finding)


def whole_index(records, wanted):
    return [record for record in records if record["event"] == wanted["event"]].index(wanted)


def test_i1_a_body_that_never_left(whole):
    assert "was entered and never left" in str(check(without(whole, "body_left")))


def test_i1_a_body_that_was_never_entered(whole):
    assert "was never entered" in str(check(without(whole, "body_entered")))


def test_i1_a_body_that_left_before_it_was_entered(whole):
    assert "left before it was entered" in str(check(changed(whole, "body_left", left_at=-1.0)))


def test_i2_a_submission_without_an_end(whole):
    finding = check(without(whole, "task_finished"))
    assert finding.verdict is Verdict.VIOLATED
    assert "ended 0 times" in str(finding)


def test_i2_a_submission_that_ended_twice(whole):
    again = next(record for record in whole if record["event"] == "task_finished")
    assert "ended 2 times" in str(check(renumbered([*whole[:-1], again, whole[-1]])))


def test_i3_an_edge_that_is_not_legal(whole):
    assert "is no legal edge" in str(check(changed(whole, "slot_transition", 1, to_phase="idle", from_phase="idle")))


def test_i3_an_edge_that_does_not_start_where_the_last_one_ended(whole):
    assert "(a record is missing)" in str(check(without(whole, "slot_transition", 1)))


def test_the_command_checks_files_and_says_so_by_its_exit_code(whole, tmp_path, capsys):
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("\n".join(map(json.dumps, whole)))
    bad.write_text("\n".join(map(json.dumps, whole[:-1])))
    assert main([str(good)]) == 0
    assert main([str(good), str(bad)]) == 1
    assert "incomplete" in capsys.readouterr().out
