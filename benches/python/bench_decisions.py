"""A verdict from ready evidence against one pydantic validation of a JSON-RPC message.

What it does not show: gathering the evidence, which happens once per reconnect, and the wire.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bars import Bar, Context, run_alone, take_turns, times_as_fast
from counterfoil.decisions.event_check import check_event
from counterfoil.decisions.resume import classify_resume
from counterfoil.model.events import EventEvidence, Identity, Scheme
from counterfoil.model.evidence import Asked, Claim, ClaimDetails, Echo, First, ResumeEvidence
from counterfoil.model.tokens import Next, VerdictToken, Why
from counterfoil.model.verdicts import Fresh, Gap, Reoriginated, Resumed
from mcp.types import JSONRPCMessage
from pydantic import TypeAdapter

MESSAGE = (
    b'{"jsonrpc":"2.0","method":"notifications/progress",'
    b'"params":{"progressToken":"9f3c51d0","progress":3,"total":10,"message":"third of ten"}}'
)
CLAIM = ClaimDetails(verdict=VerdictToken.RESUMED, next=Next.CONTINUE, after=4117, last=4130)
EVIDENCE = {
    "resumed": ResumeEvidence(
        asked=Asked.CF1,
        claim=Claim.RESUMED_EQUAL,
        echo=Echo.OURS,
        first=First.NEXT,
        details=CLAIM,
        asked_sequence=4117,
        first_sequence=4118,
    ),
    "gap": ResumeEvidence(
        asked=Asked.CF1, first=First.BEYOND, asked_sequence=7, first_sequence=12, request_ids=(1, 2)
    ),
    "reoriginated": ResumeEvidence(
        asked=Asked.CF1, first=First.OTHER_EPOCH, asked_sequence=4118, first_sequence=13
    ),
}
EXPECTED = {"resumed": Resumed, "gap": Gap, "reoriginated": Reoriginated}
EVENT = EventEvidence(scheme=Scheme.CF1, identity=Identity.NEXT)


def repeat(count: int, call: Callable[[], object]) -> None:
    for _ in range(count):
        call()


def bars(context: Context) -> list[Bar]:
    """One bar per verdict, and one for the check of a single event."""
    validate = partial(TypeAdapter(JSONRPCMessage).validate_json, MESSAGE)
    assert validate().method == "notifications/progress"
    for name, evidence in EVIDENCE.items():
        assert isinstance(classify_resume(evidence), EXPECTED[name])
    fresh = check_event(EVENT)
    assert isinstance(fresh, Fresh)
    assert fresh.why is Why.NEXT_EVENT
    count = 20_000 if context.quick else 100_000
    calls: dict[str, Callable[[], object]] = {
        "validation": validate,
        "event": partial(check_event, EVENT),
        **{name: partial(classify_resume, evidence) for name, evidence in EVIDENCE.items()},
    }
    times = take_turns({name: partial(repeat, count, call) for name, call in calls.items()}, context.rounds)

    def share(name: str) -> float | None:
        faster = times_as_fast(times, name, "validation")
        return None if faster is None else 1 / faster

    return [
        *(
            Bar(f"verdict {name} / JSON-RPC validation", share(name), 1 / 3, None, "x", "lower")
            for name in EVIDENCE
        ),
        Bar("check of one event / JSON-RPC validation", share("event"), None, None, "x", "lower"),
    ]


if __name__ == "__main__":
    sys.exit(run_alone(bars))
