"""Closed vocabularies: a member is the string that stands in logs."""

from __future__ import annotations

import pytest

from admission.effects import Cause, Phase, TimerKind
from admission.events import BackoffSource, EventKind
from admission.labels import Label
from admission.outcome import OutcomeKind, RejectionKind
from admission.policy import AdmissionPolicy
from admission.run import RunPhase
from admission.snapshot import SlotStatus

VOCABULARIES = [
    AdmissionPolicy,
    BackoffSource,
    Cause,
    EventKind,
    OutcomeKind,
    Phase,
    RejectionKind,
    RunPhase,
    SlotStatus,
    TimerKind,
]


class Colour(Label):
    RED = "red"


@pytest.mark.parametrize("label", ["red", Colour.RED])
def test_a_member_is_its_label(label):
    assert label == Colour.RED
    assert f"{Colour.RED}" == label


@pytest.mark.parametrize("label", ["red", Colour.RED])
@pytest.mark.parametrize("key", ["red", Colour.RED])
def test_a_member_and_its_label_are_the_same_key(key, label):
    assert {key: 1}[label] == 1


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_labels_are_plain_words(vocabulary):
    assert issubclass(vocabulary, Label)
    assert all(member.replace("_", "").isalpha() and member.islower() for member in vocabulary)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_cancelled_is_written_with_two_l_and_nothing_speaks_of_a_controller(vocabulary):
    assert not any("canceled" in member or "controller" in member for member in vocabulary)
