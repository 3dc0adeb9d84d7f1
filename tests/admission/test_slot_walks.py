"""Random sequences of messages to one slot, as a registry and an owner's run could send them, strays included."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admission import effects as fx
from admission.effects import Cause, Phase
from admission.identity import TaskId
from admission.policy import AdmissionPolicy
from admission.rules import Rules
from admission.slot import LEGAL_EDGES, SlotMachine, Standing
from tests.admission.support import entry
from tests.strategies import policies

STEPS = ["submit", "submit", "registered", "refused", "withdraw", "withdraw", "finished", "released", "drain"]
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), max_size=40)
limits = st.none() | st.integers(0, 3)


class Walk:
    """Everything around one slot; checks after every message what must always hold. A number picks among choices."""

    def __init__(self, max_queue):
        self.slot = SlotMachine(Rules(max_queue=max_queue))
        self.phase = Phase.ABSENT
        self.submitted = 0
        self.units = 0
        self.over = False  # the owner has its outcome, its body is inside
        self.claimed = False
        self.ends: Counter[int] = Counter()
        self.asked = 0
        self.answers: Counter[object] = Counter()

    def take(self, step, number):
        getattr(self, step)(number)
        self.check()

    def submit(self, number):
        policy = list(AdmissionPolicy)[number % 3]
        unit = number < 9
        if self.slot.needs_unit(policy):
            self.units += unit
        self.submitted += 1
        self.carry_out(lambda: self.slot.submit(entry(self.submitted, policy), unit=unit))

    def registered(self, number):
        self.carry_out(lambda: self.slot.registered(self.someone(number), epoch=1))

    def refused(self, number):
        owner: Any = self.slot.owner
        effects = self.carry_out(lambda: self.slot.refused(self.someone(number)))
        if effects is not None:
            self.ends[owner.id] += 1

    def withdraw(self, number):
        standing = Standing.OVER if self.over else Standing.CLAIMED if self.claimed else Standing.FREE
        self.asked += 1
        cause = Cause.REMOVE if number % 2 else Cause.CANCEL
        self.carry_out(lambda: self.slot.withdraw(self.someone(number), self.asked, cause, standing))

    def finished(self, number):
        if self.over:
            return  # a run has one outcome
        owner: Any = self.slot.owner
        lingering = number % 3 == 0
        expected = self.phase in (Phase.RUNNING, Phase.TERMINATING)
        self.carry_out(lambda: self.slot.finished(lingering=lingering))
        self.over = expected and lingering
        if expected:
            self.ends[owner.id] += 1

    def released(self, _number):
        if self.over or self.phase is not Phase.TERMINATING:  # a body is released once, after the outcome
            self.carry_out(self.slot.released)

    def drain(self, number):
        if number == 0:  # seldom: little happens afterwards
            self.carry_out(lambda: self.slot.drain(1.0))

    def someone(self, number):
        """Mostly the owner, else anybody."""
        owner = self.slot.owner
        return owner.id if owner is not None and number < 6 else TaskId(max(self.submitted - number + 6, 1))

    def carry_out(self, decide):
        before = self.slot.owner
        effects = decide()
        if effects is None:
            return None
        if self.slot.owner is not before:
            self.over = self.claimed = False
        for effect in fx.in_order(effects):
            match effect:
                case fx.Edge(start, end):
                    assert (start, end) in LEGAL_EDGES
                    assert start is self.phase
                    self.phase = end
                case fx.ReturnUnit():
                    self.units -= 1
                case fx.Reject(who):
                    self.ends[who.id] += 1
                case fx.AnswerWithdrawal(_, op):
                    self.answers[op] += 1
                case fx.ClaimRun() | fx.DrainRun() | fx.StartRun(cancelled=True):
                    self.claimed = True
        return effects

    def check(self):
        slot = self.slot
        assert slot.phase is self.phase  # every change of phase has its edge
        assert self.units == len(slot.line)
        assert (slot.owner is None) == (self.phase in (Phase.ABSENT, Phase.IDLE, Phase.CLOSED))
        assert all(each is not slot.owner for each in slot.line)
        open_ids = {each.id for each in slot.line} | ({slot.owner.id} if slot.owner and not self.over else set())
        assert open_ids == set(range(1, self.submitted + 1)) - set(self.ends)
        assert len(self.answers) + len(slot.kept) == self.asked

    def end(self):
        self.carry_out(lambda: self.slot.drain(1.0))
        if self.slot.owner is not None:
            self.registered(0)
            self.finished(1)
            self.released(0)
        self.check()


@given(limits, steps)
def test_edges_are_legal_and_joined_units_balance_and_nobody_is_in_two_places(max_queue, walk):
    around = Walk(max_queue)
    for step, number in walk:
        around.take(step, number)


@given(limits, steps)
def test_everybody_ends_once_and_every_withdrawal_is_answered_once(max_queue, walk):
    around = Walk(max_queue)
    for step, number in walk:
        around.take(step, number)
    around.end()
    assert around.phase in (Phase.CLOSED, Phase.ABSENT)
    assert around.ends == Counter(range(1, around.submitted + 1))
    assert around.answers == Counter(range(1, around.asked + 1))
    assert around.units == 0


@given(limits, steps, policies)
def test_what_is_said_to_need_a_unit_makes_the_line_longer_by_one(max_queue, walk, policy):
    around = Walk(max_queue)
    for step, choice in walk:
        around.take(step, choice)
    slot = around.slot
    needed, before = slot.needs_unit(policy), len(slot.line)
    slot.submit(entry(99, policy))
    assert len(slot.line) - before == needed
