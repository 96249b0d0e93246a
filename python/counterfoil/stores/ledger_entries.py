"""Rows as people see them: entries, and the walk over those that wait for a person.

Every ledger and the `ledger` program read through it; it writes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec

from counterfoil.errors import LedgerError
from counterfoil.model.ledger_keys import UNKEYED_RANGE, describe_key, idempotency_key_of
from counterfoil.model.ledger_rows import LedgerRow, RowKind, RowState
from counterfoil.model.ledger_verdicts import Entry
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Book, Moment

#: How many letters of an entry's name are shown.
NAME_LETTERS = 12
_PAGE = 64
_INTERRUPTED = (
    "an earlier process, or a run that could not write its outcome, left the intent and nothing more; "
    "it waits for the event to come again, or for you"
)


def describe_entry(key: bytes, row: LedgerRow) -> Entry:
    """Put a row and its key into words."""
    words = describe_key(key)
    return Entry(
        key=key,
        what=words.what,
        tenant=words.tenant,
        principal=words.principal,
        session=words.session,
        server=words.server,
        stream=words.stream,
        epoch=words.epoch,
        idempotency_key=words.key,
        state=row.state.value,
        kind=row.kind.value,
        outcome=row.outcome,
        attempt=row.attempt,
        label=row.label,
        why=row.why,
        evidence=row.evidence,
        note=row.note,
        parked=row.parked,
        changed_at=row.changed_at,
        delivered=row.delivered,
        adopted=row.adopted,
    )


def waits_for_a_person(key: bytes, row: LedgerRow, fence: int, given_up: Container[int] = ()) -> bool:
    """Say whether nothing but a person, or the event coming again, can tell what became of a row.

    `given_up` are the runs of the living owner that are over and could not be settled.
    """
    if describe_key(key).what == "payload":
        return False  # the event's or call's own row is the one to resolve
    if row.state is RowState.SETTLED:
        return row.outcome is OutcomeToken.INDETERMINATE
    is_over = row.fence < fence or row.serial in given_up
    orphaned = row.state in (RowState.INTENDED, RowState.CANCELLING) and is_over
    return orphaned and row.kind in (RowKind.AT_MOST_ONCE, RowKind.CALL)


def open_entries(book: Book, moment: Moment, after: bytes) -> list[tuple[bytes, Entry | None]]:
    """Give the next page of keys above `after`, with an entry for each that waits for a person."""
    page: list[tuple[bytes, Entry | None]] = []
    for key in _keys_above(book, after):
        row = book.row(key)
        entry = None
        if row is not None and waits_for_a_person(key, row, moment.fence, moment.given_up):
            entry = describe_entry(key, row)
            if row.state is not RowState.SETTLED:
                entry = msgspec.structs.replace(entry, evidence=_INTERRUPTED)
        page.append((key, entry))
    return page


def _keys_above(book: Book, after: bytes) -> list[bytes]:
    """Give the next keys of rows that never expire, or are unkeyed: doubts of those have an age."""
    low, high = UNKEYED_RANGE
    unkeyed = book.keys_between(max(after, low), high, _PAGE) if after < high else []
    return sorted({*book.open_keys(after, _PAGE), *unkeyed})[:_PAGE]


def name_entry(entry: Entry) -> str:
    """Give the name that people call an entry by; any beginning of it that fits one entry will do."""
    return idempotency_key_of(entry.key)


def is_named(entry: Entry, text: str) -> bool:
    """Say whether a person means this entry: the beginning of its name, or its whole key."""
    return name_entry(entry).startswith(text) or entry.idempotency_key == text


def find_entry(entries: Iterable[Entry], text: str) -> Entry:
    """Give the one entry that a person means; raises LedgerError where that is none, or several."""
    found = [entry for entry in entries if is_named(entry, text)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise LedgerError(f"no entry that waits for a person is called {text}: see `ledger indeterminate`")
    names = ", ".join(name_entry(entry)[:NAME_LETTERS] for entry in found[:5])
    raise LedgerError(f"{len(found)} entries begin with {text}: {names}; give more letters")
