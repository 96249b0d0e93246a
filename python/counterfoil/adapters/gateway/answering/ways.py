"""Makes the ways of answering of a gateway that has a replay log, and gives each the parts that it needs.

Made once by `answering`, which chooses among them.
"""

from __future__ import annotations

import msgspec

from counterfoil.adapters.gateway.answering.asking import Asking
from counterfoil.adapters.gateway.answering.call_making import CallMaking
from counterfoil.adapters.gateway.answering.call_runs import CallRuns
from counterfoil.adapters.gateway.answering.call_way import CallWay
from counterfoil.adapters.gateway.answering.delete_way import DeleteWay
from counterfoil.adapters.gateway.answering.get_way import GetWay
from counterfoil.adapters.gateway.answering.initialize_way import InitializeWay
from counterfoil.adapters.gateway.answering.note_way import NoteWay
from counterfoil.adapters.gateway.answering.observed_way import ObservedWay
from counterfoil.adapters.gateway.calls.closing import Closings
from counterfoil.adapters.gateway.calls.open_calls import OpenCalls
from counterfoil.adapters.gateway.exchanges.elsewhere import Elsewhere
from counterfoil.adapters.gateway.exchanges.gate import Gate
from counterfoil.adapters.gateway.exchanges.session_ends import SessionEnds
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.keyed.keyed_calls import KeyedCalls
from counterfoil.adapters.gateway.sessions.principals import Principals
from counterfoil.adapters.gateway.streams.draining import Draining
from counterfoil.adapters.gateway.upstream.standalone import StandaloneLegs
from counterfoil.stores.ledger_interface import Ledger


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """The ways of answering, and what the choice among them depends on."""

    call: CallWay
    initialize: InitializeWay
    note: NoteWay
    get: GetWay
    delete: DeleteWay
    observed: ObservedWay | None
    """There where the gateway only observes: then it is the only one."""
    asking: Asking
    elsewhere: Elsewhere
    ends: SessionEnds
    runs: CallRuns
    honours_keys: bool


def make_ways(
    shared: Shared, ledger: Ledger | None, principals: Principals, open_calls: OpenCalls, draining: Draining
) -> Ways:
    """Make the ways of one gateway."""
    settings = shared.settings
    keyed = KeyedCalls(ledger, settings.cancel_settle_s) if ledger is not None else None
    honours_keys = keyed is not None
    legs = StandaloneLegs(
        shared.log,
        shared.limits,
        head_s=settings.prime_after_ms / 1000,
        linger_s=settings.standalone_linger_s,
    )
    closings = Closings()
    asking = Asking(shared.adoption, honours_keys=honours_keys)
    making = CallMaking(shared, closings, asking)
    gate = Gate(shared)
    elsewhere = Elsewhere(shared, open_calls)
    ends = SessionEnds(shared, legs, principals)
    runs = CallRuns(shared, keyed, open_calls, ends)
    return Ways(
        call=CallWay(shared, runs, open_calls, making, asking, gate, elsewhere),
        initialize=InitializeWay(shared, principals, honours_keys=honours_keys),
        note=NoteWay(shared, open_calls, elsewhere),
        get=GetWay(shared, legs, closings, draining, gate, elsewhere),
        delete=DeleteWay(shared, ends),
        observed=ObservedWay(shared) if settings.observe else None,
        asking=asking,
        elsewhere=elsewhere,
        ends=ends,
        runs=runs,
        honours_keys=honours_keys,
    )
