"""Keeps in the ledger what must survive this process: the session, its replies, and where each stream stands.

It decides nothing; the connection tells it of records and places, and asks for them at the next start.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from counterfoil.errors import LedgerError, StreamRecordUnreadable
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.ledger_rows import StreamMark
from counterfoil.model.stream import HeldEvent, Place, StreamRecord
from counterfoil.native import Scope
from counterfoil.protocol.client_stream.cf1_ids import read_cursor
from counterfoil.protocol.client_stream.record_codec import decode_record, encode_record
from counterfoil.stores.ledger_interface import Ledger

#: The row that names the session; no stream of a server is called so.
_SESSION = "=session"
#: Begins the rows of replies to the server's requests.
_REPLY = "=reply "
_VERSION = b"\x01"


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session that may be joined again; without an id it is over."""

    session_id: str | None
    revision: str
    honours_keys: bool = False


class Keeping:
    """What one connection keeps; `scope` and `server` are part of every key."""

    def __init__(self, ledger: Ledger, scope: Scope, server: str) -> None:
        self._ledger = ledger
        self._scope = scope
        self._server = server
        self._begun: dict[str, tuple[str, str]] = {}
        #: Streams whose record is in the ledger.
        self._kept: set[str] = set()

    def event_place(self, place: Place) -> EventPlace:
        """Return an event's place as the ledger names it."""
        return EventPlace(
            server=self._server,
            stream=place.stream,
            epoch=place.epoch,
            position=place.position,
            event_id=place.event_id,
            digest=place.digest,
            foreign=place.foreign,
        )

    # --- streams

    def begin(self, name: str, place: Place) -> None:
        """Put the base of a history before its first event, once."""
        history = (place.stream, place.epoch)
        before = self._begun.get(name)
        if before == history:
            return
        self._begun[name] = history
        if before is not None and before[0] != place.stream:
            self._end_mark(*before)
        base = msgspec.structs.replace(
            self.event_place(place), position=place.position - 1, event_id="", digest=""
        )
        with suppress(LedgerError):
            self._ledger.begin_stream(self._scope, base)

    def pass_over(self, name: str, place: Place) -> None:
        """Let the mark pass an event that has no effect, or whose effect is the application's own affair."""
        self.begin(name, place)
        with suppress(LedgerError):
            self._ledger.skip(self._scope, self.event_place(place))

    def keep(self, name: str, record: StreamRecord) -> None:
        """Keep a stream's record, in place of the one before."""
        place = EventPlace(
            server=self._server,
            stream=name,
            epoch=record.epoch,
            position=record.processed,
            event_id=record.held[-1].event_id if record.held else "",
            foreign=True,
        )
        self._kept.add(name)
        with suppress(LedgerError):
            self._ledger.begin_stream(self._scope, place, record=encode_record(record))

    def forget(self, name: str) -> None:
        """Forget what was begun of a stream; the ledger keeps it."""
        self._begun.pop(name, None)
        self._kept.discard(name)

    def end(self, name: str) -> None:
        """Let the ledger forget, in its time, where a stream stands that nobody will ask for again."""
        begun = self._begun.pop(name, None)
        if name in self._kept:
            self._kept.discard(name)
            self._end_mark(name, "")
        if begun is not None:
            self._end_mark(*begun)

    def end_history(self, place: Place) -> None:
        """Likewise for the server's stream that this event came with."""
        self._end_mark(place.stream, place.epoch)

    def _end_mark(self, stream: str, epoch: str) -> None:
        place = EventPlace(server=self._server, stream=stream, epoch=epoch, position=0, event_id="")
        with suppress(LedgerError):
            self._ledger.begin_stream(self._scope, place, ended="ended")

    async def restore(self, name: str) -> StreamRecord | None:
        """Return the record of a stream with the position that its effects prove, None if there is none."""
        kept = await self._ledger.mark(self._scope, server=self._server, stream=name)
        if kept is None or not kept.record:
            return None
        try:
            record = decode_record(kept.record)
        except StreamRecordUnreadable:
            return None
        self._kept.add(name)
        cursor = read_cursor(record.held[-1].event_id) if record.held else None
        if cursor is None:
            return _moved(record, kept) if kept.epoch == record.epoch else record
        mark = await self._ledger.mark(self._scope, server=self._server, stream=cursor.stream)
        if mark is None or mark.epoch != cursor.epoch:
            return record
        return _moved(record, mark)

    async def drop(self, name: str) -> None:
        """End a stream of an earlier session, whose cursor nobody may be asked with."""
        record = await self.restore(name)
        cursor = None if record is None or not record.held else read_cursor(record.held[-1].event_id)
        if cursor is not None:
            self._end_mark(cursor.stream, cursor.epoch)

    # --- replies

    async def reply(self, key: str) -> bytes | None:
        """Return the reply that was kept under `key`, None if there is none."""
        try:
            kept = await self._ledger.mark(self._scope, server=self._server, stream=_REPLY + key)
        except LedgerError:
            return None
        return kept.record[1:] if kept is not None and kept.record[:1] == _VERSION else None

    async def keep_reply(self, key: str, body: bytes) -> None:
        """Keep a reply as long as an outcome is kept; returns once it is durable, or cannot be."""
        place = EventPlace(server=self._server, stream=_REPLY + key, epoch=_REPLY, position=0, event_id="")
        with suppress(LedgerError):
            await self._ledger.begin_stream(self._scope, place, ended="replied", record=_VERSION + body)

    # --- the session

    def keep_session(self, session: SessionRecord) -> None:
        """Keep the session to join at the next start."""
        place = EventPlace(server=self._server, stream=_SESSION, epoch=_SESSION, position=0, event_id="")
        with suppress(LedgerError):
            record = _VERSION + msgspec.msgpack.encode(session)
            self._ledger.begin_stream(self._scope, place, record=record)

    async def session(self) -> SessionRecord | None:
        """Return the session that was kept, if it may be joined."""
        kept = await self._ledger.mark(self._scope, server=self._server, stream=_SESSION)
        if kept is None or kept.record[:1] != _VERSION:
            return None
        try:
            session = msgspec.msgpack.decode(kept.record[1:], type=SessionRecord)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return session if session.session_id is not None else None


def _moved(record: StreamRecord, mark: StreamMark) -> StreamRecord:
    """Move a record to its mark, which its effects have moved since the record was kept."""
    if mark.processed <= record.processed or not mark.event_id:
        return record
    held = [event for event in record.held if event.position < mark.processed]
    at_mark = HeldEvent(position=mark.processed, event_id=mark.event_id, digest=mark.digest)
    return msgspec.structs.replace(record, processed=mark.processed, held=(*held[-1:], at_mark))
