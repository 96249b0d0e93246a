//! Which session goes when there are too many: one without streams, of whoever has most of them.
//!
//! So a flood of `initialize` pushes out its own sessions, and nobody else is refused.  All that is lost with
//! such a session is the knowledge that it was held since it began: its first GET is not `New` then.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};

use super::arena::Ticket;
use super::Seed;

/// Tenant and principal, hashed.
pub(super) type Owner = u64;
/// How many, since when, and whose: the last one of a set goes first.
type Rank = (usize, Reverse<u64>, Owner);

#[derive(Default)]
struct Listed {
    /// Least recently used first, as far as was known when it was listed.
    sessions: VecDeque<(Ticket, u64)>,
    rank: Option<Rank>,
}

/// What is known of a session that may go.
pub(super) enum Found {
    /// It is not there any more, or has streams.
    Not,
    /// Used at this time.
    Idle(u64),
}

pub(super) struct IdleSessions {
    owners: HashMap<Owner, Listed, Seed>,
    ranks: BTreeSet<Rank>,
    listed: usize,
}

impl IdleSessions {
    pub(super) fn new(seed: Seed) -> Self {
        Self { owners: HashMap::with_hasher(seed), ranks: BTreeSet::new(), listed: 0 }
    }

    /// A session has no streams; it is listed once at a time.
    pub(super) fn list(&mut self, owner: Owner, session: Ticket, used_ms: u64) {
        self.owners.entry(owner).or_default().sessions.push_back((session, used_ms));
        self.listed += 1;
        self.rank(owner);
    }

    /// Takes the one that goes.  `look` says what is true of a listed session now, and takes note that one which
    /// is `Not` is listed no longer.
    pub(super) fn take(&mut self, mut look: impl FnMut(Ticket) -> Found) -> Option<Ticket> {
        loop {
            let &(_, _, owner) = self.ranks.last()?;
            let listed = self.owners.get_mut(&owner)?;
            let (session, listed_ms) = listed.sessions.pop_front()?;
            self.listed -= 1;
            let found = look(session);
            if let Found::Idle(used_ms) = found {
                if used_ms > listed_ms {
                    listed.sessions.push_back((session, used_ms));
                    self.listed += 1;
                }
            }
            self.rank(owner);
            if matches!(found, Found::Idle(used_ms) if used_ms <= listed_ms) {
                return Some(session);
            }
        }
    }

    /// What is listed and gone must not pile up.
    pub(super) fn clean(&mut self, most: usize, is_there: impl Fn(Ticket) -> bool) {
        if self.listed <= most {
            return;
        }
        let owners: Vec<Owner> = self.owners.keys().copied().collect();
        self.listed = 0;
        for owner in owners {
            if let Some(listed) = self.owners.get_mut(&owner) {
                listed.sessions.retain(|&(session, _)| is_there(session));
                listed.sessions.shrink_to_fit();
                self.listed += listed.sessions.len();
            }
            self.rank(owner);
        }
        self.owners.shrink_to_fit();
    }

    fn rank(&mut self, owner: Owner) {
        let Some(listed) = self.owners.get_mut(&owner) else { return };
        let rank =
            listed.sessions.front().map(|&(_, since_ms)| (listed.sessions.len(), Reverse(since_ms), owner));
        if rank == listed.rank {
            return;
        }
        if let Some(before) = std::mem::replace(&mut listed.rank, rank) {
            self.ranks.remove(&before);
        }
        match rank {
            Some(rank) => {
                self.ranks.insert(rank);
            }
            None => {
                self.owners.remove(&owner);
            }
        }
    }
}
