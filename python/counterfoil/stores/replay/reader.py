"""The reader of one stream for one connection: pulls ready frames by sequence, waits for more, ends typed.

It must hold no queue: what was not read stays in the log.  Made by the replay store only.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from anyio.lowlevel import checkpoint

from counterfoil.errors import StreamEnded
from counterfoil.model.verdicts import ResumeVerdict
from counterfoil.native import ReaderCore, ResumeAnswer, StoredEvents, StreamToken
from counterfoil.stores.replay.judging import verdict_of
from counterfoil.stores.replay.wakeup import Waker

#: The largest piece that `read` returns.
MAX_PIECE_BYTES = 256 << 10


class Reader:
    """What a resume or an attachment gave: a verdict and, where something is attached, its frames.

    `answer` holds every fact that the verdict was made of (row, window, epoch, digest, what is attached, and
    what the caller must still do).  A reader serves one connection; closing or dropping it detaches it, and
    the stream goes on.
    """

    __slots__ = ("_core", "_verdict", "answer", "echo_id")

    def __init__(
        self,
        verdict: ResumeVerdict | None,
        answer: ResumeAnswer | None,
        core: ReaderCore | None,
        echo_id: str | None,
    ) -> None:
        self._verdict = verdict
        self.answer = answer
        #: The ID that an echo at the start of this connection carries: the position asked for, or, where the
        #: cursor was none of ours, the position attached at.  None where there is neither.
        self.echo_id = echo_id
        self._core = core

    @property
    def verdict(self) -> ResumeVerdict:
        """What was decided, made of `answer` when it is first asked for; `answer.why` costs less."""
        if self._verdict is None:
            if self.answer is None:
                raise ValueError("a reader has a verdict or an answer")
            self._verdict = verdict_of(self.answer)
        return self._verdict

    @property
    def core(self) -> ReaderCore | None:
        """The reader in Rust, for the relay step."""
        return self._core

    @property
    def is_attached(self) -> bool:
        """Whether there is anything to read; the verdict says why not."""
        return self._core is not None

    @property
    def is_answers_only(self) -> bool:
        """Whether only the call's answer (and later requests of the server) will be read."""
        return self.answer is not None and self.answer.attached == "answers"

    @property
    def is_parked(self) -> bool:
        """Whether a newer connection reads, and this one is only kept open with beats."""
        return self._core is not None and self._core.is_parked

    @property
    def has_caught_up(self) -> bool:
        """Whether everything that there is for this reader was read, so that `live` or `beat` may be sent."""
        return self._core is None or self._core.has_caught_up

    @property
    def has_read_answer(self) -> bool:
        """Whether all there is of a call's stream was read, its answer included."""
        return self._core is not None and self._core.has_read_answer

    @property
    def lendable(self) -> Reader | None:
        """This reader: a relay may read for it, as what was not read stays in the log."""
        return self

    @property
    def window(self) -> tuple[int, int] | None:
        """First and last sequence that could be replayed when the verdict was given; None if not told."""
        return self.answer.window if self.answer is not None else None

    @property
    def position(self) -> int | None:
        """The last sequence that was read; None where nothing is attached."""
        return self._core.position if self._core is not None else None

    @property
    def stream(self) -> StreamToken | None:
        """The stream that is attached, or that the cursor named."""
        return self.answer.stream if self.answer is not None else None

    def read(self, max_bytes: int = MAX_PIECE_BYTES) -> bytes:
        """Return ready frames after the position, ``b""`` if there are none yet.

        At most `max_bytes`, but one whole event at least, and never more than 256 KiB: an event above that
        comes in several pieces, and only the last one moves the position.  Raises `StreamEnded` when the
        stream is over and read to its end, `TakenOver`, `ReaderTooSlow`, `ReaderClosed`, and `ForkedHandle`
        in a forked process; each of them again at every later call.
        """
        if self._core is None:
            raise self._nothing_attached()
        return self._core.read(max_bytes)

    def read_events(self, max_bytes: int = MAX_PIECE_BYTES, *, max_events: int | None = None) -> StoredEvents:
        """Return the events that `read` would give frames of, as values: where no connection is written to.

        At most `max_events`, and as many as have frames of `max_bytes` (256 KiB at most), but one event at
        least.  Each is whole, however large, even if `read` has handed out a part of it.  Empty if there are
        none yet; raises what `read` raises.
        """
        if self._core is None:
            raise self._nothing_attached()
        return self._core.read_events(max_bytes, max_events=max_events)

    async def wait(self) -> None:
        """Return when `read` has something to say: frames, or its end.  A checkpoint in any case.

        Woken from any thread, once for each batch.  May be cancelled; nothing is lost by it.  Raises
        `ReaderBusy` if another task waits on this reader.
        """
        core = self._core
        if core is None:
            raise self._nothing_attached()
        waker = Waker()
        if not core.arm(waker):
            await checkpoint()
            return
        try:
            await waker.wait()
        finally:
            core.disarm()

    def close(self) -> None:
        """Detach: the connection is gone.  The stream goes on; closing twice does nothing."""
        if self._core is not None:
            self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _nothing_attached(self) -> StreamEnded:
        why = self.verdict.why.value
        error = StreamEnded(f"nothing is attached ({why}): act on the verdict")
        error.why = why
        return error
