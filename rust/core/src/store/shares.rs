//! What each principal holds of the budget, so that one that fills it leaves room for the others.
//!
//! A bound that moves with what is free (Choudhury and Hahne's for a shared buffer), not a fixed part: alone one
//! may hold nearly everything, and however many fill the store, somebody new finds room.

use std::collections::HashMap;

use crate::ids::Scope;

use super::arena::Arena;
use super::idle_sessions::Owner;
use super::stream::NONE;
use super::Seed;

struct Share {
    owner: Owner,
    /// Bytes charged to all its streams.
    held: usize,
    /// Sessions of it that have streams.
    sessions: usize,
}

pub(super) struct Shares {
    by_owner: HashMap<Owner, u32, Seed>,
    shares: Arena<Share>,
}

impl Shares {
    pub(super) fn new(seed: Seed) -> Self {
        Self { by_owner: HashMap::with_hasher(seed), shares: Arena::default() }
    }

    /// A session has its first stream; where its owner's share is counted.  Callers without a tenant and a
    /// principal are not told apart, so nothing is counted for them.
    pub(super) fn enter(&mut self, scope: &Scope) -> u32 {
        let Some(owner) = self.owner_of(scope) else { return NONE };
        let shares = &mut self.shares;
        let index = *self
            .by_owner
            .entry(owner)
            .or_insert_with(|| shares.insert(Share { owner, held: 0, sessions: 0 }).index);
        if let Some(share) = shares.get_mut(index) {
            share.sessions += 1;
        }
        index
    }

    /// A session has no stream any more.
    pub(super) fn leave(&mut self, index: u32) {
        let Some(share) = self.shares.get_mut(index) else { return };
        share.sessions -= 1;
        if share.sessions == 0 {
            let owner = share.owner;
            self.by_owner.remove(&owner);
            self.shares.remove(index);
            if self.by_owner.capacity() > 1024 && self.by_owner.len() < self.by_owner.capacity() / 8 {
                self.by_owner.shrink_to(self.by_owner.len() * 2);
            }
        }
    }

    #[inline]
    pub(super) fn recharge(&mut self, index: u32, before: usize, after: usize) {
        if let Some(share) = self.shares.get_mut(index) {
            share.held = share.held + after - before;
        }
    }

    /// How much of `free` bytes more may be charged to an owner that may hold `times` what is free after it;
    /// no more than `enough` is asked for.
    #[inline]
    pub(super) fn room(&self, index: u32, free: usize, times: usize, enough: usize) -> usize {
        match self.shares.get(index) {
            None => free,
            Some(share) => match free.checked_sub(enough) {
                // As nearly always; and to divide costs more than everything else here.
                Some(left) if share.held.saturating_add(enough) <= left.saturating_mul(times) => enough,
                _ => room_of(share.held, free, times),
            },
        }
    }

    /// The same for a scope that may have no stream yet.
    pub(super) fn room_of(&self, scope: &Scope, free: usize, times: usize) -> usize {
        let known = self.owner_of(scope).and_then(|owner| self.by_owner.get(&owner));
        known.and_then(|&index| self.shares.get(index)).map_or(free, |share| room_of(share.held, free, times))
    }

    #[cfg(test)]
    pub(super) fn held(&self, index: u32) -> usize {
        self.shares.get(index).map_or(0, |share| share.held)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_owner.len()
    }

    fn owner_of(&self, scope: &Scope) -> Option<Owner> {
        let is_told_apart = scope.tenant().is_some() || scope.principal().is_some();
        is_told_apart.then(|| self.by_owner.hasher().owner_of(scope))
    }
}

/// The most that keeps `held + more` within `times * (free - more)`; who holds nothing may have it all.
#[inline]
fn room_of(held: usize, free: usize, times: usize) -> usize {
    if held == 0 {
        return free;
    }
    match times.checked_add(1) {
        Some(parts) => free.saturating_mul(times).saturating_sub(held) / parts,
        None => free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_the_most_that_keeps_the_rule() {
        for times in [1_usize, 2, 8, 100] {
            for (held, free) in
                [(1, 0), (1, 1), (100, 900), (800, 100), (500, 501), (888, 112), (10, 100_000)]
            {
                let room = room_of(held, free, times);
                let keeps = |more: usize| more <= free && held + more <= times * (free - more);
                assert!(room == 0 || keeps(room), "{held} {free} {times}");
                assert!(!keeps(room + 1), "{held} {free} {times}");
            }
        }
        assert_eq!(room_of(0, 500, 1), 500);
        assert_eq!(room_of(7, 500, usize::MAX), 500);
    }
}
