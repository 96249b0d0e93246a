//! Many rings under one budget: sessions, streams, their readers, and what is left after their end.
//!
//! Every call names its scope and the time, and the largest time seen counts.  Nothing runs in the
//! background: what is due is swept by the calls that come.  `W` is whatever wakes a reader; the
//! store hands every one back and drops none, since dropping may run code of the caller.

mod append;
mod arena;
mod calm;
mod error;
mod event_ids;
mod idle_sessions;
mod limits;
mod questions;
mod readers;
mod room;
mod run;
mod session;
mod shares;
mod statistics;
mod stream;
mod sweep;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};

use twox_hash::XxHash3_64;

use crate::ids::{DigestChain, Epoch, IdPrefix, KeyRing, LongSecret, Scope, StreamKind, StreamToken};
use crate::ring::{Ring, Slabs};

pub use append::{Appended, NewEvent};
use arena::Arena;
pub use arena::Ticket;
use calm::Calm;
pub use error::StoreError;
pub use event_ids::EventIds;
use idle_sessions::{Found, IdleSessions, Owner};
pub use limits::{LimitError, StoreLimits, MIN_RESERVE_BYTES, STREAM_BYTES};
use readers::Reader;
pub use readers::{Armed, Plan, ReaderEnd, LEAD, MAX_PIECE_BYTES};
pub(crate) use readers::{Mode, Start};
use room::Room;
pub(crate) use run::Run;
use session::Session;
use shares::Shares;
pub use statistics::{Statistics, ROWS};
pub use stream::{EndWhy, OwnedId};
use stream::{State, Stream, NONE};
use sweep::Due;

/// How many sessions' live streams a scope without session may have.
const SESSIONS_OF_ONE: usize = 32;

/// Random bytes for one stream: its name and its first epoch.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// The 96 bits of the stream's name.
    pub name: [u8; 12],
    /// The 64 bits of an epoch.
    pub epoch: [u8; 8],
}

/// The first 72 bits of a token's random name, as they stand in its text.
type Name = [u8; 12];

fn name_of(token: &[u8]) -> Name {
    let mut name = [0; 12];
    if let Some(text) = token.get(1..13) {
        name.copy_from_slice(text);
    }
    name
}

/// Seeded, because the texts that are hashed come from clients.
#[derive(Clone)]
struct Seed(u64);

impl Seed {
    /// Whose sessions these are, as far as anybody knows.
    fn owner_of(&self, scope: &Scope) -> Owner {
        self.hash_one((scope.tenant(), scope.principal()))
    }
}

struct Keyed(XxHash3_64);

impl BuildHasher for Seed {
    type Hasher = Keyed;

    fn build_hasher(&self) -> Keyed {
        Keyed(XxHash3_64::with_seed(self.0))
    }
}

impl Hasher for Keyed {
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

/// For names that we drew at random ourselves: eight of their bytes are a hash already.
#[derive(Clone, Default)]
struct NameHash(u64);

impl BuildHasher for NameHash {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        self.clone()
    }
}

impl Hasher for NameHash {
    fn finish(&self) -> u64 {
        // Base64 leaves the top bits of each byte alike; a multiplication spreads the others upwards.
        (self.0 ^ (self.0 >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks_exact(8) {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            self.0 = self.0.rotate_left(32) ^ u64::from_le_bytes(eight);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

/// The replay log of one process.
pub struct Store<W> {
    limits: StoreLimits,
    keys: KeyRing,
    /// Counts key rings, so that a stream sees that its prefix was signed by an earlier one.
    key_turn: u32,
    slabs: Slabs,
    streams: Arena<Stream>,
    by_name: HashMap<Name, u32, NameHash>,
    sessions: Arena<Session>,
    by_scope: HashMap<Box<[u8]>, u32, Seed>,
    readers: Arena<Reader<W>>,
    /// By second; entries that are stale are dropped when they are met.
    due: BTreeMap<u32, Vec<Due>>,
    /// When the first of them is due, or earlier.
    next_due_ms: u64,
    /// Oldest first; an entry whose stream is gone is dropped when it is met.
    tombstones: VecDeque<Ticket>,
    ended_sessions: VecDeque<Ticket>,
    idle_sessions: IdleSessions,
    shares: Shares,
    calm: Calm,
    charged: usize,
    now_ms: u64,
    counts: Statistics,
    key: Vec<u8>,
    /// The stream of the last append: the next one is to the same, as a rule.
    recent: u32,
    /// That of its digest chain, for the same reason.
    secret: LongSecret,
}

impl<W> Store<W> {
    /// An empty store.  `seed` is random; it keeps clients from choosing how sessions are hashed.
    ///
    /// # Errors
    /// [`LimitError`] for a bound that would make a promise impossible.
    pub fn new(limits: StoreLimits, keys: KeyRing, seed: u64) -> Result<Self, LimitError> {
        limits.check()?;
        Ok(Self {
            limits,
            keys,
            key_turn: 0,
            slabs: Slabs::default(),
            streams: Arena::default(),
            by_name: HashMap::default(),
            sessions: Arena::default(),
            by_scope: HashMap::with_hasher(Seed(seed)),
            readers: Arena::default(),
            due: BTreeMap::new(),
            next_due_ms: u64::MAX,
            tombstones: VecDeque::new(),
            ended_sessions: VecDeque::new(),
            idle_sessions: IdleSessions::new(Seed(seed)),
            shares: Shares::new(Seed(seed)),
            calm: Calm::new(Seed(seed)),
            charged: 0,
            now_ms: 0,
            counts: Statistics::default(),
            key: Vec::new(),
            recent: NONE,
            secret: LongSecret::default(),
        })
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> &StoreLimits {
        &self.limits
    }

    /// Signs new streams and new appends with another ring.  Frames that are stored keep their tags,
    /// and digests go on: an epoch's digest key is fixed when the epoch is minted.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.keys = keys;
        self.key_turn = self.key_turn.wrapping_add(1);
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            sessions: self.sessions.len() - self.counts.ended_sessions,
            readers: self.readers.len(),
            charged_bytes: self.charged,
            window_events: self.streams.values().map(|stream| stream.ring.len()).sum(),
            window_bytes: self.slabs.pages() * crate::ring::PAGE_BYTES,
            held_bytes: self.slabs.held_bytes(),
            ..self.counts
        }
    }

    /// Remembers a session from its `initialize` on, so that a standalone stream that was never
    /// written yet is known to be complete.
    ///
    /// # Errors
    /// [`StoreError::NoScope`], [`StoreError::SessionEnded`] or [`StoreError::Limit`].
    pub fn open_session(&mut self, scope: &Scope, now_ms: u64, woken: &mut Vec<W>) -> Result<(), StoreError> {
        self.tick(now_ms, woken);
        if let Some(session) = self.session_of(scope)? {
            self.touch_session(session);
            return Ok(());
        }
        self.make_session(scope, true, woken)?;
        Ok(())
    }

    /// Opens the stream of one POST.  `requests` are the ids that it answers: one, or a batch's.
    ///
    /// # Errors
    /// [`StoreError::Limit`] at a bound: nothing was opened, and nothing else is affected.
    pub fn open_call(
        &mut self,
        scope: &Scope,
        requests: &[OwnedId],
        owner: u32,
        random: Random,
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<StreamToken, StoreError> {
        self.tick(now_ms, woken);
        let Some(first) = requests.first() else { return Err(StoreError::NoRequest) };
        let named = if requests.len() == 1 { first.for_token() } else { None };
        let token = StreamToken::mint(StreamKind::Call, named, owner, random.name)
            .map_err(|_| StoreError::NoRequest)?;
        // Held twice: who asked, and who still waits.
        let listed_bytes = if named.is_some() { 0 } else { 2 * OwnedId::bytes_of(requests) };
        let index = self.open_stream(scope, &token, random.epoch, listed_bytes, woken)?;
        if let Some(stream) = self.streams.get_mut(index) {
            stream.owes_token = named.is_some();
            if named.is_none() {
                let rare = stream.rare();
                rare.requests = requests.to_vec();
                rare.open = requests.to_vec();
                rare.listed_bytes = listed_bytes;
            }
        }
        Ok(token)
    }

    /// The standalone stream of a session: the one it has, or a new one.
    ///
    /// # Errors
    /// As [`Store::open_call`].
    pub fn open_standalone(
        &mut self,
        scope: &Scope,
        owner: u32,
        random: Random,
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<StreamToken, StoreError> {
        self.tick(now_ms, woken);
        let index = self.standalone_of(scope, owner, &mut || random, woken)?;
        self.streams.get(index).and_then(Stream::token).ok_or(StoreError::UnknownStream)
    }

    /// Ends a stream without an answer: nothing more can be appended but the error that settles its call.
    ///
    /// # Errors
    /// [`StoreError::UnknownStream`].  Ending a stream twice keeps the first reason.
    pub fn end_stream(
        &mut self,
        scope: &Scope,
        token: &StreamToken,
        why: EndWhy,
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<(), StoreError> {
        self.tick(now_ms, woken);
        let index = self.find(scope, token)?;
        self.end_at(index, why, woken);
        Ok(())
    }

    /// Gives a standalone stream whose stored history broke a new epoch: sequences start again at 1.
    /// An aware reader's connection ends with [`EndWhy::Epoch`]; an unaware one's goes on in the new epoch.
    ///
    /// # Errors
    /// [`StoreError::UnknownStream`], also for a call: its stream has one epoch for life.
    pub fn renew_epoch(
        &mut self,
        scope: &Scope,
        token: &StreamToken,
        epoch: [u8; 8],
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<(), StoreError> {
        self.tick(now_ms, woken);
        let index = self.find(scope, token)?;
        let epoch = Epoch(epoch);
        let tag = self.keys.tag(scope, token, &epoch);
        let chain = DigestChain::start(&self.keys, scope, token, &epoch);
        let Some(stream) = self.streams.get_mut(index).filter(|stream| stream.is_standalone) else {
            return Err(StoreError::UnknownStream);
        };
        let before = stream.charge(&self.limits);
        stream.ring.forget(&mut self.slabs, chain.current());
        stream.ring = Ring::new(chain.current());
        stream.chain = chain;
        stream.prefix = IdPrefix::new(token, &epoch, &tag);
        stream.key_turn = self.key_turn;
        stream.written = 0;
        if let Some(rare) = &mut stream.rare {
            rare.older.clear();
            rare.lost_requests.clear();
        }
        let after = stream.charge(&self.limits);
        let (reader, session) = (stream.reader, stream.session);
        self.recharge(session, before, after);
        if let Some(session) = self.sessions.get_mut(session) {
            session.is_held = false;
        }
        self.carry_into_new_epoch(reader, woken);
        Ok(())
    }

    /// Deletes a session: ends its readers, purges its streams and tombstones, refuses later appends.
    ///
    /// Streams in `keep` (calls that nobody got the answer of) stay until they end and their grace is
    /// over: they can be appended to and read by [`Store::attach`], but no cursor reaches them.
    /// Returns the calls that were not answered, `keep` included.
    ///
    /// # Errors
    /// [`StoreError::NoScope`]; a session that was never seen here is remembered as ended all the same.
    pub fn delete_session(
        &mut self,
        scope: &Scope,
        keep: &[StreamToken],
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<Vec<StreamToken>, StoreError> {
        self.tick(now_ms, woken);
        let session = match self.session_of(scope) {
            Ok(Some(session)) => session,
            Ok(None) => self.make_session(scope, false, woken)?,
            Err(StoreError::SessionEnded) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut unanswered = Vec::new();
        let mut index = self.sessions.get(session).map_or(NONE, |session| session.first_stream);
        while index != NONE {
            let Some(stream) = self.streams.get_mut(index) else { break };
            let following = stream.following;
            let token = stream.token();
            if let Some(token) = token.filter(|_| !stream.is_standalone && stream.is_live()) {
                unanswered.push(token);
            }
            if token.is_some_and(|token| keep.contains(&token)) {
                stream.is_kept = true;
                self.end_readers(index, ReaderEnd::Ended(EndWhy::Session), woken);
            } else {
                self.purge(index, EndWhy::Session, woken);
            }
            index = following;
        }
        self.mark_ended(session, woken);
        Ok(unanswered)
    }

    /// The stream of a token in this scope.
    pub(crate) fn find(&self, scope: &Scope, token: &StreamToken) -> Result<u32, StoreError> {
        let index = *self.by_name.get(&name_of(token.as_bytes())).ok_or(StoreError::UnknownStream)?;
        let stream = self.streams.get(index).ok_or(StoreError::UnknownStream)?;
        let session = self.sessions.get(stream.session).ok_or(StoreError::UnknownStream)?;
        if stream.token_bytes() != token.as_bytes() || session.scope != *scope {
            return Err(StoreError::UnknownStream);
        }
        Ok(index)
    }

    /// As `find`, but asks first whether it is the one that was found last.
    fn find_recent(&mut self, scope: &Scope, token: &StreamToken) -> Result<u32, StoreError> {
        let is_same = self.streams.get(self.recent).is_some_and(|stream| {
            stream.token_bytes() == token.as_bytes()
                && self.sessions.get(stream.session).is_some_and(|session| session.scope == *scope)
        });
        if !is_same {
            self.recent = self.find(scope, token)?;
        }
        Ok(self.recent)
    }

    /// The session of a scope, if it is known; an error if it is known to be over for this principal.
    fn session_of(&mut self, scope: &Scope) -> Result<Option<u32>, StoreError> {
        if scope.session().is_none() && scope.principal().is_none() {
            return Err(StoreError::NoScope);
        }
        session::write_key(&mut self.key, scope);
        let Some(&index) = self.by_scope.get(self.key.as_slice()) else { return Ok(None) };
        match self.sessions.get(index) {
            Some(session) if session.has_ended || session.scope != *scope => Err(StoreError::SessionEnded),
            Some(_) => Ok(Some(index)),
            None => Ok(None),
        }
    }

    fn make_session(&mut self, scope: &Scope, is_held: bool, woken: &mut Vec<W>) -> Result<u32, StoreError> {
        if self.sessions.len() - self.counts.ended_sessions >= self.limits.sessions {
            self.sweep_due_now(woken);
        }
        if self.sessions.len() - self.counts.ended_sessions >= self.limits.sessions
            && !self.forget_idle_session(woken)
        {
            self.counts.refused += 1;
            return Err(StoreError::Limit { name: "sessions", limit: self.limits.sessions });
        }
        let ticket = self.sessions.insert(Session::new(scope.clone(), is_held, self.now_ms));
        session::write_key(&mut self.key, scope);
        self.by_scope.insert(self.key.as_slice().into(), ticket.index);
        self.schedule_session(ticket.index);
        self.list_if_idle(ticket.index);
        Ok(ticket.index)
    }

    /// Makes room for a session; false if every one has streams.
    fn forget_idle_session(&mut self, woken: &mut Vec<W>) -> bool {
        let sessions = &mut self.sessions;
        let taken = self.idle_sessions.take(|ticket| {
            let Some(session) = sessions.find(ticket).and_then(|index| sessions.get_mut(index)) else {
                return Found::Not;
            };
            if session.has_ended || session.held_streams > 0 {
                session.is_listed = false;
                return Found::Not;
            }
            Found::Idle(session.touched_ms)
        });
        let Some(index) = taken.and_then(|ticket| self.sessions.find(ticket)) else { return false };
        self.forget_session(index, woken);
        self.counts.forgotten_sessions += 1;
        true
    }

    /// A session that has no streams may go when there are too many.
    fn list_if_idle(&mut self, index: u32) {
        let Some(ticket) = self.sessions.ticket(index) else { return };
        let Some(session) = self.sessions.get_mut(index) else { return };
        if session.held_streams > 0 || session.is_listed || session.has_ended {
            return;
        }
        session.is_listed = true;
        let (owner, used_ms) = (self.by_scope.hasher().owner_of(&session.scope), session.touched_ms);
        self.idle_sessions.list(owner, ticket, used_ms);
    }

    /// One of its streams is over for good, but for its tombstone.
    fn let_go_of_stream(&mut self, session: u32) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.held_streams -= 1;
            if session.held_streams == 0 {
                self.shares.leave(std::mem::replace(&mut session.share, NONE));
            }
        }
        self.list_if_idle(session);
    }

    fn touch_session(&mut self, session: u32) {
        let now_ms = self.now_ms;
        if let Some(session) = self.sessions.get_mut(session) {
            session.touched_ms = now_ms;
        }
    }

    fn standalone_of(
        &mut self,
        scope: &Scope,
        owner: u32,
        random: &mut dyn FnMut() -> Random,
        woken: &mut Vec<W>,
    ) -> Result<u32, StoreError> {
        if let Some(session) = self.session_of(scope)? {
            let standalone = self.sessions.get(session).map_or(NONE, |session| session.standalone);
            if self.streams.get(standalone).is_some_and(Stream::is_live) {
                return Ok(standalone);
            }
        }
        let random = random();
        let token = StreamToken::mint(StreamKind::Standalone, None, owner, random.name)
            .map_err(|_| StoreError::UnknownStream)?;
        let index = self.open_stream(scope, &token, random.epoch, 0, woken)?;
        let session = self.streams.get(index).map_or(NONE, |stream| stream.session);
        if let Some(session) = self.sessions.get_mut(session) {
            session.standalone = index;
        }
        Ok(index)
    }

    /// The bound that another stream of this scope would pass.
    fn bound_for_stream(
        &mut self,
        scope: &Scope,
        cost: usize,
    ) -> Result<Option<(&'static str, usize)>, StoreError> {
        let known = self.session_of(scope)?;
        let live = known.and_then(|index| self.sessions.get(index)).map_or(0, |session| session.live_streams);
        // A principal without sessions makes all its calls in one scope, from all its clients.
        let of_one = match scope.session() {
            Some(_) => self.limits.session_streams,
            None => self.limits.session_streams.saturating_mul(SESSIONS_OF_ONE),
        };
        Ok(if self.streams.len() - self.counts.tombstones >= self.limits.streams {
            Some(("streams", self.limits.streams))
        } else if live >= of_one {
            Some(("session_streams", of_one))
        } else if cost > self.free() {
            Some(("total_bytes", self.limits.total_bytes))
        } else if cost > self.shares.room_of(scope, self.free(), self.limits.principal_share) {
            Some(("principal_share", self.limits.principal_share))
        } else {
            None
        })
    }

    fn open_stream(
        &mut self,
        scope: &Scope,
        token: &StreamToken,
        epoch: [u8; 8],
        listed_bytes: usize,
        woken: &mut Vec<W>,
    ) -> Result<u32, StoreError> {
        let cost = STREAM_BYTES + listed_bytes + self.limits.reserve_bytes;
        if self.bound_for_stream(scope, cost)?.is_some() {
            self.sweep_due_now(woken);
        }
        if let Some((name, limit)) = self.bound_for_stream(scope, cost)? {
            self.counts.refused += 1;
            return Err(StoreError::Limit { name, limit });
        }
        let known = self.session_of(scope)?;
        let name = name_of(token.as_bytes());
        if self.by_name.contains_key(&name) {
            return Err(StoreError::NameTaken);
        }
        let session = match known {
            Some(session) => session,
            None => self.make_session(scope, false, woken)?,
        };
        let epoch = Epoch(epoch);
        let tag = self.keys.tag(scope, token, &epoch);
        let prefix = IdPrefix::new(token, &epoch, &tag);
        let chain = DigestChain::start(&self.keys, scope, token, &epoch);
        let mut stream = Stream::new(token, prefix, chain, self.key_turn);
        stream.session = session;
        stream.touched_ms = self.now_ms;
        let index = self.streams.insert(stream).index;
        self.by_name.insert(name, index);
        self.link(session, index);
        self.recharge(session, 0, cost);
        self.counts.live_streams += 1;
        self.schedule_stream(index);
        Ok(index)
    }

    fn link(&mut self, session: u32, index: u32) {
        let Some(owner) = self.sessions.get_mut(session) else { return };
        let following = std::mem::replace(&mut owner.first_stream, index);
        if owner.held_streams == 0 {
            owner.share = self.shares.enter(&owner.scope);
        }
        owner.live_streams += 1;
        owner.held_streams += 1;
        owner.touched_ms = self.now_ms;
        if let Some(stream) = self.streams.get_mut(index) {
            stream.following = following;
        }
        if let Some(neighbour) = self.streams.get_mut(following) {
            neighbour.previous = index;
        }
    }

    fn unlink(&mut self, stream: &Stream, index: u32) {
        if let Some(previous) = self.streams.get_mut(stream.previous) {
            previous.following = stream.following;
        }
        if let Some(following) = self.streams.get_mut(stream.following) {
            following.previous = stream.previous;
        }
        let now_ms = self.now_ms;
        let Some(session) = self.sessions.get_mut(stream.session) else { return };
        if session.first_stream == index {
            session.first_stream = stream.following;
        }
        if session.standalone == index {
            session.standalone = NONE;
            // A stream that is gone may have had events that nobody got.
            session.is_held = false;
        }
        session.touched_ms = now_ms;
    }

    fn end_at(&mut self, index: u32, why: EndWhy, woken: &mut Vec<W>) {
        let Some(stream) = self.streams.get_mut(index).filter(|stream| stream.is_live()) else { return };
        let before = stream.charge(&self.limits);
        stream.state = State::Ended(why);
        stream.touched_ms = self.now_ms;
        let after = stream.charge(&self.limits);
        let (session, is_standalone) = (stream.session, stream.is_standalone);
        self.recharge(session, before, after);
        self.counts.live_streams -= 1;
        self.counts.ended_streams += 1;
        if let Some(session) = self.sessions.get_mut(session) {
            session.live_streams -= 1;
            // The next standalone stream does not go on where this one ended.
            session.is_held &= !is_standalone;
        }
        self.schedule_stream(index);
        self.wake(index, woken);
    }

    /// Trims what is too old in one stream.
    fn trim_old(&mut self, index: u32) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let before = stream.charge(&self.limits);
        let counts = &mut self.counts;
        Room { stream, slabs: &mut self.slabs, counts, limits: &self.limits, now_ms: self.now_ms }.trim_old();
        let after = stream.charge(&self.limits);
        let session = stream.session;
        self.recharge(session, before, after);
    }

    /// Charges a stream of `session` anew.
    #[inline]
    fn recharge(&mut self, session: u32, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.charged = self.charged + after - before;
        let share = self.sessions.get(session).map_or(NONE, |session| session.share);
        self.shares.recharge(share, before, after);
    }

    /// Bytes that are charged to nobody.  What others are sure of is charged already.
    #[inline]
    fn free(&self) -> usize {
        self.limits.total_bytes.saturating_sub(self.charged)
    }

    /// How much of that a stream of `session` may take, which wants no more than `enough`.
    #[inline]
    fn room_for(&self, session: u32, enough: usize) -> usize {
        let share = self.sessions.get(session).map_or(NONE, |session| session.share);
        self.shares.room(share, self.free(), self.limits.principal_share, enough)
    }

    /// Takes a stream out altogether.
    fn purge(&mut self, index: u32, why: EndWhy, woken: &mut Vec<W>) {
        self.end_readers_of_gone(index, why, woken);
        let Some(mut stream) = self.streams.remove(index) else { return };
        let charge =
            if matches!(stream.state, State::Tombstone(_)) { 0 } else { stream.charge(&self.limits) };
        self.recharge(stream.session, charge, 0);
        let digest = stream.digest();
        stream.ring.forget(&mut self.slabs, digest);
        self.by_name.remove(&name_of(stream.token_bytes()));
        match stream.state {
            State::Live => {
                self.counts.live_streams -= 1;
                if let Some(session) = self.sessions.get_mut(stream.session) {
                    session.live_streams -= 1;
                }
            }
            State::Ended(_) => self.counts.ended_streams -= 1,
            State::Tombstone(_) => self.counts.tombstones -= 1,
        }
        self.unlink(&stream, index);
        if !matches!(stream.state, State::Tombstone(_)) {
            self.let_go_of_stream(stream.session);
        }
        self.shrink();
    }

    fn mark_ended(&mut self, session: u32, woken: &mut Vec<W>) {
        let Some(record) = self.sessions.get_mut(session) else { return };
        record.has_ended = true;
        record.touched_ms = self.now_ms;
        self.counts.ended_sessions += 1;
        if let Some(ticket) = self.sessions.ticket(session) {
            self.ended_sessions.push_back(ticket);
        }
        while self.counts.ended_sessions > self.limits.ended_sessions {
            let Some(oldest) = self.ended_sessions.pop_front() else { break };
            if let Some(index) = self.sessions.find(oldest) {
                self.forget_session(index, woken);
            }
        }
    }

    /// Takes a session's record out; streams that were kept for an adopter go with it.
    fn forget_session(&mut self, index: u32, woken: &mut Vec<W>) {
        while let Some(stream) = self.sessions.get(index).map(|session| session.first_stream) {
            if stream == NONE {
                break;
            }
            self.purge(stream, EndWhy::Session, woken);
        }
        let Some(session) = self.sessions.remove(index) else { return };
        session::write_key(&mut self.key, &session.scope);
        self.by_scope.remove(self.key.as_slice());
        self.counts.ended_sessions -= usize::from(session.has_ended);
        let sessions = &self.sessions;
        self.idle_sessions.clean(2 * sessions.len() + 64, |ticket| sessions.find(ticket).is_some());
        // Those that went by their age are still listed here.
        if self.ended_sessions.len() > 2 * self.counts.ended_sessions + 64 {
            let sessions = &self.sessions;
            self.ended_sessions.retain(|&ticket| sessions.find(ticket).is_some());
        }
        self.shrink();
    }

    /// Gives the tables of a crowd back once it has left.
    fn shrink(&mut self) {
        const SPARSE: usize = 8;
        const SMALL: usize = 1024;
        if self.by_name.capacity() > SMALL && self.by_name.len() < self.by_name.capacity() / SPARSE {
            self.by_name.shrink_to(self.by_name.len() * 2);
        }
        if self.by_scope.capacity() > SMALL && self.by_scope.len() < self.by_scope.capacity() / SPARSE {
            self.by_scope.shrink_to(self.by_scope.len() * 2);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_are_forgotten_by_age_leave_no_entry_behind() {
        let limits = StoreLimits { session_idle_ms: 10_000, ..StoreLimits::default() };
        let mut store: Store<()> = Store::new(limits, KeyRing::ephemeral([7; 32], 0), 1).expect("legal");
        let mut woken = Vec::new();
        for number in 0..20_000_u64 {
            let session = format!("s{number}");
            let scope = Scope::new(None, None, Some(&session)).expect("short");
            store.delete_session(&scope, &[], number * 1000, &mut woken).expect("remembered as ended");
        }
        assert!(store.statistics().ended_sessions < 20);
        assert!(store.ended_sessions.len() < 200, "{} entries", store.ended_sessions.len());
    }

    /// What each tenant's principal is charged for, counted anew.
    fn held_anew(store: &Store<()>) -> Vec<(u32, usize)> {
        let mut held: BTreeMap<u32, usize> = BTreeMap::new();
        for stream in store.streams.values().filter(|stream| !matches!(stream.state, State::Tombstone(_))) {
            let share = store.sessions.get(stream.session).expect("its session").share;
            *held.entry(share).or_default() += stream.charge(&store.limits);
        }
        held.remove(&NONE);
        held.into_iter().collect()
    }

    #[test]
    fn shares_are_what_the_streams_of_each_principal_are_charged_for() {
        const TIMES: usize = 3;
        let limits = StoreLimits {
            total_bytes: 200_000,
            reserve_bytes: 4096,
            principal_share: TIMES,
            tombstones: 3,
            grace_ms: 5_000,
            tombstone_age_ms: 9_000,
            stream_idle_ms: 30_000,
            ..StoreLimits::default()
        };
        let mut store: Store<()> = Store::new(limits, KeyRing::ephemeral([7; 32], 0), 1).expect("legal");
        let scopes: Vec<Scope> = (0..9_usize)
            .map(|number| {
                let (principal, session) = (format!("p{}", number % 3), format!("s{number}"));
                let named = (number % 3 > 0).then_some(principal.as_str());
                Scope::new(None, named, Some(&session)).expect("short")
            })
            .collect();
        let mut streams: Vec<(usize, StreamToken)> = Vec::new();
        let mut drawn = 1_u64;
        let mut refused = 0;
        let woken = &mut Vec::new();
        for step in 0..20_000_u64 {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = (drawn >> 33) as usize;
            let now_ms = step * 20;
            let scope = value % scopes.len();
            let before = store.charged;
            let mut grown_by = None;
            match value / 16 % 16 {
                0..=2 => {
                    let mut name = [0; 12];
                    name[..8].copy_from_slice(&step.to_le_bytes());
                    let random = Random { name, epoch: [5; 8] };
                    let requests = [OwnedId::Integer(1)];
                    match store.open_call(&scopes[scope], &requests, 0, random, now_ms, woken) {
                        Ok(token) => streams.push((scope, token)),
                        Err(StoreError::Limit { name: "principal_share", .. }) => {
                            refused += 1;
                            let index = store.session_of(&scopes[scope]).expect("it lives");
                            assert!(index.is_some() && scopes[scope].principal().is_some());
                        }
                        Err(StoreError::Limit { .. } | StoreError::SessionEnded) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                3..=13 if !streams.is_empty() => {
                    let (scope, token) = &streams[value / 256 % streams.len()];
                    let data = vec![b'x'; 1 + value % 3000];
                    let batch = std::iter::repeat_n(data.as_slice(), 1 + value % 4);
                    let done = store.append_all(&scopes[*scope], token, batch, now_ms, woken);
                    grown_by = done.is_ok().then_some(*scope);
                }
                14 if !streams.is_empty() => {
                    let (scope, token) = streams.swap_remove(value / 256 % streams.len());
                    let _ = store.end_stream(&scopes[scope], &token, EndWhy::Closed, now_ms, woken);
                }
                _ if value % 50 == 0 => {
                    let _ = store.delete_session(&scopes[scope], &[], now_ms, woken);
                }
                _ => store.sweep(now_ms, woken),
            }
            let held = held_anew(&store);
            let counted: Vec<_> = held.iter().map(|&(share, _)| (share, store.shares.held(share))).collect();
            assert_eq!(counted, held);
            assert_eq!(store.shares.len(), held.len());
            assert!(store.charged <= limits.total_bytes);
            // Whoever has grown by an append keeps within its share, or has not grown beyond what it is sure of.
            if let Some(scope) = grown_by.filter(|_| store.charged > before) {
                let session = store.session_of(&scopes[scope]).ok().flatten();
                let share =
                    session.and_then(|index| store.sessions.get(index)).map_or(NONE, |found| found.share);
                assert!(share == NONE || store.shares.held(share) <= TIMES * store.free());
            }
        }
        assert!(refused > 20, "{refused}");
        store.sweep(u64::from(u32::MAX) * 1000, woken);
        store.sweep(u64::from(u32::MAX) * 1000 + 60_000, woken);
        assert_eq!((store.shares.len(), store.charged), (0, 0));
    }
}
