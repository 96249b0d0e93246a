"""The SQLite book against two dictionaries: the same answers for every history, restarts included."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

from counterfoil import Scope
from counterfoil.errors import CounterfoilError
from counterfoil.model.ledger_keys import CallKey, EventPlace, LedgerKey, PayloadKey
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import Claimed, Entry, Known, Settled
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_memory import MemoryLedger
from counterfoil.stores.ledger_sqlite import SqliteLedger
from hypothesis import given
from hypothesis import strategies as st

SCOPE = Scope(principal="p", session="s")
KEYS: list[LedgerKey] = [
    *(
        EventPlace(server="s", stream=stream, epoch="e", position=n, event_id=f"id{n}", foreign=foreign)
        for stream, foreign in (("ours", False), ("foreign", True))
        for n in (1, 2, 3)
    ),
    CallKey(route="s", key="one"),
    CallKey(route="s", key="two"),
]
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None

keys = st.integers(0, len(KEYS) - 1)
outcomes = st.sampled_from(list(OutcomeToken))
operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("claim"), keys, st.sampled_from([RowKind.IDEMPOTENT, RowKind.AT_MOST_ONCE]), st.booleans()
        ),
        st.tuples(st.just("settle"), keys, outcomes),
        st.tuples(st.just("again"), keys),
        st.tuples(st.just("release"), keys),
        st.tuples(st.just("skip"), st.integers(0, 5)),
        st.tuples(st.just("resolve"), st.sampled_from(["completed", "failed", "not_applied"])),
        st.tuples(st.just("later"), st.sampled_from([10, 90_000, 3_000_000])),
        st.tuples(st.just("reopen")),
    ),
    max_size=30,
)


class World:
    """One ledger, and what its callers hold."""

    def __init__(self, ledger: Any, clock: list[float]) -> None:
        self.ledger = ledger
        self.clock = clock
        self.view = ledger.blocking()
        self.view.__enter__()
        self.runs: dict[int, Claimed] = {}

    def do(self, operation: tuple[Any, ...]) -> Any:
        try:
            return self._do(*operation)
        except CounterfoilError as error:
            return type(error).__name__

    def _do(self, name: str, *words: Any) -> Any:
        match name:
            case "claim":
                number, kind, named = words
                key = KEYS[number]
                answer = self.view.claim(
                    Intent(
                        scope=SCOPE,
                        key=key,
                        kind=RowKind.CALL if isinstance(key, CallKey) else kind,
                        payload_key=PayloadKey(server="s", key="work") if named else None,
                    )
                )
                if isinstance(answer, Claimed):
                    self.runs[number] = answer
                return plain(answer)
            case "settle" if words[0] in self.runs:
                return plain(self.view.settle(self.runs[words[0]], Settlement(outcome=words[1], parked=True)))
            case "again" if words[0] in self.runs:
                self.runs[words[0]] = self.view.claim_again(self.runs[words[0]])
                return plain(self.runs[words[0]])
            case "release" if words[0] in self.runs:
                return self.view.release(self.runs[words[0]])
            case "skip":
                return self.view.skip(SCOPE, KEYS[words[0]])
            case "resolve":
                entries = list(itertools.islice(self.view.indeterminate(), 1))
                return plain(self.view.resolve(entries[0], words[0], note="n")) if entries else None
            case "reopen":
                self.view.__exit__(None, None, None)
                self.view.__enter__()
        return None

    def picture(self) -> Any:
        """Everything that can be seen from outside, without the store's own numbers."""
        entries = [plain(self.view.entry(SCOPE, key)) for key in KEYS]
        marks = []
        for stream in ("ours", "foreign"):
            mark = self.view.mark(SCOPE, server="s", stream=stream)
            marks.append(mark and (mark.processed, mark.event_id, [one.position for one in mark.ahead]))
        return entries, marks, [entry.key for entry in self.view.indeterminate()]


def plain(answer: Any) -> Any:
    match answer:
        case Claimed():
            return "claimed", answer.attempt, answer.tries
        case Settled():
            return "settled", answer.row.outcome, answer.row.note, answer.processed
        case Known():
            return (
                "known",
                answer.row and (answer.row.outcome, answer.row.attempt, answer.row.tries),
                answer.fresh,
            )
        case Entry():
            return answer.state, answer.outcome, answer.attempt, answer.parked, answer.note, answer.evidence
    return type(answer).__name__


@given(history=operations)
def test_every_history_reads_alike_in_memory_and_on_disk(history: list[tuple[Any, ...]]) -> None:
    clock = [1_800_000_000.0]
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        memory = World(MemoryLedger(clock=lambda: clock[0]), clock)
        disk = World(SqliteLedger(Path(folder) / "l.db", clock=lambda: clock[0]), clock)
        try:
            for operation in history:
                if operation[0] == "later":
                    clock[0] += operation[1]
                assert memory.do(operation) == disk.do(operation), operation
            assert memory.picture() == disk.picture()
        finally:
            for world in (memory, disk):
                world.view.__exit__(None, None, None)
