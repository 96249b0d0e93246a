"""One contract for every ledger, on trio and on asyncio: the schedules that make its rules necessary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import anyio
import msgspec
import pytest
from counterfoil import Limits, Scope
from counterfoil.adapters.host_ledger.ledger import HostLedger
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.errors import LedgerClosed, LedgerFull, StaleAttempt
from counterfoil.model.ledger_keys import CallKey, EventPlace, LedgerKey, PayloadKey, UnkeyedCall
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import (
    Asked,
    ClaimAnswer,
    Claimed,
    Conflict,
    Expired,
    Known,
    Running,
)
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_memory import MemoryLedger
from counterfoil.stores.ledger_sqlite import SqliteLedger

pytestmark = pytest.mark.anyio

SCOPE = Scope(principal="alice", session="s1")
DAY_S = 86_400
COMPLETED = Settlement(outcome=OutcomeToken.COMPLETED, result=b"answer")
FAILED = Settlement(outcome=OutcomeToken.FAILED, result=b"error", parked=True)
NOT_APPLIED = Settlement(outcome=OutcomeToken.NOT_APPLIED, why="unsent")
DOUBT = Settlement(outcome=OutcomeToken.INDETERMINATE, why="cut", parked=True)

AnyLedger = MemoryLedger | SqliteLedger | HostLedger
Make = Callable[..., AnyLedger]


class Guest(HostLedger):
    """A process that asks another one, which owns the ledger while this one is open."""

    def __init__(self, path: Path, directory: SocketDirectory, **options: Any) -> None:
        super().__init__(path, directory, **options)
        self.owner = HostLedger(path, directory, **options)

    async def __aenter__(self) -> Self:
        await self.owner.__aenter__()
        await super().__aenter__()
        assert self.owner.is_owner
        assert not self.is_owner
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await super().__aexit__(*ended)
        await self.owner.__aexit__(*ended)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "host-owner", "host-guest"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Make:
    """Make the ledger of this test; opened again, it is the next incarnation of the same one."""
    kept: dict[str, AnyLedger] = {}

    def build(**limits: int) -> AnyLedger:
        bounds = Limits(**limits)
        if request.param == "sqlite":
            return SqliteLedger(tmp_path / "shop.db", limits=bounds, clock=clock)
        if request.param.startswith("host"):
            sockets = SocketDirectory(tmp_path / "s")
            kind = Guest if request.param == "host-guest" else HostLedger
            return kind(tmp_path / "shop.db", sockets, limits=bounds, clock=clock)
        ledger = kept.get("memory")
        if ledger is None:
            ledger = kept["memory"] = MemoryLedger(limits=bounds, clock=clock)
        return ledger

    return build


def event(position: int, *, stream: str = "st", epoch: str = "e", foreign: bool = False) -> EventPlace:
    return EventPlace(
        server="srv",
        stream=stream,
        epoch=epoch,
        position=position,
        event_id=f"{epoch}-{position}",
        digest=f"d{position}",
        foreign=foreign,
    )


def call(key: str = "order-17", *, route: str = "srv") -> CallKey:
    return CallKey(route=route, key=key)


def intent(key: LedgerKey, kind: RowKind = RowKind.AT_MOST_ONCE, **more: Any) -> Intent:
    return Intent(scope=more.pop("scope", SCOPE), key=key, kind=kind, **more)


async def claimed_by(ledger: AnyLedger, wanted: Intent) -> Claimed:
    answer = await ledger.claim(wanted)
    assert isinstance(answer, Claimed), answer
    return answer


async def processed(ledger: AnyLedger, stream: str = "st") -> int | None:
    mark = await ledger.mark(SCOPE, server="srv", stream=stream)
    return mark.processed if mark is not None else None


async def waiting_for_a_person(ledger: AnyLedger) -> list[str]:
    return [entry.idempotency_key async for entry in ledger.indeterminate()]


def outcome_of(answer: ClaimAnswer) -> OutcomeToken | None:
    assert isinstance(answer, Known), answer
    assert answer.row is not None
    return answer.row.outcome


# --- one run per key ---


async def test_an_event_is_claimed_once_and_known_ever_after(make: Make) -> None:
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(event(1)))
        settled = await ledger.settle(claimed, COMPLETED)
        assert settled.processed == 1
        assert isinstance(await ledger.claim(intent(event(1))), Known)
    async with make() as ledger:
        assert isinstance(await ledger.claim(intent(event(1))), Known)


async def test_a_copy_of_an_event_that_runs_is_suppressed(make: Make) -> None:
    """L1: the intent of the living incarnation is a run in progress, whatever its kind."""
    for kind in (RowKind.AT_MOST_ONCE, RowKind.IDEMPOTENT):
        async with make() as ledger:
            wanted = intent(event(1, stream=kind.value), kind)
            claimed = await claimed_by(ledger, wanted)
            copy = await ledger.claim(wanted)
            assert copy == Running(key=claimed.key, attempt=1)
            await ledger.settle(claimed, COMPLETED)
            assert outcome_of(await ledger.claim(wanted)) is OutcomeToken.COMPLETED


async def test_an_intent_of_an_earlier_incarnation_is_a_doubt_unless_a_second_run_is_harmless(
    make: Make,
) -> None:
    """L1, P8: at most once is reported and parked, idempotent runs again under the next attempt."""
    async with make() as ledger:
        await claimed_by(ledger, intent(event(1, stream="once"), RowKind.AT_MOST_ONCE))
        await claimed_by(ledger, intent(event(1, stream="again"), RowKind.IDEMPOTENT))
    async with make() as ledger:
        assert await waiting_for_a_person(ledger) == ["1"]  # before the event comes again
        answer = await ledger.claim(intent(event(1, stream="once"), RowKind.AT_MOST_ONCE))
        assert outcome_of(answer) is OutcomeToken.INDETERMINATE
        assert isinstance(answer, Known)
        assert answer.fresh
        assert await processed(ledger, "once") == 1
        again = await claimed_by(ledger, intent(event(1, stream="again"), RowKind.IDEMPOTENT))
        assert (again.attempt, again.tries) == (2, 2)
        assert await waiting_for_a_person(ledger) == ["1"]
        # Reported once; a later copy is only acknowledged.
        later = await ledger.claim(intent(event(1, stream="once"), RowKind.AT_MOST_ONCE))
        assert isinstance(later, Known)
        assert not later.fresh


@pytest.mark.parametrize(
    ("then", "now"),
    [(RowKind.AT_MOST_ONCE, RowKind.IDEMPOTENT), (RowKind.IDEMPOTENT, RowKind.AT_MOST_ONCE)],
)
async def test_a_handler_registered_anew_cannot_lift_the_promise_of_an_old_intent(
    make: Make, then: RowKind, now: RowKind
) -> None:
    async with make() as ledger:
        await claimed_by(ledger, intent(event(1), then))
    async with make() as ledger:
        assert outcome_of(await ledger.claim(intent(event(1), now))) is OutcomeToken.INDETERMINATE


async def test_runs_that_end_the_process_are_counted_and_given_up(make: Make) -> None:
    """L22: at the limit the event is failed, reported, and the stream can go on behind it."""
    for _ in range(3):
        async with make(attempts=3) as ledger:
            await claimed_by(ledger, intent(event(1), RowKind.IDEMPOTENT))
    async with make(attempts=3) as ledger:
        answer = await ledger.claim(intent(event(1), RowKind.IDEMPOTENT))
        assert outcome_of(answer) is OutcomeToken.FAILED
        assert isinstance(answer, Known)
        assert answer.fresh
        assert await processed(ledger) == 1


async def test_not_applied_frees_its_key_and_nothing_else_does(make: Make) -> None:
    """L2: the next call with the same fingerprint is attempt n + 1."""
    wanted = intent(call(), RowKind.CALL, fingerprint=b"f")
    async with make() as ledger:
        first = await claimed_by(ledger, wanted)
        await ledger.settle(first, NOT_APPLIED)
        second = await claimed_by(ledger, wanted)
        assert (second.attempt, second.tries) == (2, 1)
        await ledger.settle(second, COMPLETED)
        answer = await ledger.claim(wanted)
        assert isinstance(answer, Known)
        assert answer.row is not None
        assert answer.row.result == b"answer"
        with pytest.raises(StaleAttempt):
            await ledger.settle(first, COMPLETED)


async def test_the_same_key_with_other_arguments_is_a_conflict_and_runs_nothing(make: Make) -> None:
    """L8, B201: the fingerprint stands beside the key, it is no part of it."""
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(call(), RowKind.CALL, fingerprint=b"one"))
        other = intent(call(), RowKind.CALL, fingerprint=b"two")
        assert isinstance(await ledger.claim(other), Conflict)
        await ledger.settle(claimed, COMPLETED)
        assert isinstance(await ledger.claim(other), Conflict)
        assert isinstance(await ledger.claim(intent(call(), RowKind.CALL, fingerprint=b"one")), Known)


async def test_keys_of_two_servers_and_of_two_tenants_never_meet(make: Make) -> None:
    """L8, B25: one file, two servers, two tenants, the same key."""
    async with make() as ledger:
        mine = await claimed_by(ledger, intent(call(), RowKind.CALL))
        await ledger.settle(mine, Settlement(outcome=OutcomeToken.COMPLETED, result=b"mine"))
        await claimed_by(ledger, intent(call(route="other"), RowKind.CALL))
        theirs = Scope(tenant="b", principal="alice")
        await claimed_by(ledger, intent(call(), RowKind.CALL, scope=theirs))
        entry = await ledger.entry(theirs, call())
        assert entry is not None
        assert (entry.state, entry.tenant) == ("intended", "b")
        assert await ledger.entry(Scope(principal="mallory"), call()) is None


async def test_a_call_of_an_earlier_process_is_sent_again_only_to_a_peer_that_honours_keys(
    make: Make,
) -> None:
    """B197, B207: after `sent`, only a keyed call may be repeated; else it is a doubt."""
    async with make() as ledger:
        await claimed_by(ledger, intent(call("keyed"), RowKind.CALL))
        await claimed_by(ledger, intent(call("plain"), RowKind.CALL))
    async with make() as ledger:
        await claimed_by(ledger, intent(call("keyed"), RowKind.CALL, honours_keys=True))
        plain = await ledger.claim(intent(call("plain"), RowKind.CALL))
        assert outcome_of(plain) is OutcomeToken.INDETERMINATE


async def test_a_failure_is_stored_and_told_at_once_ever_after(make: Make) -> None:
    """B205: failure is terminal, not `processing` for a day."""
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(call(), RowKind.CALL))
        await ledger.settle(claimed, FAILED)
        answer = await ledger.claim(intent(call(), RowKind.CALL))
        assert outcome_of(answer) is OutcomeToken.FAILED
        assert isinstance(answer, Known)
        assert answer.row is not None
        assert answer.row.result == b"error"


@pytest.mark.parametrize("final", [COMPLETED, FAILED])
async def test_a_doubt_may_become_the_real_answer_and_never_the_reverse(
    make: Make, final: Settlement
) -> None:
    """L20."""
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(call(), RowKind.CALL))
        await ledger.settle(claimed, DOUBT)
        with pytest.raises(StaleAttempt):
            await ledger.settle(claimed, NOT_APPLIED)
        await ledger.settle(claimed, final)
        with pytest.raises(StaleAttempt):
            await ledger.settle(claimed, DOUBT)
        assert outcome_of(await ledger.claim(intent(call(), RowKind.CALL))) is final.outcome
        assert await waiting_for_a_person(ledger) == []


async def test_intent_released_and_settled_tell_three_answers_after_a_restart(make: Make) -> None:
    """B199: never begun, begun, answered: three records, three answers."""
    async with make() as ledger:
        released = await claimed_by(ledger, intent(call("released"), RowKind.CALL))
        await ledger.release(released)
        await claimed_by(ledger, intent(call("begun"), RowKind.CALL))
        answered = await claimed_by(ledger, intent(call("answered"), RowKind.CALL))
        await ledger.settle(answered, COMPLETED)
    async with make() as ledger:
        again = await claimed_by(ledger, intent(call("released"), RowKind.CALL))
        assert (again.attempt, again.tries) == (2, 1)
        begun = await ledger.claim(intent(call("begun"), RowKind.CALL))
        assert outcome_of(begun) is OutcomeToken.INDETERMINATE
        stored = await ledger.claim(intent(call("answered"), RowKind.CALL))
        assert outcome_of(stored) is OutcomeToken.COMPLETED


async def test_a_run_that_fails_and_is_repeated_leaves_its_old_attempt_powerless(make: Make) -> None:
    async with make() as ledger:
        first = await claimed_by(ledger, intent(event(1), RowKind.IDEMPOTENT))
        second = await ledger.claim_again(first)
        assert (second.attempt, second.tries) == (2, 2)
        for write in (ledger.settle(first, COMPLETED), ledger.release(first), ledger.claim_again(first)):
            with pytest.raises(StaleAttempt):
                await write
        await ledger.settle(second, COMPLETED)


async def test_an_attempt_of_an_earlier_incarnation_writes_nothing(make: Make) -> None:
    """B205: a worker that comes back after the take-over is refused."""
    async with make() as ledger:
        stale = await claimed_by(ledger, intent(event(1), RowKind.IDEMPOTENT))
    async with make() as ledger:
        current = await claimed_by(ledger, intent(event(1), RowKind.IDEMPOTENT))
        with pytest.raises(StaleAttempt):
            await ledger.settle(stale, COMPLETED)
        assert await processed(ledger) == 0
        await ledger.settle(current, COMPLETED)


# --- rounds and cancelling ---


async def test_an_equal_round_gets_the_stored_question_and_another_one_starts_the_next_attempt(
    make: Make,
) -> None:
    """L23."""

    def ask(digest: bytes) -> Intent:
        return intent(call(), RowKind.CALL, fingerprint=b"f", round=digest)

    async with make() as ledger:
        first = await claimed_by(ledger, ask(b"round-1"))
        await ledger.await_input(first, b"which size?")
        assert await ledger.claim(ask(b"round-1")) == Asked(key=first.key, question=b"which size?")
    async with make() as ledger:
        assert isinstance(await ledger.claim(ask(b"round-1")), Asked)
        second = await claimed_by(ledger, ask(b"round-2"))
        assert second.attempt == 2
        with pytest.raises(StaleAttempt):
            await ledger.await_input(first, b"late")
        await ledger.settle(second, COMPLETED)


async def test_a_cancelled_call_is_settled_when_its_leg_is_closed(make: Make) -> None:
    """L11: a re-issue meets `cancelling` until then; a crash meanwhile leaves a doubt (B39)."""
    async with make() as ledger:
        one = await claimed_by(ledger, intent(call("one"), RowKind.CALL))
        await ledger.begin_cancelling(one)
        assert isinstance(await ledger.claim(intent(call("one"), RowKind.CALL)), Running)
        await ledger.settle(one, NOT_APPLIED)
        await claimed_by(ledger, intent(call("one"), RowKind.CALL))
        two = await claimed_by(ledger, intent(call("two"), RowKind.CALL))
        await ledger.begin_cancelling(two)
    async with make() as ledger:
        answer = await ledger.claim(intent(call("two"), RowKind.CALL, honours_keys=True))
        assert outcome_of(answer) is OutcomeToken.INDETERMINATE


async def test_delivered_is_noted_beside_the_answer(make: Make) -> None:
    """L17."""
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(call(), RowKind.CALL))
        with pytest.raises(StaleAttempt):
            await ledger.mark_delivered(claimed)
        await ledger.settle(claimed, COMPLETED)
        await ledger.mark_delivered(claimed)
        answer = await ledger.claim(intent(call(), RowKind.CALL))
        assert isinstance(answer, Known)
        assert answer.row is not None
        assert answer.row.delivered


# --- the mark ---


async def test_the_mark_is_a_low_water_mark_and_never_passes_an_open_event(make: Make) -> None:
    async with make() as ledger:
        runs = {n: await claimed_by(ledger, intent(event(n), RowKind.IDEMPOTENT)) for n in (1, 2, 3, 4)}
        assert (await ledger.settle(runs[3], COMPLETED)).processed == 0
        assert (await ledger.settle(runs[1], COMPLETED)).processed == 1
        assert (await ledger.settle(runs[2], FAILED)).processed == 3
        mark = await ledger.mark(SCOPE, server="srv", stream="st")
        assert mark is not None
        assert (mark.event_id, mark.digest, mark.processed) == ("e-3", "d3", 3)
        assert (await ledger.settle(runs[4], DOUBT)).processed == 4


async def test_a_run_that_is_not_applied_holds_the_mark(make: Make) -> None:
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(event(1), RowKind.IDEMPOTENT))
        await ledger.settle(claimed, NOT_APPLIED)
        assert await processed(ledger) == 0
        again = await claimed_by(ledger, intent(event(1), RowKind.IDEMPOTENT))
        assert (await ledger.settle(again, COMPLETED)).processed == 1


async def test_an_event_without_handler_moves_the_mark_with_the_next_commit(make: Make) -> None:
    """L29."""
    async with make() as ledger:
        ledger.skip(SCOPE, event(1))
        ledger.skip(SCOPE, event(2))
        claimed = await claimed_by(ledger, intent(event(3), RowKind.IDEMPOTENT))
        await ledger.settle(claimed, COMPLETED)
        ledger.skip(SCOPE, event(4))
        assert await processed(ledger) == 4
        assert isinstance(await ledger.claim(intent(event(4), RowKind.IDEMPOTENT)), Known)
    async with make() as ledger:
        assert await processed(ledger) == 4


async def test_a_skipped_event_above_an_open_one_waits_for_it(make: Make) -> None:
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(event(1), RowKind.IDEMPOTENT))
        ledger.skip(SCOPE, event(2))
        assert await processed(ledger) == 0
        assert (await ledger.settle(claimed, COMPLETED)).processed == 2


async def test_another_epoch_never_moves_the_mark_and_a_new_base_sets_it(make: Make) -> None:
    async with make() as ledger:
        old = await claimed_by(ledger, intent(event(1), RowKind.IDEMPOTENT))
        stale = await claimed_by(ledger, intent(event(2), RowKind.IDEMPOTENT))
        await ledger.settle(old, COMPLETED)
        await ledger.begin_stream(SCOPE, event(40, epoch="new"), record=b"client's")
        assert (await ledger.settle(stale, COMPLETED)).processed == 40
        mark = await ledger.begin_stream(SCOPE, event(30, epoch="new"))
        assert (mark.processed, mark.record) == (40, b"client's")  # never back within an epoch
        assert isinstance(await ledger.claim(intent(event(35, epoch="new"))), Known)
        fresh = await claimed_by(ledger, intent(event(41, epoch="new")))
        assert (await ledger.settle(fresh, COMPLETED)).processed == 41


async def test_foreign_events_are_known_by_their_exact_id(make: Make) -> None:
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(event(1, foreign=True), RowKind.IDEMPOTENT))
        assert (await ledger.settle(claimed, COMPLETED)).processed == 1
        moved = msgspec.structs.replace(event(5, foreign=True), event_id="e-1")
        assert outcome_of(await ledger.claim(intent(moved, RowKind.IDEMPOTENT))) is OutcomeToken.COMPLETED
        mark = await ledger.mark(SCOPE, server="srv", stream="st")
        assert mark is not None
        assert mark.event_id == "e-1"


async def test_a_payload_key_is_recorded_under_every_verdict_and_looked_up_first(make: Make) -> None:
    """L16, card A's incident: the same work comes again under a new epoch and a new session."""
    named = PayloadKey(server="srv", key="task-9")
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(event(1), RowKind.IDEMPOTENT, payload_key=named))
        copy = intent(event(1, epoch="other"), RowKind.IDEMPOTENT, payload_key=named)
        assert isinstance(await ledger.claim(copy), Running)
        await ledger.settle(claimed, COMPLETED)
    async with make() as ledger:
        later = Scope(principal="alice", session="s2")
        again = intent(event(1, epoch="new"), RowKind.IDEMPOTENT, payload_key=named, scope=later)
        assert outcome_of(await ledger.claim(again)) is OutcomeToken.COMPLETED
        mark = await ledger.mark(later, server="srv", stream="st")
        assert mark is not None
        assert (mark.epoch, mark.processed) == ("new", 1)


# --- people ---


@pytest.mark.parametrize("outcome", ["completed", "failed", "not_applied"])
async def test_a_person_resolves_a_doubt_once(make: Make, outcome: Any) -> None:
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(call(), RowKind.CALL, label="tools/call order"))
        await ledger.settle(claimed, DOUBT)
        (entry,) = [entry async for entry in ledger.indeterminate()]
        assert (entry.label, entry.why, entry.what) == ("tools/call order", "cut", "call")
        settled = await ledger.resolve(entry, outcome, note="seen in the warehouse")
        assert (settled.row.outcome, settled.row.note) == (outcome, "seen in the warehouse")
        assert await waiting_for_a_person(ledger) == []
        with pytest.raises(StaleAttempt):
            await ledger.resolve(entry, "completed", note="again")
        answer = await ledger.claim(intent(call(), RowKind.CALL))
        assert isinstance(answer, Claimed if outcome == "not_applied" else Known)
        with pytest.raises(ValueError, match="completed, failed or not_applied"):
            await ledger.resolve(entry, "indeterminate", note="")  # type: ignore[arg-type]


async def test_an_orphan_can_be_resolved_before_its_event_comes_again(make: Make) -> None:
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(event(1), RowKind.AT_MOST_ONCE))
        entry = await ledger.entry(SCOPE, event(1))
        assert entry is not None
        with pytest.raises(StaleAttempt, match="still goes on"):
            await ledger.resolve(entry, "completed", note="")
        assert claimed.attempt == 1
    async with make() as ledger:
        (entry,) = [entry async for entry in ledger.indeterminate()]
        assert "an earlier process" in entry.evidence
        await ledger.resolve(entry, "completed", note="done by hand")
        assert isinstance(await ledger.claim(intent(event(1))), Known)
        assert await processed(ledger) == 1


async def test_a_parked_event_freed_by_a_person_may_run_again_without_moving_the_mark_back(
    make: Make,
) -> None:
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(event(1)))
        await ledger.settle(claimed, DOUBT)
        later = await claimed_by(ledger, intent(event(2)))
        await ledger.settle(later, COMPLETED)
        (entry,) = [entry async for entry in ledger.indeterminate()]
        await ledger.resolve(entry, "not_applied", note="")
        again = await claimed_by(ledger, intent(event(1)))
        assert (await ledger.settle(again, COMPLETED)).processed == 2


async def test_many_doubts_are_paged_and_may_be_resolved_on_the_way(make: Make) -> None:
    """B217: the walk is paged."""
    async with make() as ledger:
        for number in range(200):
            claimed = await claimed_by(ledger, intent(call(f"k{number:03}"), RowKind.CALL))
            await ledger.settle(claimed, DOUBT)
        seen = []
        async for entry in ledger.indeterminate():
            seen.append(entry.idempotency_key)
            await ledger.resolve(entry, "completed", note="")
        assert seen == [f"k{number:03}" for number in range(200)]


# --- age and bounds ---


async def test_what_was_seen_is_never_new_before_its_tombstone_ends(make: Make, clock: Clock) -> None:
    """L24: whole for a day, then known to be forgotten for thirty, then new."""
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(call(), RowKind.CALL))
        await ledger.settle(claimed, COMPLETED)
        clock.now += DAY_S - 1
        assert isinstance(await ledger.claim(intent(call(), RowKind.CALL)), Known)
        clock.now += 2
        await ledger.entry(SCOPE, call("unrelated"))  # any call lets time do its work
        assert isinstance(await ledger.claim(intent(call(), RowKind.CALL)), Expired)
        clock.now += 30 * DAY_S - 5
        assert isinstance(await ledger.claim(intent(call(), RowKind.CALL)), Expired)
        clock.now += 10
        await claimed_by(ledger, intent(call(), RowKind.CALL))


async def test_what_nobody_knows_yet_never_expires(make: Make, clock: Clock) -> None:
    async with make() as ledger:
        asked = await claimed_by(ledger, intent(call("asked"), RowKind.CALL))
        await ledger.await_input(asked, b"?")
        doubt = await claimed_by(ledger, intent(call("doubt"), RowKind.CALL))
        await ledger.settle(doubt, DOUBT)
        await claimed_by(ledger, intent(call("open"), RowKind.CALL))
        clock.now += 400 * DAY_S
        await ledger.entry(SCOPE, call("unrelated"))
        assert isinstance(await ledger.claim(intent(call("asked"), RowKind.CALL)), Asked)
        assert isinstance(await ledger.claim(intent(call("doubt"), RowKind.CALL)), Known)
        assert isinstance(await ledger.claim(intent(call("open"), RowKind.CALL)), Running)


async def test_a_freed_key_is_new_when_its_row_has_aged_out(make: Make, clock: Clock) -> None:
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(call(), RowKind.CALL))
        await ledger.settle(claimed, NOT_APPLIED)
        clock.now += DAY_S + 1
        await ledger.entry(SCOPE, call("unrelated"))
        assert (await claimed_by(ledger, intent(call(), RowKind.CALL))).attempt == 1


async def test_the_outcome_at_the_mark_outlives_every_age(make: Make, clock: Clock) -> None:
    """L25: an idle stream must not lose the proof of its cursor."""
    async with make() as ledger:
        for place in (event(1), event(1, stream="foreign", foreign=True)):
            claimed = await claimed_by(ledger, intent(place))
            await ledger.settle(claimed, FAILED)
        clock.now += 90 * DAY_S
        await ledger.entry(SCOPE, call("unrelated"))
        assert outcome_of(await ledger.claim(intent(event(1)))) is OutcomeToken.FAILED
        foreign = await ledger.claim(intent(event(1, stream="foreign", foreign=True)))
        assert outcome_of(foreign) is OutcomeToken.FAILED
        mark = await ledger.mark(SCOPE, server="srv", stream="st")
        assert mark is not None
        assert mark.last is not None
        assert mark.last.commit == mark.commit


async def test_the_mark_of_a_stream_that_has_ended_goes_with_the_rows_of_its_time(
    make: Make, clock: Clock
) -> None:
    async def marks(ledger: AnyLedger) -> list[str]:
        await ledger.entry(SCOPE, call("unrelated"))
        return [name for name in ("st", "on") if await processed(ledger, name) is not None]

    async with make() as ledger:
        for stream in ("st", "on"):
            claimed = await claimed_by(ledger, intent(event(1, stream=stream)))
            await ledger.settle(claimed, COMPLETED)
        await ledger.begin_stream(SCOPE, event(0), ended="answered")
        # What was still running at its end is settled behind it.
        late = await claimed_by(ledger, intent(event(2)))
        await ledger.settle(late, COMPLETED)
        clock.now += DAY_S - 1
        assert await marks(ledger) == ["st", "on"]
        assert await processed(ledger) == 2
    clock.now += 2
    async with make() as ledger:
        assert await marks(ledger) == ["on"]
        # Begun anew it is a stream like any other, and not ended.
        await ledger.begin_stream(SCOPE, event(0), ended="answered")
        await ledger.begin_stream(SCOPE, event(4), record=b"kept")
        clock.now += 9 * DAY_S
        assert await marks(ledger) == ["st", "on"]
        assert await processed(ledger) == 4


async def test_a_record_kept_with_an_end_lasts_as_long_as_its_mark(make: Make, clock: Clock) -> None:
    async with make() as ledger:
        await ledger.begin_stream(SCOPE, event(0), record=b"where it stands")
        await ledger.begin_stream(SCOPE, event(0), ended="answered")
        ended = await ledger.mark(SCOPE, server="srv", stream="st")
        assert ended is not None
        assert (ended.ended, ended.record) == ("answered", b"")
        await ledger.begin_stream(SCOPE, event(0, stream="on"), ended="replied", record=b"the reply")
        kept = await ledger.mark(SCOPE, server="srv", stream="on")
        assert kept is not None
        assert kept.record == b"the reply"
        clock.now += DAY_S + 1
        await ledger.entry(SCOPE, call("unrelated"))
        assert await ledger.mark(SCOPE, server="srv", stream="on") is None


async def test_open_entries_are_bounded_and_a_resolved_one_makes_room(make: Make) -> None:
    """L24: at the bound new intents are refused by name, and what is there still settles."""
    async with make(ledger_open_rows=2) as ledger:
        one = await claimed_by(ledger, intent(call("one"), RowKind.CALL))
        await claimed_by(ledger, intent(call("two"), RowKind.CALL))
        with pytest.raises(LedgerFull, match="ledger_open_rows"):
            await ledger.claim(intent(call("three"), RowKind.CALL))
        await ledger.settle(one, COMPLETED)
        await claimed_by(ledger, intent(call("three"), RowKind.CALL))
    async with make(ledger_open_rows=2) as ledger:
        with pytest.raises(LedgerFull):
            await ledger.claim(intent(call("four"), RowKind.CALL))


async def test_the_doubt_of_an_unkeyed_call_is_listed_for_its_age_and_takes_no_room(
    make: Make, clock: Clock
) -> None:
    """L17, L24: nobody can ask for its key again, so that it must not keep new calls out for ever."""

    def unkeyed(number: str) -> Intent:
        return intent(UnkeyedCall(route="/mcp", identity=b"i" * 32, number=number), RowKind.CALL)

    async with make(ledger_open_rows=2) as ledger:
        keyed = await claimed_by(ledger, intent(call("order-17"), RowKind.CALL))
        await ledger.settle(keyed, DOUBT)
        for number in ("one", "two", "three"):  # an upstream that breaks off again and again
            clock.now += 1
            claimed = await claimed_by(ledger, unkeyed(number))
            await ledger.settle(claimed, DOUBT)
            await ledger.close_call(claimed)
        assert await waiting_for_a_person(ledger) == ["order-17", "one", "two", "three"]
        clock.now += 30 * DAY_S - 1.5  # as long as a key would be known
        await ledger.entry(SCOPE, call("unrelated"))
        assert await waiting_for_a_person(ledger) == ["order-17", "two", "three"]
    async with make(ledger_open_rows=2) as ledger:
        (doubt,) = [one async for one in ledger.indeterminate() if one.idempotency_key == "two"]
        await ledger.resolve(doubt, "completed", note="seen in the warehouse")
        assert await waiting_for_a_person(ledger) == ["order-17", "three"]
        clock.now += 2
        await ledger.entry(SCOPE, call("unrelated"))
        assert await waiting_for_a_person(ledger) == ["order-17"]
        clock.now += DAY_S
        await ledger.entry(SCOPE, call("unrelated"))
        assert await ledger.kept_calls(b"") == []  # no tombstones: there is nothing to be known again


async def test_a_clock_that_is_set_back_makes_nothing_younger(make: Make, clock: Clock) -> None:
    async with make() as ledger:
        claimed = await claimed_by(ledger, intent(call(), RowKind.CALL))
        await ledger.settle(claimed, COMPLETED)
        clock.now += DAY_S + 1
        await ledger.entry(SCOPE, call("unrelated"))
        clock.now -= 10 * DAY_S
        assert isinstance(await ledger.claim(intent(call(), RowKind.CALL)), Expired)


# --- use ---


async def test_concurrent_claims_of_one_key_give_one_run_each_round(
    make: Make, scaled: Callable[[int, int], int]
) -> None:
    """B209: 64 tasks, one key: one run, the others see it in progress or get the answer."""
    async with make() as ledger:
        for number in range(scaled(30, 10_000)):
            wanted = intent(call(f"round-{number}"), RowKind.CALL)
            runs: list[Claimed] = []
            others: list[ClaimAnswer] = []

            async def ask(
                wanted: Intent = wanted, runs: list[Claimed] = runs, others: list[ClaimAnswer] = others
            ) -> None:
                answer = await ledger.claim(wanted)
                if isinstance(answer, Claimed):
                    runs.append(answer)
                    await ledger.settle(answer, COMPLETED)
                else:
                    others.append(answer)

            async with anyio.create_task_group() as group:
                for _ in range(64):
                    group.start_soon(ask)
            assert len(runs) == 1
            assert len(others) == 63
            assert all(isinstance(one, Running | Known) for one in others)


async def test_a_closed_ledger_refuses_by_name(make: Make) -> None:
    ledger = make()
    with pytest.raises(LedgerClosed, match="not open"):
        ledger.claim(intent(event(1)))
    async with ledger:
        assert ledger.fence >= 1
    with pytest.raises(LedgerClosed):
        ledger.claim(intent(event(1)))


async def test_every_incarnation_has_a_higher_fence_and_keeps_the_secret(make: Make) -> None:
    fences, secrets = [], set()
    for _ in range(3):
        async with make() as ledger:
            fences.append(ledger.fence)
            secrets.add(ledger.secret)
    assert fences == sorted(set(fences))
    assert len(secrets) == 1
    assert "secret" not in repr(make())


async def test_nobody_waits_for_a_run_that_was_given_up(make: Make) -> None:
    """Its outcome could not be written: what an earlier process's intent is, this one is from now on."""
    async with make() as ledger:
        run = await claimed_by(ledger, intent(event(1), RowKind.AT_MOST_ONCE))
        assert isinstance(await ledger.claim(intent(event(1), RowKind.AT_MOST_ONCE)), Running)
        ledger.abandon(run)
        assert [entry.idempotency_key async for entry in ledger.indeterminate()] == ["1"]
        found = await ledger.claim(intent(event(1), RowKind.AT_MOST_ONCE))
        assert isinstance(found, Known)
        assert found.fresh
        repeatable = await claimed_by(ledger, intent(event(2), RowKind.IDEMPOTENT))
        ledger.abandon(repeatable)
        again = await claimed_by(ledger, intent(event(2), RowKind.IDEMPOTENT))
        assert again.attempt == 2
        with pytest.raises(StaleAttempt):
            await ledger.settle(repeatable, Settlement(outcome=OutcomeToken.COMPLETED))
        called = await claimed_by(ledger, intent(event(3), RowKind.AT_MOST_ONCE))
        ledger.abandon(called)
        entry = await ledger.entry(SCOPE, event(3))
        assert entry is not None
        assert (await ledger.resolve(entry, "completed", note="seen")).row.outcome is OutcomeToken.COMPLETED


async def test_a_run_with_a_name_outlives_the_owner_through_which_it_was_claimed(make: Make) -> None:
    """Claimed again it has the same right, whoever owns the ledger by then; so has its outcome."""
    wanted, other = (intent(call(name), RowKind.CALL, run=b"the run " + name.encode()) for name in "ab")
    async with make() as ledger:
        first, lost = await claimed_by(ledger, wanted), await claimed_by(ledger, other)
        assert await claimed_by(ledger, wanted) == first
    async with make() as ledger:
        again = await claimed_by(ledger, wanted)
        assert (again.run, again.attempt) == (first.run, first.attempt)
        assert isinstance(await ledger.claim(intent(call("a"), RowKind.CALL)), Running)
        settled = await ledger.settle(first, COMPLETED)
        assert settled.row.outcome is OutcomeToken.COMPLETED
        await ledger.settle(lost, COMPLETED)
    async with make() as ledger:
        assert (await ledger.settle(lost, COMPLETED)).row.result == COMPLETED.result
        with pytest.raises(StaleAttempt):
            await ledger.settle(lost, FAILED)
        # A doubt that was settled meanwhile takes the real answer; the name of another run opens nothing.
        stranger = intent(call("b"), RowKind.CALL, run=b"another")
        assert isinstance(await ledger.claim(stranger), Known)
