"""The structured log: where records go, at which level, and what a user's texts may do to them."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from actors import Supervisor
from actors.observers.log import clean, open_sink
from actors.publisher import LEVELS, level_of
from admission import EventKind, OutcomeKind
from tests.actors.support import noop


@pytest.fixture(autouse=True)
def _nothing_is_configured():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def json_logger(file, **options):
    return structlog.wrap_logger(
        structlog.WriteLogger(file), processors=[structlog.processors.JSONRenderer()], **options
    )


def records(file):
    return [json.loads(line) for line in file.getvalue().splitlines()]


def run_one(**options):
    with Supervisor(grace=1, **options) as supervisor:
        supervisor.submit(noop, slot="s").outcome(2)


@pytest.mark.parametrize(
    "wrapper",
    [structlog.BoundLogger, structlog.make_filtering_bound_logger(logging.DEBUG), structlog.stdlib.BoundLogger],
)
def test_an_injected_logger_that_does_not_filter_gets_every_record(wrapper):
    file = io.StringIO()
    run_one(logger=json_logger(file, wrapper_class=wrapper))
    written = records(file)
    assert [record["seq"] for record in written] == list(range(1, len(written) + 1))
    assert written[-1]["event"] == "shutdown_finished"
    assert {record["schema"] for record in written} == {1}
    assert len({record["supervisor"] for record in written}) == 1


def test_below_the_level_of_an_injected_logger_nothing_is_written_and_the_numbers_show_it():
    file = io.StringIO()
    run_one(logger=json_logger(file, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)))
    written = records(file)
    assert {record["event"] for record in written}.isdisjoint({"slot_transition", "body_entered", "body_left"})
    assert [record["seq"] for record in written] != list(range(1, len(written) + 1))


def test_a_configured_structlog_is_used():
    file = io.StringIO()
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.WriteLoggerFactory(file)
    )
    run_one()
    assert records(file)[-1]["event"] == "shutdown_finished"


def test_otherwise_records_go_to_the_standard_library_and_carry_their_fields(caplog):
    caplog.set_level(logging.DEBUG, logger="slotkeeper")
    run_one()
    own = [record for record in caplog.records if record.name == "slotkeeper"]
    assert own[-1].slotkeeper["seq"] == len(own)
    assert own[-1].getMessage().startswith("shutdown_finished schema=1 ")


def test_unasked_nothing_is_printed(capfd):
    with Supervisor(grace=0) as supervisor:
        for _ in range(2):
            supervisor.submit(lambda ctx: 1 / 0, slot="s")
        supervisor.join(2)
    assert capfd.readouterr() == ("", "")


def test_the_level_is_taken_once_at_the_start():
    logger = logging.getLogger("slotkeeper")
    assert open_sink().level == logging.WARNING == logger.getEffectiveLevel()


def test_every_kind_has_a_level():
    assert set(LEVELS) == set(EventKind)


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        (OutcomeKind.COMPLETED, logging.INFO),
        (OutcomeKind.CANCELLED, logging.INFO),
        (OutcomeKind.FAILED, logging.WARNING),
        (OutcomeKind.FORCE_ABORTED, logging.WARNING),
        (OutcomeKind.FATAL, logging.ERROR),
        (OutcomeKind.PANICKED, logging.ERROR),
    ],
)
def test_how_a_task_finished_decides_the_level_of_its_record(outcome, level):
    assert level_of(EventKind.TASK_FINISHED, {"outcome_kind": outcome}) == level


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\x00\x1b[2J", "a\\nb\\x00\\x1b[2J"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("x" * 501, "x" * 500 + "... (501 characters)"),
    ],
)
def test_a_users_text_is_one_bounded_line(text, shown):
    assert clean(text) == shown


def test_a_key_with_control_characters_is_one_line_in_the_log():
    file = io.StringIO()
    with Supervisor(grace=1, logger=json_logger(file)) as supervisor:
        supervisor.submit(noop, slot="a\nb").outcome(2)
    assert {record["slot"] for record in records(file) if "slot" in record} == {"a\\nb"}


def test_a_handler_that_raises_loses_its_record_and_nothing_else():
    class Hostile:
        def __getattr__(self, name):
            raise AttributeError(name) if name.startswith("is") else RuntimeError(name)

    with Supervisor(grace=1, logger=Hostile()) as supervisor:
        assert supervisor.submit(noop, slot="s").outcome(2).label is OutcomeKind.COMPLETED
    assert supervisor.shutdown().log_dropped == 0
