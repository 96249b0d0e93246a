//! One stream in the store: its ring, its state, what it still owes, and who reads it.

use std::borrow::Cow;

use crate::envelope::MessageId;
use crate::ids::{Digest, DigestChain, Epoch, IdPrefix, RequestId, StreamKind, StreamToken, EPOCH_CHARS};
use crate::ring::{Ring, PAGE_BYTES};

use super::arena::Ticket;
use super::limits::{StoreLimits, STREAM_BYTES};

/// No stream, no session.
pub(super) const NONE: u32 = u32::MAX;
/// The most requests of the server that are remembered to have left the window unanswered.
pub(super) const MAX_LOST_REQUESTS: usize = 64;
/// The longest id of such a request: the other side chooses it, and no budget is charged for it.
pub(super) const MAX_LOST_ID_BYTES: usize = 1024;

/// A request id that outlives the message it was read from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnedId {
    /// An integer.
    Integer(i64),
    /// A string.
    Text(Box<str>),
    /// Any other number, as it stood.
    Number(Box<str>),
}

impl OwnedId {
    /// The id of a message; `None` for `null`, which names no request.
    #[must_use]
    pub fn of(id: &MessageId<'_>) -> Option<Self> {
        match id {
            MessageId::Integer(number) => Some(Self::Integer(*number)),
            MessageId::Text(text) => Some(Self::Text(text.as_ref().into())),
            MessageId::Number(text) => Some(Self::Number((*text).into())),
            MessageId::Null => None,
        }
    }

    /// The same id borrowed, if an event ID has room for it.
    #[must_use]
    pub fn for_token(&self) -> Option<RequestId<'_>> {
        match self {
            Self::Integer(number) => Some(RequestId::Integer(*number)),
            Self::Text(text) => Some(RequestId::Text(text)),
            Self::Number(_) => None,
        }
        .filter(RequestId::fits)
    }

    /// What a list of them takes.
    pub(super) fn bytes_of(ids: &[Self]) -> usize {
        ids.iter().map(|id| size_of::<Self>() + id.bytes()).sum()
    }

    /// Bytes that it holds beside itself.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Integer(_) => 0,
            Self::Text(text) | Self::Number(text) => text.len(),
        }
    }

    pub(super) fn is(&self, id: &MessageId<'_>) -> bool {
        match (self, id) {
            (Self::Integer(ours), MessageId::Integer(theirs)) => ours == theirs,
            (Self::Text(ours), MessageId::Text(theirs)) => **ours == **theirs,
            (Self::Number(ours), MessageId::Number(theirs)) => **ours == **theirs,
            _ => false,
        }
    }
}

impl From<RequestId<'_>> for OwnedId {
    fn from(id: RequestId<'_>) -> Self {
        match id {
            RequestId::Integer(number) => Self::Integer(number),
            RequestId::Text(text) => Self::Text(text.into()),
        }
    }
}

fn is_same(ours: RequestId<'_>, theirs: &MessageId<'_>) -> bool {
    match (ours, theirs) {
        (RequestId::Integer(ours), MessageId::Integer(theirs)) => ours == *theirs,
        (RequestId::Text(ours), MessageId::Text(theirs)) => *theirs == Cow::Borrowed(ours),
        _ => false,
    }
}

/// Why a stream takes no more events, or a reader gets no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndWhy {
    /// Every request has its answer.
    Answered,
    /// Its owner closed it.
    Closed,
    /// Its call was cancelled.
    Cancelled,
    /// Nobody read or wrote for too long.
    Idle,
    /// Its session was deleted.
    Session,
    /// Its history broke, and a new epoch began.
    Epoch,
    /// Its answer went to an identical call.
    Adopted,
}

impl EndWhy {
    /// The token of the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "ended",
            Self::Closed => "closed",
            Self::Cancelled => "cancelled",
            Self::Idle => "idle",
            Self::Session => "session",
            Self::Epoch => "epoch",
            Self::Adopted => "adopted",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Live,
    /// Can still be read until its grace is over.
    Ended(EndWhy),
    /// Only where it ended is left.
    Tombstone(EndWhy),
}

/// An answer that left the window of a batch's stream before its grace was over.
pub(super) struct Pinned {
    pub(super) sequence: u64,
    pub(super) digest: Digest,
    /// As in the ring: without the shared part of the ID.
    pub(super) frame: Box<[u8]>,
}

/// What few streams have; boxed so that an idle stream stays small.
#[derive(Default)]
pub(super) struct Rare {
    /// Requests that a token cannot say: a batch's, or one whose id has no room there.
    pub(super) requests: Vec<OwnedId>,
    /// Which of them are not answered yet.
    pub(super) open: Vec<OwnedId>,
    /// What both take, charged as long as the stream is no tombstone: a client chooses how many and how long.
    pub(super) listed_bytes: usize,
    pub(super) pinned: Vec<Pinned>,
    /// Requests of the server that left the window, with their sequences.
    pub(super) lost_requests: Vec<(u64, OwnedId)>,
    /// Prefixes that earlier keys signed, each with the last sequence under it.
    pub(super) older: Vec<(u64, IdPrefix)>,
    pub(super) parked: Vec<Ticket>,
}

impl Rare {
    fn pinned_bytes(&self) -> usize {
        self.pinned.iter().map(|pinned| pinned.frame.len() + 32).sum()
    }
}

pub(super) struct Stream {
    pub(super) session: u32,
    /// Neighbours in the session's list.
    pub(super) previous: u32,
    pub(super) following: u32,
    /// Which signing key `prefix` was made with.
    pub(super) key_turn: u32,
    pub(super) prefix: IdPrefix,
    pub(super) chain: DigestChain,
    pub(super) ring: Ring,
    /// The furthest sequence of this epoch that was handed to a connection.
    pub(super) written: u64,
    pub(super) state: State,
    /// When it was last used while it lived, then when it ended or was buried.
    pub(super) touched_ms: u64,
    /// When it is looked at next; an earlier entry for it is stale.
    pub(super) due_s: u32,
    pub(super) reader: Option<Ticket>,
    pub(super) rare: Option<Box<Rare>>,
    pub(super) token_length: u8,
    pub(super) is_standalone: bool,
    /// Any event of any epoch was handed to a connection.
    pub(super) was_written: bool,
    /// Its terminal event is stored, or was.
    pub(super) has_answer: bool,
    /// The one request that the token names is not answered yet.
    pub(super) owes_token: bool,
    /// Survived the end of its session, for an adopter.
    pub(super) is_kept: bool,
}

impl Stream {
    pub(super) fn new(token: &StreamToken, prefix: IdPrefix, chain: DigestChain, key_turn: u32) -> Self {
        let start = chain.current();
        Self {
            session: NONE,
            previous: NONE,
            following: NONE,
            key_turn,
            prefix,
            chain,
            ring: Ring::new(start),
            written: 0,
            state: State::Live,
            touched_ms: 0,
            due_s: 0,
            reader: None,
            rare: None,
            // A token has at most 47 characters.
            token_length: token.as_bytes().len() as u8,
            is_standalone: token.kind() == StreamKind::Standalone,
            was_written: false,
            has_answer: false,
            owes_token: false,
            is_kept: false,
        }
    }

    pub(super) fn token_bytes(&self) -> &[u8] {
        // `cf1.<stream>.`
        self.prefix.as_bytes().get(4..4 + usize::from(self.token_length)).unwrap_or_default()
    }

    /// The token; the default is never taken, since its text was made from one.
    pub(super) fn token(&self) -> Option<StreamToken> {
        StreamToken::parse(self.token_bytes()).ok()
    }

    /// The epoch; the default is never taken, since the prefix was made from one.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        let start = 4 + usize::from(self.token_length) + 1;
        Epoch::parse(self.prefix.as_bytes().get(start..start + EPOCH_CHARS)?).ok()
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_with(Box::default)
    }

    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Used by a reader: that keeps a live stream from being idle.
    pub(super) fn touch(&mut self, now_ms: u64) {
        if self.is_live() {
            self.touched_ms = now_ms;
        }
    }

    #[inline]
    pub(super) fn end_why(&self) -> Option<EndWhy> {
        match self.state {
            State::Live => None,
            State::Ended(why) | State::Tombstone(why) => Some(why),
        }
    }

    pub(super) fn digest(&self) -> Digest {
        self.chain.current()
    }

    /// Whether an answer is stored and can be read.
    pub(super) fn holds_answer(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.pinned.is_empty())
            || (self.has_answer && matches!(self.state, State::Ended(_)))
    }

    /// Ids of the calls that this stream answers.
    pub(super) fn request_ids(&self) -> Vec<OwnedId> {
        let listed = self.rare.as_ref().map_or(&[][..], |rare| &rare.requests);
        if !listed.is_empty() {
            return listed.to_vec();
        }
        self.token().and_then(|token| token.request_id().map(OwnedId::from)).into_iter().collect()
    }

    /// Takes `id` off the open requests.
    pub(super) fn settle(&mut self, id: &MessageId<'_>) -> bool {
        if self.owes_token {
            let matches =
                self.token().is_some_and(|token| token.request_id().is_some_and(|ours| is_same(ours, id)));
            self.owes_token = !matches;
            return matches;
        }
        let Some(rare) = &mut self.rare else { return false };
        let Some(place) = rare.open.iter().position(|open| open.is(id)) else { return false };
        rare.open.swap_remove(place);
        true
    }

    /// Whether `id` names one of several requests of this stream, and it was answered.
    pub(super) fn has_answered(&self, id: &MessageId<'_>) -> bool {
        let Some(rare) = &self.rare else { return false };
        rare.requests.iter().any(|request| request.is(id)) && !rare.open.iter().any(|open| open.is(id))
    }

    /// Whether a request of this stream has no answer yet.
    pub(super) fn owes(&self) -> bool {
        self.owes_token || self.rare.as_ref().is_some_and(|rare| !rare.open.is_empty())
    }

    /// What is charged for a stream that holds `pages`.
    #[inline]
    pub(super) fn charge_with(&self, pages: usize, limits: &StoreLimits) -> usize {
        let used = pages * PAGE_BYTES;
        let (used, listed) = match &self.rare {
            None => (used, 0),
            Some(rare) => (used + rare.pinned_bytes(), rare.listed_bytes),
        };
        STREAM_BYTES + listed + if self.is_live() { used.max(limits.reserve_bytes) } else { used }
    }

    #[inline]
    pub(super) fn charge(&self, limits: &StoreLimits) -> usize {
        self.charge_with(self.ring.pages(), limits)
    }

    /// The prefix of `sequence`, and the last sequence that shares it.
    pub(super) fn prefix_at(&self, sequence: u64) -> (&IdPrefix, u64) {
        let older = self.rare.as_ref().map_or(&[][..], |rare| &rare.older);
        older
            .iter()
            .find(|(last, _)| sequence <= *last)
            .map_or((&self.prefix, u64::MAX), |(last, prefix)| (prefix, *last))
    }

    /// An answer that was moved out of the window.
    pub(super) fn pinned_after(&self, sequence: u64) -> impl Iterator<Item = &Pinned> {
        let pinned = self.rare.as_ref().map_or(&[][..], |rare| &rare.pinned);
        pinned.iter().filter(move |pinned| pinned.sequence > sequence)
    }
}
