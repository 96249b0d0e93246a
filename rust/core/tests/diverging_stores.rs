//! Two stores that share a history and then go apart: a tail that was lost and written again, as after a
//! restored backup or a split brain.  No epoch and no number can show it; the digest does.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use counterfoil_core::ids::{KeyRing, Scope, StreamToken};
use counterfoil_core::resume::{examine, Ask, Resumption, Verdict, Why};
use counterfoil_core::store::{NewEvent, Random, Store, StoreLimits};
use proptest::prelude::*;

struct Side {
    store: Store<()>,
    stream: StreamToken,
    ids: Vec<String>,
    data: Vec<String>,
}

fn scope() -> Scope {
    Scope::new(Some("t"), None, Some("s")).unwrap()
}

fn side(window_events: usize) -> Side {
    let limits = StoreLimits { window_events, ..StoreLimits::default() };
    let mut store = Store::new(limits, KeyRing::ephemeral([4; 32], 0), 1).unwrap();
    // The same random bytes on both sides: the same stream in the same epoch.
    let random = Random { name: [6; 12], epoch: [8; 8] };
    let stream = store.open_standalone(&scope(), 0, random, 0, &mut Vec::new()).unwrap();
    Side { store, stream, ids: Vec::new(), data: Vec::new() }
}

impl Side {
    fn append(&mut self, data: &str) {
        let mut id = Vec::new();
        let new = NewEvent { event: b"", data: data.as_bytes() };
        self.store.append(&scope(), &self.stream, new, 0, &mut id, &mut Vec::new()).unwrap();
        self.ids.push(String::from_utf8(id).unwrap());
        self.data.push(data.to_owned());
    }

    fn resume(&mut self, cursor: &str) -> Resumption {
        let scope = scope();
        let ask = Ask {
            scope: &scope,
            cursor: examine(&KeyRing::ephemeral([4; 32], 0), &scope, Some(cursor.as_bytes())),
            is_aware: true,
            wants_new: false,
            attach_lost: false,
            owner: 0,
        };
        self.store.resume(&ask, &mut || unreachable!(), 0, &mut Vec::new()).unwrap()
    }
}

proptest! {
    #[test]
    fn a_cursor_of_the_lost_tail_is_never_resumed(
        shared in 0..12_usize,
        lost in 1..8_usize,
        written_again in 0..12_usize,
        window in 1..20_usize,
    ) {
        let (mut ours, mut theirs) = (side(window), side(window));
        for number in 0..shared {
            ours.append(&format!("{{\"shared\":{number}}}"));
            theirs.append(&format!("{{\"shared\":{number}}}"));
        }
        for number in 0..lost {
            theirs.append(&format!("{{\"lost\":{number}}}"));
        }
        for number in 0..written_again {
            ours.append(&format!("{{\"again\":{number}}}"));
        }
        for (place, cursor) in theirs.ids.clone().iter().enumerate() {
            let found = ours.resume(cursor);
            let asked = place + 1;
            let last = shared + written_again;
            let first = last.saturating_sub(window) + 1;
            let expected = if asked > last {
                (Verdict::Reoriginated, Why::Ahead)
            } else if asked + 1 < first {
                (Verdict::Gap, Why::Trimmed)
            } else if asked > shared {
                (Verdict::Reoriginated, Why::Diverged)
            } else {
                (Verdict::Resumed, Why::Held)
            };
            prop_assert_eq!((found.verdict, found.why), expected, "{} of {}", asked, last);
            if found.verdict == Verdict::Resumed {
                let mut out = Vec::new();
                let reader = found.reader.unwrap();
                while ours.store.read(reader, 1 << 20, &mut out, 0, &mut Vec::new()).unwrap() > 0 {}
                let text = String::from_utf8(out).unwrap();
                let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
                prop_assert_eq!(data, ours.data[asked..].iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
    }
}
