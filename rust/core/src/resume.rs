//! Deciding a resume: the rows of the server's table, first match, with the reader's start in the same step.
//!
//! [`examine`] reads no storage; [`Store::resume`] is the authority's one atomic step.  What holds a
//! request back, asks another process or writes to a client is not here.

use crate::ids::{Check, Digest, EventId, IdError, KeyRing, Scope, StreamKind, StreamToken};
use crate::store::{EndWhy, Mode, OwnedId, Random, Start, Store, StoreError, Ticket};

/// What the text of a cursor shows before any storage is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Examined {
    /// There was none.
    NoCursor,
    /// An id of another scheme.
    Foreign,
    /// An id of another version of ours.
    Version,
    /// Ours, and no ID.
    Malformed,
    /// Signed with a key that we do not have.
    UnknownKey(EventId),
    /// Not made by us for this scope.
    Forged(EventId),
    /// Ours, and of this scope.
    Verified(EventId),
}

/// Reads and verifies a cursor.
#[must_use]
pub fn examine(keys: &KeyRing, scope: &Scope, cursor: Option<&[u8]>) -> Examined {
    let Some(cursor) = cursor else { return Examined::NoCursor };
    let id = match EventId::parse(cursor) {
        Ok(id) => id,
        Err(IdError::Foreign) => return Examined::Foreign,
        Err(IdError::Version { .. }) => return Examined::Version,
        Err(IdError::Malformed { .. }) => return Examined::Malformed,
    };
    match keys.check(scope, &id) {
        Check::Verified => Examined::Verified(id),
        Check::Forged => Examined::Forged(id),
        Check::UnknownKey => Examined::UnknownKey(id),
    }
}

/// A resume that is to be decided.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Whose stream it may be.
    pub scope: &'a Scope,
    /// What the cursor showed.
    pub cursor: Examined,
    /// The client reads `Stream-Continuity`.
    pub is_aware: bool,
    /// It asked for the stream anew (`want=new`).
    pub wants_new: bool,
    /// A lost or unverifiable standalone stream is attached all the same, its loss being told.
    pub attach_lost: bool,
    /// Which process a new standalone stream belongs to.
    pub owner: u32,
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The stream begins here.
    New,
    /// All missed events follow, in order.
    Resumed,
    /// Events are lost for good.
    Gap,
    /// The history is another one.
    Reoriginated,
    /// The cursor was not made by us for this scope.
    Forged,
    /// Nobody can tell.
    Unverifiable,
}

/// The reason of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Never written to a connection, and held since it began.
    First,
    /// Asked for anew.
    Wanted,
    /// Every event after the cursor is there.
    Held,
    /// Nothing was missed, and the stream is over.
    Ended,
    /// A read before, and no cursor.
    NoCursor,
    /// Another scheme.
    ForeignId,
    /// No ID.
    Malformed,
    /// The MAC failed.
    Mac,
    /// Another version.
    Version,
    /// A key that we do not have.
    Key,
    /// Never opened here, or forgotten.
    UnknownStream,
    /// Another epoch.
    Epoch,
    /// Beyond the end.
    Ahead,
    /// Older than the window.
    Trimmed,
    /// Another digest at that sequence.
    Diverged,
}

/// What the client should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// Read on.
    Continue,
    /// Compare with durable state.
    Reconcile,
    /// Do not come back with this cursor.
    Stop,
    /// Nothing more will come.
    Done,
}

/// What is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attached {
    /// Nothing.
    Nothing,
    /// A reader of everything.
    Events,
    /// A reader of the answer only.
    Answers,
}

/// What the caller of a lost call must still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settle {
    /// Nothing.
    Nothing,
    /// Append the in-band error by [`Store::settle`]: the stream has no terminal event.  A reader that is
    /// attached reads it.
    Append,
    /// Write the in-band error without ID: its terminal event is gone.
    Write,
}

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// Which row of the table matched.
    pub row: u8,
    /// The verdict.
    pub verdict: Verdict,
    /// Its reason.
    pub why: Why,
    /// What the client should do.
    pub next: Next,
    /// The sequence asked for; from row 8 on, and where the stream was found.
    pub asked: Option<u64>,
    /// The window then: its first and its last sequence.  The first is one more when it is empty.
    pub window: Option<(u64, u64)>,
    /// The position that the reader starts after, and the digest there.
    pub after: Option<(u64, Digest)>,
    /// The first and the last sequence lost.
    pub gap: Option<(u64, u64)>,
    /// Requests whose answers were in the gap, or will never come.
    pub request_ids: Vec<OwnedId>,
    /// Requests of the server that left the window and may be unanswered.
    pub lost_requests: Vec<OwnedId>,
    /// The stream that is attached, or that the cursor names.
    pub stream: Option<StreamToken>,
    /// The current epoch, from row 8 on or where a stream is attached.
    pub epoch: Option<crate::ids::Epoch>,
    /// What is attached.
    pub attached: Attached,
    /// Its reader.
    pub reader: Option<Ticket>,
    /// What the caller must still do.
    pub settle: Settle,
    /// Why the stream is over, if it is.
    pub ended: Option<EndWhy>,
    /// How long the connection is to be held before it is answered: it came back too often for nothing.
    pub hold_ms: u64,
}

impl Resumption {
    fn refused(row: u8, verdict: Verdict, why: Why, next: Next) -> Self {
        Self {
            row,
            verdict,
            why,
            next,
            asked: None,
            window: None,
            after: None,
            gap: None,
            request_ids: Vec::new(),
            lost_requests: Vec::new(),
            stream: None,
            epoch: None,
            attached: Attached::Nothing,
            reader: None,
            settle: Settle::Nothing,
            ended: None,
            hold_ms: 0,
        }
    }
}

/// Facts of a stream that was found, for rows 8 to 14.
#[derive(Clone, Copy, Debug)]
struct Facts {
    same_epoch: bool,
    asked: u64,
    first: u64,
    last: u64,
    /// Whether the digest at `asked` is the cursor's; only looked at when `asked` is in the window or just before it.
    same_digest: bool,
    has_ended: bool,
}

/// Rows 8 to 14, first match.
fn judge(facts: &Facts) -> (u8, Verdict, Why, Next) {
    if !facts.same_epoch {
        return (8, Verdict::Reoriginated, Why::Epoch, Next::Reconcile);
    }
    if facts.asked > facts.last {
        return (9, Verdict::Reoriginated, Why::Ahead, Next::Reconcile);
    }
    if facts.asked + 1 < facts.first {
        return (10, Verdict::Gap, Why::Trimmed, Next::Reconcile);
    }
    if !facts.same_digest {
        return (11, Verdict::Reoriginated, Why::Diverged, Next::Reconcile);
    }
    if facts.asked == facts.last {
        return if facts.has_ended {
            (12, Verdict::Resumed, Why::Ended, Next::Done)
        } else {
            (13, Verdict::Resumed, Why::Held, Next::Continue)
        };
    }
    (14, Verdict::Resumed, Why::Held, Next::Continue)
}

impl<W> Store<W> {
    /// Decides a resume, first match, and attaches the reader in the same step.
    ///
    /// `random` is called at most once, if a standalone stream has to be minted.
    ///
    /// # Errors
    /// [`StoreError::SessionEnded`] (row 1: answer 404), [`StoreError::NoScope`], or
    /// [`StoreError::Limit`] where a standalone stream had to be minted and could not.
    pub fn resume(
        &mut self,
        ask: &Ask<'_>,
        random: &mut dyn FnMut() -> Random,
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<Resumption, StoreError> {
        self.tick(now_ms, woken);
        let is_known = self.check_session(ask.scope)?;
        let resumption = match ask.cursor {
            Examined::NoCursor => self.resume_without_cursor(ask, is_known, random, woken)?,
            Examined::Foreign => {
                self.refuse(ask, 3, Verdict::Unverifiable, Why::ForeignId, None, random, woken)?
            }
            Examined::Malformed => Resumption::refused(4, Verdict::Forged, Why::Malformed, Next::Stop),
            Examined::Forged(id) => {
                self.refuse(ask, 4, Verdict::Forged, Why::Mac, Some(id), random, woken)?
            }
            Examined::Version => {
                self.refuse(ask, 5, Verdict::Unverifiable, Why::Version, None, random, woken)?
            }
            Examined::UnknownKey(id) => {
                self.refuse(ask, 5, Verdict::Unverifiable, Why::Key, Some(id), random, woken)?
            }
            Examined::Verified(id) => match self.look_up(ask.scope, &id.stream) {
                None => {
                    self.refuse(ask, 7, Verdict::Unverifiable, Why::UnknownStream, Some(id), random, woken)?
                }
                Some(index) => self.resume_stream(ask, index, &id, random, woken)?,
            },
        };
        self.count_row(resumption.row);
        Ok(resumption)
    }

    /// Rows 3, 4, 5 and 7: no stream was found.  The session's own standalone stream is attached to a
    /// reader that lost one, if the caller says so; a call is never attached.
    #[allow(clippy::too_many_arguments)]
    fn refuse(
        &mut self,
        ask: &Ask<'_>,
        row: u8,
        verdict: Verdict,
        why: Why,
        id: Option<EventId>,
        random: &mut dyn FnMut() -> Random,
        woken: &mut Vec<W>,
    ) -> Result<Resumption, StoreError> {
        let next = if verdict == Verdict::Forged { Next::Stop } else { Next::Reconcile };
        let mut resumption = Resumption::refused(row, verdict, why, next);
        resumption.stream = id.map(|id| id.stream);
        let is_call = id.is_some_and(|id| id.stream.kind() == StreamKind::Call);
        if ask.attach_lost && !is_call {
            let index = self.standalone_at(ask.scope, ask.owner, random, woken)?;
            let first = self.window(index).0;
            self.start(&mut resumption, index, Mode::All, first - 1, ask.is_aware, woken);
        }
        Ok(resumption)
    }

    /// Row 2.
    fn resume_without_cursor(
        &mut self,
        ask: &Ask<'_>,
        is_known: bool,
        random: &mut dyn FnMut() -> Random,
        woken: &mut Vec<W>,
    ) -> Result<Resumption, StoreError> {
        let refused = Resumption::refused(2, Verdict::Unverifiable, Why::NoCursor, Next::Reconcile);
        if !is_known && !ask.wants_new && !ask.attach_lost {
            return Ok(refused);
        }
        let index = self.standalone_at(ask.scope, ask.owner, random, woken)?;
        self.count_lookup();
        let (first, last) = self.window(index);
        if ask.wants_new {
            let mut wanted = Resumption::refused(2, Verdict::New, Why::Wanted, Next::Continue);
            self.start(&mut wanted, index, Mode::All, last, ask.is_aware, woken);
            return Ok(wanted);
        }
        // An event that left the window before anybody read it was held no longer.
        if self.is_untouched(index) && first == 1 {
            let mut fresh = Resumption::refused(2, Verdict::New, Why::First, Next::Continue);
            self.start(&mut fresh, index, Mode::All, 0, ask.is_aware, woken);
            return Ok(fresh);
        }
        let mut resumption = refused;
        if ask.attach_lost {
            let after = self.written(index).max(first - 1);
            self.start(&mut resumption, index, Mode::All, after, ask.is_aware, woken);
        }
        Ok(resumption)
    }

    /// Rows 8 to 14.
    fn resume_stream(
        &mut self,
        ask: &Ask<'_>,
        index: u32,
        id: &EventId,
        random: &mut dyn FnMut() -> Random,
        woken: &mut Vec<W>,
    ) -> Result<Resumption, StoreError> {
        self.trim_window(index);
        let asked = id.sequence.get();
        let facts = self.facts(index, id);
        let (row, verdict, why, next) = judge(&facts);
        let mut resumption = Resumption::refused(row, verdict, why, next);
        resumption.asked = Some(asked);
        resumption.window = Some((facts.first, facts.last));
        resumption.stream = Some(id.stream);
        self.describe(&mut resumption, index);
        if row == 10 {
            resumption.gap = Some((asked + 1, facts.first - 1));
        }
        let is_call = id.stream.kind() == StreamKind::Call;
        match row {
            12 => resumption.after = Some((asked, id.digest)),
            13 | 14 => self.start(&mut resumption, index, Mode::All, asked, ask.is_aware, woken),
            _ if is_call => self.attach_for_answer(ask, &mut resumption, index, woken),
            _ if ask.attach_lost => {
                // One that has ended never says anything again; its session's may be another by now.
                let index = if facts.has_ended {
                    self.standalone_at(ask.scope, ask.owner, random, woken)?
                } else {
                    index
                };
                let first = self.window(index).0;
                self.start(&mut resumption, index, Mode::All, first - 1, ask.is_aware, woken);
            }
            _ => {}
        }
        if is_call {
            self.note_debt(&mut resumption, index);
        }
        Ok(resumption)
    }

    /// A call that ended without its answer is waited for by a reader that has, or gets, all there is.
    fn note_debt(&self, resumption: &mut Resumption, index: u32) {
        let Some(debt) = self.debt_of(index) else { return };
        resumption.request_ids = debt.request_ids;
        resumption.settle = if debt.takes_error { Settle::Append } else { Settle::Write };
    }

    /// A call whose cursor is refused still gets its answer, whenever that is stored or may still come.
    fn attach_for_answer(
        &mut self,
        ask: &Ask<'_>,
        resumption: &mut Resumption,
        index: u32,
        woken: &mut Vec<W>,
    ) {
        let (is_live, holds_answer, request_ids) = self.answers_of(index);
        let (first, last) = self.window(index);
        if resumption.row == 10 {
            let from = resumption.asked.unwrap_or(0);
            resumption.lost_requests = self.requests_lost_in(index, from, first);
        }
        if is_live || holds_answer {
            // Behind a diverged cursor nothing is known to have been read; behind a trimmed one all before it.
            let position = if resumption.row == 10 { resumption.asked.unwrap_or(0) } else { 0 };
            let mode = Mode::Answers { requests_after: last };
            self.start(resumption, index, mode, position, ask.is_aware, woken);
            resumption.after = None;
            resumption.attached = Attached::Answers;
            resumption.next = Next::Continue;
            return;
        }
        resumption.request_ids = request_ids;
        resumption.settle = Settle::Write;
    }

    fn start(
        &mut self,
        resumption: &mut Resumption,
        index: u32,
        mode: Mode,
        position: u64,
        is_aware: bool,
        woken: &mut Vec<W>,
    ) {
        self.describe(resumption, index);
        resumption.after = self.digest_at(index, position).map(|digest| (position, digest));
        let reader = self.attach_at(index, Start { mode, position, is_aware }, woken);
        resumption.hold_ms = self.hold_ms(index, reader);
        resumption.reader = Some(reader);
        resumption.attached = Attached::Events;
    }
}

impl<W> Store<W> {
    fn facts(&self, index: u32, id: &EventId) -> Facts {
        let (first, last) = self.window(index);
        let asked = id.sequence.get();
        let (epoch, has_ended) = self.epoch_and_end(index);
        Facts {
            same_epoch: epoch == Some(id.epoch),
            asked,
            first,
            last,
            same_digest: self.digest_at(index, asked) == Some(id.digest),
            has_ended,
        }
    }
}
