"""Rows as people see them: entries, and the walk over those that wait for a person.

Every ledger and the `ledger` program read through it; it writes nothing.
"""

from __future__ import annotations

import msgspec

from counterfoil.model.ledger_keys import describe_key
from counterfoil.model.ledger_rows import LedgerRow, RowKind, RowState
from counterfoil.model.ledger_verdicts import Entry
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Book, Moment

_PAGE = 64
_INTERRUPTED = (
    "an earlier process wrote the intent and no outcome; it waits for the event to come again, or for you"
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
    )


def waits_for_a_person(key: bytes, row: LedgerRow, fence: int) -> bool:
    """Say whether nothing but a person, or the event coming again, can tell what became of a row."""
    if describe_key(key).what == "payload":
        return False  # the event's or call's own row is the one to resolve
    if row.state is RowState.SETTLED:
        return row.outcome is OutcomeToken.INDETERMINATE
    orphaned = row.state in (RowState.INTENDED, RowState.CANCELLING) and row.fence < fence
    return orphaned and row.kind in (RowKind.AT_MOST_ONCE, RowKind.CALL)


def open_entries(book: Book, moment: Moment, after: bytes) -> list[tuple[bytes, Entry | None]]:
    """Give the next page of keys above `after`, with an entry for each that waits for a person."""
    page: list[tuple[bytes, Entry | None]] = []
    for key in book.open_keys(after, _PAGE):
        row = book.row(key)
        entry = None
        if row is not None and waits_for_a_person(key, row, moment.fence):
            entry = describe_entry(key, row)
            if row.state is not RowState.SETTLED:
                entry = msgspec.structs.replace(entry, evidence=_INTERRUPTED)
        page.append((key, entry))
    return page
