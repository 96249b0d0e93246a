//! What the store knows of a session: who it is bound to, its streams, and whether it has ended.

use crate::ids::Scope;

use super::stream::NONE;

pub(super) struct Session {
    pub(super) scope: Scope,
    /// Held since `initialize`: a stream that was never written then has lost nothing.
    pub(super) is_held: bool,
    pub(super) has_ended: bool,
    /// The list of its streams.
    pub(super) first_stream: u32,
    pub(super) standalone: u32,
    pub(super) live_streams: usize,
    /// Live ones, and those in their grace: what keeps it from being forgotten for another one.
    pub(super) held_streams: usize,
    /// Where its principal's share is counted, while it has such streams.
    pub(super) share: u32,
    /// Whether it stands in `IdleSessions`.
    pub(super) is_listed: bool,
    pub(super) touched_ms: u64,
    pub(super) due_s: u32,
}

impl Session {
    pub(super) fn new(scope: Scope, is_held: bool, now_ms: u64) -> Self {
        Self {
            scope,
            is_held,
            has_ended: false,
            first_stream: NONE,
            standalone: NONE,
            live_streams: 0,
            held_streams: 0,
            share: NONE,
            is_listed: false,
            touched_ms: now_ms,
            due_s: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first_stream == NONE
    }
}

/// The key of a scope's record.  A session belongs to one principal, so the principal is part of the
/// key only where there is no session; who else asks with the session is told that it has ended.
pub(super) fn write_key(out: &mut Vec<u8>, scope: &Scope) {
    out.clear();
    let who = if scope.session().is_some() { scope.session() } else { scope.principal() };
    out.push(u8::from(scope.session().is_some()));
    for part in [scope.tenant(), who] {
        // Parts are bounded at 4096 bytes, and absent differs from empty.
        let length = part.map_or(u32::MAX, |part| part.len() as u32);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(part.unwrap_or_default().as_bytes());
    }
}
