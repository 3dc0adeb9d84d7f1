"""What an observer sees of the slots, and of a shutdown."""

from __future__ import annotations

from admission import ShutdownReport, SlotStatus, SlotView, Snapshot, TaskId

RUNNING = SlotView("a", SlotStatus.RUNNING, TaskId(1), queue_depth=2, status_for=0.5)
STOPPING = SlotView("b", SlotStatus.TERMINATING, TaskId(2), queue_depth=1, status_for=0.5)
ADMITTING = SlotView("c", SlotStatus.ADMITTING, TaskId(3), queue_depth=0, status_for=0.5)
SNAPSHOT = Snapshot((RUNNING, STOPPING, ADMITTING))


def test_only_slots_with_status_running_count_as_running():
    assert SNAPSHOT.running_count == 1


def test_who_waits_is_counted_over_all_slots():
    assert SNAPSHOT.total_queued == 3


def test_a_slot_is_found_by_its_key():
    assert SNAPSHOT.slot("b") is STOPPING


def test_a_slot_without_work_is_not_there():
    assert SNAPSHOT.slot("z") is None


def test_the_length_is_the_number_of_slots():
    assert len(SNAPSHOT) == 3


def test_a_snapshot_of_nothing_is_empty():
    assert (len(Snapshot()), Snapshot().running_count, Snapshot().total_queued) == (0, 0, 0)


def test_the_statuses_are_these():
    assert list(SlotStatus) == ["idle", "admitting", "running", "terminating"]


def test_a_clean_report_names_nobody():
    report = ShutdownReport(clean=True)
    assert (report.stuck, report.still_inside, report.log_dropped, report.events_dropped) == ((), (), 0, 0)
