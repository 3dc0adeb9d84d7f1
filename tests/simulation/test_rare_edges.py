"""Phase edges that need an order of steps that hardly ever comes up."""

from __future__ import annotations

from actors import Shutdown
from actors.testing import Script, Simulation, Verdict, check, scripted
from admission import RejectionKind, TaskSpec


def test_a_pending_cancellation_is_closed_where_a_drained_slots_owner_is_refused():
    seen = 0
    for seed in range(300):
        simulation = Simulation(seed)
        with simulation.supervisor(grace=1) as supervisor:
            supervisor.submit(TaskSpec.once(scripted(Script(seconds=9)), name="taken"), slot="elsewhere")
            simulation.run_until_idle()
            refused = supervisor.submit(TaskSpec.once(scripted(Script()), name="taken"), slot="k")
            replacement = supervisor.submit(scripted(Script()), slot="k", policy="replace")
            supervisor.registry.tell(Shutdown())  # nothing of these has been handled yet: any order is possible
        edges = {
            (record["from_phase"], record["to_phase"])
            for record in simulation.records
            if record["event"] == "slot_transition" and record["slot"] == "k"
        }
        seen += ("cancel_pending", "closed") in edges
        assert refused.outcome().kind in (RejectionKind.ALREADY_EXISTS, RejectionKind.SHUTTING_DOWN)
        assert replacement.outcome().kind in (RejectionKind.ALREADY_EXISTS, RejectionKind.SHUTTING_DOWN)
        finding = check(simulation.records)
        assert finding.verdict is Verdict.HOLDS, finding
    assert seen > 0
