"""For the whole suite: Hypothesis, and the phase edges that were seen."""

from __future__ import annotations

import pytest
from hypothesis import settings

from actors.publisher import Publisher
from admission.effects import Phase
from admission.events import EventKind
from admission.slot import LEGAL_EDGES

settings.register_profile("slotkeeper", deadline=None)  # a busy machine is no failure; pytest-timeout bounds a test
settings.load_profile("slotkeeper")

seen: set[tuple[Phase, Phase]] = set()
"""Every change of phase that any slot has reported in this session."""


def watch_edges():
    publish = Publisher.publish

    def watched(self, kind, *args, **kwargs):
        if kind is EventKind.SLOT_TRANSITION:
            fields = args[2] if len(args) > 2 else kwargs["fields"]
            seen.add((Phase(fields["from_phase"]), Phase(fields["to_phase"])))
        return publish(self, kind, *args, **kwargs)

    Publisher.publish = watched


watch_edges()


def pytest_sessionfinish(session, exitstatus):
    """After the whole suite: the edges that were seen are exactly the legal ones."""
    config = session.config
    whole = config.args_source is config.ArgsSource.TESTPATHS and not (config.option.keyword or config.option.lf)
    if exitstatus == pytest.ExitCode.OK and whole and seen != LEGAL_EDGES:
        missing, illegal = LEGAL_EDGES - seen, seen - LEGAL_EDGES
        text = f"\nphase edges that no test has shown: {sorted(missing)}; that are not legal: {sorted(illegal)}\n"
        config.get_terminal_writer().write(text)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
