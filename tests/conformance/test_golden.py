"""The recorded scenarios, replayed: each goes here as recorded, or differs only by a rule that is stated."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from tests.conformance.golden.recording import made_of, read
from tests.conformance.golden.replay import FOLDER, RULES, judge, main, recordings, replay
from tests.conformance.golden.stage import perform

FILES = recordings(FOLDER)


def data_of(number):
    return json.loads((FOLDER / f"{number}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("threads", [False, True], ids=["killable", "threads"])
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_it_goes_as_recorded(path, threads):
    result = replay(path, threads=threads)
    assert result.verdict in ("same", "explained"), "\n".join(result.lines())


def test_there_are_recordings():
    assert len(FILES) == 88


def test_nothing_has_to_be_explained_where_bodies_can_be_ended():
    assert {rule for path in FILES for _, rule in replay(path, seeds=(7,)).found} <= {None}


def test_every_rule_is_needed():
    used = {rule for path in FILES for rule in replay(path, threads=True, seeds=(0,)).rules}
    assert used == set(RULES)


def test_only_what_has_to_do_with_a_dropped_body_is_explained():
    for path in FILES:
        result = replay(path, threads=True, seeds=(0,))
        dropped = any(mark.what == "dropped" for mark in read(path).marks)
        assert bool(result.rules) is dropped, path.name


@pytest.mark.parametrize(
    "number",
    [path.stem for path in FILES if any(mark.what == "dropped" for mark in read(path).marks)],
)
@pytest.mark.parametrize("late", [20, 45, 5000])
def test_what_follows_a_thread_that_returns_late_waits_for_it(number, late):
    data = data_of(number)
    starts = {(of["label"], of["attempt"]): of["t_ms"] for of in data["body_marks"] if of["mark"] == "start"}
    for mark in data["body_marks"]:
        if mark["mark"] == "dropped":
            body = next(at["body"] for at in data["scenario"] if at.get("label") == mark["label"] and "body" in at)
            attempt = body[min(mark["attempt"], len(body)) - 1]
            if "cleanup_ms" in attempt:
                continue  # it is late as it is
            stays = mark["t_ms"] - starts[mark["label"], mark["attempt"]] + late
            attempt.update(ignore_cancel=True, sleep_ms=stays)
    result = judge(made_of(data), number, threads=True)
    assert result.verdict == "explained", "\n".join(result.lines())


# -- the comparison can fail: one tampered copy each ---------------------------------------------------------------


def tampered(number, change):
    data = data_of(number)
    assert judge(made_of(deepcopy(data)), number).verdict == "same"
    change(data)
    result = judge(made_of(data), number)
    assert result.verdict == "DIFFERENT"
    assert not result.rules
    return {difference.part for difference, _ in result.found}


def test_another_outcome_is_a_difference():
    assert tampered("007", lambda data: data["outcomes"]["a"].update(kind="failed")) == {"outcome"}


def test_another_kind_of_rejection_is_a_difference():
    assert tampered("008", lambda data: next(rejected(data)).update(rejection="queue_full")) == {"outcome"}


def rejected(data):
    return (outcome for outcome in data["outcomes"].values() if outcome["kind"] == "rejected")


def test_another_exit_code_is_a_difference():
    assert tampered("050", lambda data: data["outcomes"]["a"].update(exit_code=8)) == {"outcome"}


def test_an_outcome_that_is_missing_is_a_difference():
    assert tampered("007", lambda data: data["outcomes"].pop("a")) == {"outcome"}


def test_an_outcome_at_another_time_is_a_difference():
    assert tampered("007", lambda data: data["outcomes"]["a"].update(t_ms=400)) == {"time"}


def test_another_result_of_a_command_is_a_difference():
    assert tampered("034", lambda data: next(removals(data)).update(result=False)) == {"op"}


def test_a_command_that_is_missing_is_a_difference():
    assert tampered("034", lambda data: data["ops"].remove(next(removals(data)))) == {"op"}


def removals(data):
    return (op for op in data["ops"] if op["op"] == "remove" and op["result"] is True)


def test_others_that_are_stuck_are_a_difference():
    assert tampered("092", lambda data: data["ops"][-1].update(stuck=["q1"])) == {"op"}


def test_another_snapshot_is_a_difference():
    assert tampered("011", lambda data: data["snapshots"][0]["slots"][0].update(status="running")) == {"snapshot"}


def test_swapped_marks_in_one_slot_are_a_difference():
    def swap(data):
        marks = data["body_marks"]
        marks[1], marks[2] = {**marks[2], "group": 1, "t_ms": 100}, {**marks[1], "group": 2, "t_ms": 100}

    assert "order" in tampered("007", swap)


def test_swapped_marks_in_two_slots_are_a_difference():
    def swap(data):
        ends = [mark for mark in data["body_marks"] if mark["mark"] == "end"]
        assert ends[0]["slot"] != ends[1]["slot"]
        ends[0]["group"], ends[1]["group"] = ends[1]["group"], ends[0]["group"]

    assert tampered("130", swap) == {"order"}


def test_a_mark_that_is_missing_is_a_difference():
    assert tampered("007", lambda data: data["body_marks"].pop()) == {"mark"}


def test_another_end_of_a_body_is_a_difference():
    assert tampered("007", lambda data: data["body_marks"][-1].update(result="fail")) == {"mark"}


def test_an_event_that_is_missing_is_a_difference():
    assert tampered("001", lambda data: data["event_streams"]["task/a"].pop(2)) == {"event"}


def test_events_in_another_order_are_a_difference():
    assert tampered("011", lambda data: data["event_streams"]["controller/s"].reverse()) == {"event"}


def test_a_chain_that_is_missing_is_a_difference():
    assert tampered("001", lambda data: data["event_streams"].pop("controller/s")) == {"event"}


def test_a_scenario_that_can_not_be_performed_is_a_difference():
    assert tampered("001", lambda data: data["scenario"].insert(1, {"cmd": "dance"})) == {"replay"}


def test_what_is_unstable_is_not_compared():
    data = data_of("107")
    data["body_marks"].clear()
    data["event_streams"].clear()
    assert judge(made_of(data), "107").verdict == "same"


def test_no_difference_is_explained_for_a_thread_that_was_not_dropped():
    data = data_of("007")
    data["outcomes"]["a"]["kind"] = "force_aborted"
    assert judge(made_of(data), "007", threads=True).verdict == "DIFFERENT"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data["outcomes"]["a"].update(kind="completed"), id="outcome"),
        pytest.param(lambda data: data["ops"][-1].update(result="runtime_grace_exceeded"), id="op"),
        pytest.param(lambda data: data["event_streams"]["runtime"].pop(), id="event"),
        pytest.param(lambda data: data["body_marks"][0].update(label="q1", attempt=9), id="mark"),
    ],
)
def test_a_dropped_body_does_not_explain_everything(change):
    data = data_of("032")
    change(data)
    assert judge(made_of(data), "032", threads=True).verdict == "DIFFERENT"


# -- commands that no recording here has ---------------------------------------------------------------------------


def work(label, milliseconds, **more):
    body = [{"sleep_ms": milliseconds, "ignore_cancel": False, "result": "ok"}]
    return {"cmd": "submit", "label": label, "task_name": f"name-{label}", "policy": "queue", "body": body, **more}


def performed(*commands, grace_ms=100):
    scenario = [{"cmd": "configure", "grace_ms": grace_ms}, *commands, {"cmd": "shutdown"}]
    empty = {"outcomes": {}, "ops": [], "snapshots": [], "body_marks": [], "event_streams": {}}
    return perform(made_of({"id": "", "name": "", "scenario": scenario, **empty}))


def test_work_is_withdrawn_by_name():
    account = performed(
        work("a", -1),
        work("b", -1),
        {"cmd": "list"},
        {"cmd": "remove_by_task", "task_name": "name-a"},
        {"cmd": "cancel_by_task", "task_name": "name-b"},
        {"cmd": "cancel_by_task", "task_name": "nobody"},
        {"cmd": "list"},
    )
    results = [op.result for op in account.ops if op.op != "submit"]
    assert results == [["name-a", "name-b"], True, True, False, [], "ok"]


def test_a_listing_may_name_labels_or_tasks():
    listing = {"op": "list", "result": ["a"], "t_ms": 0}
    data = {"id": "", "name": "", "scenario": [work("a", 1)], "outcomes": {}, "ops": [listing], "snapshots": []}
    recording = made_of({**data, "body_marks": [], "event_streams": {}})
    assert recording.ops[0].result == ["name-a"]


def test_a_command_in_the_background_is_answered_later():
    account = performed(
        work("a", 500, body=[{"sleep_ms": 80, "ignore_cancel": True, "result": "ok"}]),
        {"cmd": "cancel", "label": "a", "bg": True},
        {"cmd": "cancel", "label": "a", "bg": True, "timeout_ms": 20},
        {"cmd": "remove", "label": "a", "bg": True},
        {"cmd": "sleep", "ms": 90},
    )
    results = [op.result for op in account.ops if op.op in ("cancel", "remove")]
    assert results == [True, "task_termination_timeout", False]


def test_waiting_for_all_ends_at_its_time():
    account = performed(work("a", 500), {"cmd": "wait_all", "ms": 100}, {"cmd": "wait_all", "ms": 900})
    assert account.outcomes["a"].kind == "completed"
    assert account.ops[-1].ms == pytest.approx(500)


def test_work_is_added_without_a_slot():
    account = performed(
        work("a", 50, cmd="add"),
        work("b", 50, cmd="add", task_name="name-a"),
        {"cmd": "snapshot"},
        {"cmd": "sleep", "ms": 90},
    )
    assert [op.result for op in account.ops] == [True, "task_already_exists", "ok"]
    assert account.snapshots[0]["slots"] == []
    assert [event[0] for event in account.streams["task/a"]][:2] == ["task_add_requested", "task_added"]
    assert [mark.slot for mark in account.marks] == [None, None]


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for number in ("001", "061"):
        (tmp_path / f"{number}.json").write_text(json.dumps(data_of(number)))
    return tmp_path


def test_the_command_says_how_each_file_went(folder, capsys):
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 same, 0 explained, 0 different"
    assert main([str(folder), "--threads"]) == 0
    assert "061.json timeout_ignoring_body: explained by not ended, overdue" in capsys.readouterr().out


def test_the_command_fails_for_a_file_that_differs(folder, capsys):
    data = data_of("001")
    data["outcomes"]["a"]["kind"] = "fatal"
    (folder / "002.json").write_text(json.dumps(data))
    assert main([str(folder)]) == 1
    out = capsys.readouterr().out
    assert "NOT EXPLAINED: outcome a: recorded fatal; here completed" in out
    assert "002.json idle_queue: DIFFERENT" in out


def test_the_command_fails_for_a_file_that_can_not_be_read(folder, capsys):
    (folder / "003.json").write_text("{}")
    assert main([str(folder)]) == 1
    assert "003.json ?: DIFFERENT" in capsys.readouterr().out


def test_the_command_fails_for_an_empty_folder(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert "no recordings" in capsys.readouterr().out


def test_the_report_for_programs(folder, capsys):
    assert main([str(folder), "--threads", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["same"], report["explained"], report["different"]) == (1, 1, 0)
    assert [file["verdict"] for file in report["files"]] == ["same", "explained"]
    assert {difference["rule"] for difference in report["files"][1]["differences"]} == {"not ended", "overdue"}
