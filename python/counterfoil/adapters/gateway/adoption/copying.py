"""Copies the events of a work to the stream of the caller that holds it now, rewritten for that caller.

From the work's first event on, so that its progress is whole; questions that were answered are left out.
"""

from __future__ import annotations

from counterfoil.adapters.gateway.adoption.entries import AdoptableCall, CallWork
from counterfoil.adapters.gateway.adoption.questions import Questions
from counterfoil.adapters.gateway.wire.rewriting import (
    Message,
    progress_token_of,
    read_rpc,
    with_id,
    with_progress_token,
)
from counterfoil.errors import (
    AnswerTooLarge,
    ReaderTooSlow,
    SessionEnded,
    StreamEnded,
    TakenOver,
    UnknownStream,
)
from counterfoil.limits import Limits
from counterfoil.model.tokens import Executed, Why
from counterfoil.native import SseParser
from counterfoil.protocol.inband_error import InbandError, write_inband_error
from counterfoil.stores.interface import LogReader, ReplayLog


class Copying:
    """One work on its way to one holder; `run` ends with the work, or when another one takes it."""

    def __init__(
        self, log: ReplayLog, work: CallWork, holder: AdoptableCall, questions: Questions, limits: Limits
    ) -> None:
        self._log = log
        self._work = work
        self._holder = holder
        self._questions = questions
        self._limits = limits
        self._own_token = progress_token_of(work.origin.request.body)
        self._new_token = progress_token_of(holder.request.body)
        self._position = 0

    async def run(self) -> None:
        """Copy until the work's stream has ended, and end the holder's likewise."""
        source = self._work.stream
        why: str | None = None
        try:
            while why is None:
                reader = await self._log.attach(source.scope, source.token, after=self._position)
                try:
                    why = await self._copy(reader)
                finally:
                    reader.close()
        except TakenOver:
            return
        except AnswerTooLarge:
            await self._holder.stream.settle(self._holder_error(Why.TOO_LARGE, Executed.YES))
            return
        except (SessionEnded, UnknownStream):
            why = "closed"
        await self._end(why)

    async def _copy(self, reader: LogReader) -> str | None:
        """Copy what a reader gives; None where reading goes on with another reader."""
        parser = SseParser(limits=self._limits, data="bytes")
        while True:
            try:
                frames = reader.read()
            except ReaderTooSlow as slow:
                self._position = slow.last
                return None
            except StreamEnded as end:
                # The end of the session that it was made in ends every reader, not the work.
                return None if end.why == "session" else end.why
            if not frames:
                await reader.wait()
                continue
            self._position = reader.position or self._position
            messages = [await self._rewrite(event.data) for event in parser.feed(frames) if event.data]
            await self._holder.stream.append([each for each in messages if each is not None])

    async def _rewrite(self, data: bytes) -> bytes | None:
        message = read_rpc(data)
        if message is None:
            return data
        if message.is_answer:
            return with_id(message, self._holder.request_id)
        if message.is_request:
            return await self._questions.pass_on(self._work.origin, self._holder, message)
        return self._progress(message) if message.method == "notifications/progress" else data

    def _progress(self, message: Message) -> bytes | None:
        return with_progress_token(message, self._own_token, self._new_token)

    async def _end(self, why: str) -> None:
        if why in ("cancelled", "idle"):
            await self._holder.stream.end("cancelled" if why == "cancelled" else "closed")
        else:
            # After "ended" the answer was copied, and this settles nothing any more.
            await self._holder.stream.settle(self._holder_error(Why.CLOSED, Executed.UNKNOWN))

    def _holder_error(self, why: Why, executed: Executed) -> bytes:
        return write_inband_error(InbandError(request_id=self._holder.request_id, why=why, executed=executed))
