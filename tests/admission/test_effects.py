"""The order of effects inside one turn."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from admission import effects as fx
from admission.effects import Cause, Effect, Phase, Rank, TimerKind, in_order
from admission.events import EventKind
from admission.outcome import Cancelled, RejectionKind
from tests.admission.support import entry, show

WHO = entry(1)
A_TURN: list[Effect] = [
    fx.SetCancelFlag(Cause.REMOVE),
    fx.ReturnPermit(WHO.id, 1),
    fx.ReturnUnit(),
    fx.Emit(EventKind.TASK_REMOVE_REQUESTED, WHO),
    fx.Edge(Phase.IDLE, Phase.ADMITTING),
    fx.SetTimer(TimerKind.GRACE, 1.0),
    fx.CancelTimer(TimerKind.PAUSE),
    fx.AcquirePermit(1),
    fx.BeginAttempt(1),
    fx.StopAttempt(Cause.REMOVE),
    fx.KillAttempt(),
    fx.StartRun(WHO, 1),
    fx.ClaimRun(Cause.REMOVE),
    fx.DrainRun(1.0),
    fx.AnswerWithdrawal(WHO.id, "op", claimed=True),
    fx.Reject(WHO, RejectionKind.SLOT_BUSY, "busy"),
    fx.Finish(WHO, Cancelled()),
    fx.ReleaseRun(),
    fx.Vacate(WHO.id),
    fx.Register(WHO),
]
"""One effect of every kind: flags, what is given back, events, work, answers, rejections, the end, the next owner."""


def test_there_is_no_other_kind_of_effect():
    assert {type(effect) for effect in A_TURN} == set(get_args(Effect))


@given(st.permutations(A_TURN))
def test_a_turn_is_carried_out_in_the_order_of_its_ranks(effects):
    ranks = [effect.rank for effect in in_order(effects)]
    assert ranks == [effect.rank for effect in A_TURN]
    assert set(ranks) == set(Rank)


@given(st.lists(st.sampled_from(A_TURN)))
def test_effects_of_one_rank_stay_in_the_order_in_which_they_were_decided(effects):
    for rank in Rank:
        before = [show(effect) for effect in effects if effect.rank is rank]
        assert [show(effect) for effect in in_order(effects) if effect.rank is rank] == before
