//! What the resume decision asks of a stream; none of it changes anything but counters.

use crate::ids::{write_id, Digest, Epoch, Scope, Sequence, StreamToken};
use crate::resume::Resumption;

use super::stream::{OwnedId, State, Stream, NONE};
use super::{Random, Store, StoreError};

/// A call that ended without all its answers.
pub(crate) struct Debt {
    /// Whether the error that settles it can be stored.
    pub(crate) takes_error: bool,
    /// The requests of its stream.
    pub(crate) request_ids: Vec<OwnedId>,
}

impl<W> Store<W> {
    /// Whether the session is known; an error if it is known to be over for this principal.
    pub(crate) fn check_session(&mut self, scope: &Scope) -> Result<bool, StoreError> {
        let known = self.session_of(scope)?;
        if let Some(session) = known {
            self.touch_session(session);
        }
        Ok(known.is_some_and(|session| self.sessions.get(session).is_some_and(|session| session.is_held)))
    }

    /// The stream of a verified cursor: the one look-up that a resume may cost.
    pub(crate) fn look_up(&mut self, scope: &Scope, token: &StreamToken) -> Option<u32> {
        self.count_lookup();
        let index = self.find(scope, token).ok()?;
        self.streams.get(index).filter(|stream| !stream.is_kept).map(|_| index)
    }

    pub(crate) fn count_lookup(&mut self) {
        self.counts.lookups += 1;
    }

    pub(crate) fn count_row(&mut self, row: u8) {
        if let Some(count) = self.counts.rows.get_mut(usize::from(row)) {
            *count += 1;
        }
    }

    pub(crate) fn standalone_at(
        &mut self,
        scope: &Scope,
        owner: u32,
        random: &mut dyn FnMut() -> Random,
        woken: &mut Vec<W>,
    ) -> Result<u32, StoreError> {
        let index = self.standalone_of(scope, owner, random, woken)?;
        self.trim_old(index);
        Ok(index)
    }

    pub(crate) fn trim_window(&mut self, index: u32) {
        self.trim_old(index);
    }

    pub(crate) fn window(&self, index: u32) -> (u64, u64) {
        self.streams
            .get(index)
            .map_or((1, 0), |stream| (stream.ring.first_sequence(), stream.ring.last_sequence()))
    }

    pub(crate) fn written(&self, index: u32) -> u64 {
        self.streams.get(index).map_or(0, |stream| stream.written)
    }

    /// Never written to any connection, and held since its session's `initialize`.
    pub(crate) fn is_untouched(&self, index: u32) -> bool {
        self.streams.get(index).is_some_and(|stream| {
            !stream.was_written && self.sessions.get(stream.session).is_some_and(|session| session.is_held)
        })
    }

    pub(crate) fn epoch_and_end(&self, index: u32) -> (Option<Epoch>, bool) {
        self.streams.get(index).map_or((None, true), |stream| (stream.epoch(), !stream.is_live()))
    }

    /// Writes the ID of a position, which an echo carries, into `id` (cleared first); false if the digest
    /// there is known no longer, or not yet.
    ///
    /// # Errors
    /// [`StoreError::UnknownStream`].
    pub fn position_id(
        &mut self,
        scope: &Scope,
        token: &StreamToken,
        position: u64,
        now_ms: u64,
        id: &mut Vec<u8>,
        woken: &mut Vec<W>,
    ) -> Result<bool, StoreError> {
        self.tick(now_ms, woken);
        id.clear();
        let index = self.find(scope, token)?;
        let Some(digest) = self.digest_at(index, position) else { return Ok(false) };
        let Some(sequence) = Sequence::new(position) else { return Ok(false) };
        let Some(stream) = self.streams.get(index) else { return Ok(false) };
        write_id(id, stream.prefix_at(position).0, sequence, digest);
        Ok(true)
    }

    pub(crate) fn digest_at(&self, index: u32, sequence: u64) -> Option<Digest> {
        self.streams.get(index)?.ring.digest_at(sequence)
    }

    /// Live, holds an answer that can be read, and which requests it answers.
    pub(crate) fn answers_of(&self, index: u32) -> (bool, bool, Vec<OwnedId>) {
        self.streams.get(index).map_or((false, false, Vec::new()), |stream| {
            (stream.is_live(), stream.holds_answer(), stream.request_ids())
        })
    }

    /// What a stream owes that ended without all its answers.
    pub(crate) fn debt_of(&self, index: u32) -> Option<Debt> {
        let stream = self.streams.get(index).filter(|stream| !stream.is_live() && !stream.has_answer)?;
        // A tombstone takes nothing, so what would settle its call is not stored.
        let takes_error = !matches!(stream.state, State::Tombstone(_));
        Some(Debt { takes_error, request_ids: stream.request_ids() })
    }

    /// Requests of the server with sequences after `asked` and before `first`.
    pub(crate) fn requests_lost_in(&self, index: u32, asked: u64, first: u64) -> Vec<OwnedId> {
        let lost =
            self.streams.get(index).and_then(|stream| stream.rare.as_ref()).map(|rare| &rare.lost_requests);
        lost.into_iter()
            .flatten()
            .filter(|(sequence, _)| *sequence > asked && *sequence < first)
            .map(|(_, id)| id.clone())
            .collect()
    }

    /// Fills in what may be said of a stream that was found.
    pub(crate) fn describe(&self, resumption: &mut Resumption, index: u32) {
        let Some(stream) = self.streams.get(index) else { return };
        resumption.stream = stream.token().or(resumption.stream);
        resumption.epoch = stream.epoch();
        resumption.ended = stream.end_why();
        resumption.window.get_or_insert((stream.ring.first_sequence(), stream.ring.last_sequence()));
    }

    /// The session's standalone stream, if it has one that lives.
    #[must_use]
    pub fn standalone(&mut self, scope: &Scope) -> Option<StreamToken> {
        let session = self.session_of(scope).ok()??;
        let index = self.sessions.get(session).map_or(NONE, |session| session.standalone);
        self.streams.get(index).filter(|stream| stream.is_live()).and_then(Stream::token)
    }
}
