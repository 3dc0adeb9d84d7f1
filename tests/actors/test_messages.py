"""What becomes of a message that nobody will ever handle: whatever it stands for is settled."""

from __future__ import annotations

import threading
from contextvars import copy_context

import pykka
import pytest

from actors import Ended, Submit, TaskHandle, messages
from actors.budget import Intake
from actors.desk import make_ticket
from actors.observers.forward import Forwarder
from actors.runtime import deliver
from admission import AdmissionPolicy, Cancelled, RejectionKind, Submission, TaskId, TaskSpec
from admission.outcome import Rejected
from tests.actors.support import SOON, eventually, noop


class Listener(pykka.ThreadingActor):
    def __init__(self):
        super().__init__()
        self.messages = []
        self.ended = threading.Event()

    def on_receive(self, message):
        self.messages.append(message)
        self.ended.set()


@pytest.fixture
def listener(runtime):
    return Listener.start()


@pytest.fixture
def stopped(registry):
    registry.stop(timeout=SOON)
    return registry


@pytest.fixture
def handle(runtime):
    return TaskHandle(TaskId.allocate(), "k", runtime, None)


@pytest.fixture
def ticket(runtime, handle, listener):
    return messages.Ticket(
        id=handle.id,
        policy=AdmissionPolicy.QUEUE,
        name="k",
        slot="k",
        spec=TaskSpec.once(noop),
        handle=handle,
        context=None,
        notify=Forwarder(runtime, listener),
        token=("any", "thing"),
        intake=None,
    )


def taken():
    intake = Intake(1)
    assert intake.take()
    return intake


@pytest.mark.parametrize("make", [messages.Admit, messages.Register], ids=lambda kind: kind.__name__)
def test_a_submission_on_its_way_is_turned_away(stopped, ticket, listener, make):
    ticket.intake = intake = taken()
    deliver(stopped, make(ticket))
    assert ticket.handle.outcome(SOON).kind is RejectionKind.SHUTTING_DOWN
    assert intake.inside == 0
    assert listener._actor_weakref().ended.wait(SOON)
    assert listener._actor_weakref().messages == [Ended(("any", "thing"), ticket.id, ticket.handle.outcome())]


@pytest.mark.parametrize(
    ("make", "outcome"),
    [
        (messages.Finished, Cancelled()),
        (messages.Rejection, Rejected(RejectionKind.SLOT_BUSY, "the slot is running")),
    ],
    ids=["Finished", "Rejection"],
)
def test_an_outcome_on_its_way_arrives(stopped, ticket, make, outcome):
    deliver(stopped, make(ticket, outcome))
    assert ticket.handle.outcome(SOON) == outcome


def test_a_submission_that_comes_too_late_is_turned_away(runtime, stopped, listener):
    intake = taken()
    ticket = make_ticket(Submission(noop, slot="k"), runtime, None, copy_context(), intake=intake)
    deliver(stopped, ticket)
    assert ticket.handle.outcome(SOON).kind is RejectionKind.SHUTTING_DOWN
    assert intake.inside == 0
    deliver(stopped, Submit(Submission(noop, slot="k"), notify=listener, token=("t",)))
    assert listener._actor_weakref().ended.wait(SOON)
    (ended,) = listener._actor_weakref().messages
    assert (ended.token, ended.id, ended.outcome.kind) == (("t",), None, RejectionKind.SHUTTING_DOWN)


def test_one_that_nobody_waits_for_just_vanishes(stopped, listener):
    listener.stop(timeout=SOON)
    deliver(stopped, Submit(Submission(noop, slot="k"), notify=listener))
    deliver(stopped, messages.Released(TaskId.allocate()))


def test_nothing_more_is_put_into_the_queue_towards_an_actor_that_has_stopped(runtime, listener):
    forwarder = Forwarder(runtime, listener)
    listener.stop(timeout=SOON)
    forwarder.put("finds out")
    assert eventually(lambda: forwarder._ended)
    forwarder.put("is dropped")
    assert forwarder._calls._mailbox.empty()


def test_asked_it_is_answered_that_the_actor_is_dead(stopped):
    with pytest.raises(pykka.ActorDeadError):
        stopped.ask(Submit(Submission(noop, slot="k")), timeout=SOON)


def test_a_bare_spec_is_a_submission_to_a_slot_of_its_own(registry):
    handle = registry.ask(Submit(TaskSpec.once(noop)), timeout=SOON)
    assert handle.slot == f"noop{handle.id}"
