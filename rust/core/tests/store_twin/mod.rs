//! A store and a twin of lists that go through the same steps; for the model test and the fuzz target.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;

use counterfoil_core::ids::{KeyRing, Scope, StreamToken};
use counterfoil_core::resume::{examine, Ask, Attached, Resumption, Verdict};
use counterfoil_core::ring::Most;
use counterfoil_core::store::{
    EndWhy, NewEvent, OwnedId, Random, ReaderEnd, Store, StoreError, StoreLimits, Ticket, STREAM_BYTES,
};

const RESERVE: usize = 4096;

fn limits() -> StoreLimits {
    StoreLimits {
        window_events: 12,
        window_bytes: 20_000,
        window_age_ms: 50_000,
        event_bytes: 40_000,
        total_bytes: 8 * (RESERVE + STREAM_BYTES) + 10_000,
        reserve_bytes: RESERVE,
        session_streams: 5,
        grace_ms: 30_000,
        tombstones: 3,
        tombstone_age_ms: 60_000,
        stream_idle_ms: 400_000,
        session_idle_ms: 500_000,
        ended_sessions: 2,
        ..StoreLimits::default()
    }
}

/// One thing that happens to a store.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    OpenCall { session: usize },
    OpenStandalone { session: usize },
    Append { stream: usize, bytes: usize },
    Answer { stream: usize, bytes: usize },
    End { stream: usize },
    Read { stream: usize, max_bytes: usize },
    Attach { stream: usize },
    Resume { stream: usize, event: usize },
    Wait { seconds: u64 },
    Sweep,
    Rotate,
    Renew { stream: usize },
    Delete { session: usize },
    Close { stream: usize },
}

/// Four bytes for each step: which, and its arguments.  Any bytes are steps.
pub(crate) fn decode(bytes: &[u8]) -> Vec<Step> {
    bytes.chunks_exact(4).map(|four| decode_one([four[0], four[1], four[2], four[3]])).collect()
}

fn decode_one([which, one, two, three]: [u8; 4]) -> Step {
    let session = usize::from(one) % 3;
    let stream = usize::from(one) % 24;
    let value = usize::from(two) * 256 + usize::from(three);
    // Mostly short events, some that fill a window, few that fit nowhere.
    let bytes = match which % 4 {
        0 | 1 => value % 200,
        2 => value % 3000,
        _ => value % 60_000,
    };
    match which % 38 {
        0..=2 => Step::OpenCall { session },
        3 => Step::OpenStandalone { session },
        4..=15 => Step::Append { stream, bytes },
        16 | 17 => Step::Answer { stream, bytes },
        18 => Step::End { stream },
        19..=24 => Step::Read { stream, max_bytes: 1 + value % 9000 },
        25 | 26 => Step::Attach { stream },
        27..=30 => Step::Resume { stream, event: value % 40 },
        31 | 32 => Step::Wait { seconds: 1 + value as u64 % 40 },
        33 => Step::Sweep,
        34 => Step::Rotate,
        35 => Step::Renew { stream },
        36 => Step::Delete { session },
        _ => Step::Close { stream },
    }
}

/// Applies the steps to a store and to lists, compares after each, and lets everything run out at the end.
pub(crate) fn run(steps: &[Step]) {
    let mut model = Model::new();
    for step in steps {
        model.apply(step);
        model.check();
    }
    model.run_out();
}

/// What the model knows of a stream: everything that was ever appended in its current epoch.
struct Known {
    session: usize,
    token: StreamToken,
    is_call: bool,
    /// ID and data of each sequence.
    events: Vec<(String, Vec<u8>)>,
    has_answer: bool,
    reader: Option<(Ticket, u64)>,
    is_answers_only: bool,
}

struct Model {
    store: Store<u32>,
    keys: KeyRing,
    now_ms: u64,
    streams: Vec<Known>,
    scopes: Vec<Scope>,
    drawn: u64,
    by_token: HashMap<StreamToken, usize>,
}

impl Model {
    fn new() -> Self {
        let keys = KeyRing::ephemeral([1; 32], 0);
        let scopes =
            (0..3).map(|number| Scope::new(Some("t"), None, Some(&format!("s{number}"))).unwrap()).collect();
        Self {
            store: Store::new(limits(), keys.clone(), 7).unwrap(),
            keys,
            now_ms: 0,
            streams: Vec::new(),
            scopes,
            drawn: 0,
            by_token: HashMap::new(),
        }
    }

    fn random(&mut self) -> Random {
        self.drawn += 1;
        let (mut name, mut epoch) = ([0; 12], [0; 8]);
        name[..8].copy_from_slice(&self.drawn.to_be_bytes());
        epoch.copy_from_slice(&(self.drawn * 31).to_be_bytes());
        Random { name, epoch }
    }

    fn adopt(&mut self, session: usize, token: StreamToken, is_call: bool) {
        if self.by_token.contains_key(&token) {
            return;
        }
        self.by_token.insert(token, self.streams.len());
        self.streams.push(Known {
            session,
            token,
            is_call,
            events: Vec::new(),
            has_answer: false,
            reader: None,
            is_answers_only: false,
        });
    }

    fn apply(&mut self, step: &Step) {
        let woken = &mut Vec::new();
        match *step {
            Step::OpenCall { session } => {
                let random = self.random();
                let requests = [OwnedId::Integer(1)];
                let scope = &self.scopes[session];
                match self.store.open_call(scope, &requests, 0, random, self.now_ms, woken) {
                    Ok(token) => self.adopt(session, token, true),
                    Err(error) => assert!(is_refusal(error), "{error}"),
                }
            }
            Step::OpenStandalone { session } => {
                let random = self.random();
                match self.store.open_standalone(&self.scopes[session], 0, random, self.now_ms, woken) {
                    Ok(token) => self.adopt(session, token, false),
                    Err(error) => assert!(is_refusal(error), "{error}"),
                }
            }
            Step::Append { stream, bytes } => self.append(stream, bytes, false),
            Step::Answer { stream, bytes } => self.append(stream, bytes, true),
            Step::End { stream } => {
                let Some(known) = self.streams.get(stream) else { return };
                let scope = &self.scopes[known.session];
                let _ = self.store.end_stream(scope, &known.token, EndWhy::Closed, self.now_ms, woken);
            }
            Step::Read { stream, max_bytes } => self.read(stream, max_bytes),
            Step::Attach { stream } => {
                let Some(known) = self.streams.get_mut(stream) else { return };
                let scope = &self.scopes[known.session];
                let attached = self.store.attach(scope, &known.token, 0, true, self.now_ms, woken);
                if let Ok(ticket) = attached {
                    known.reader = Some((ticket, 0));
                    known.is_answers_only = false;
                }
            }
            Step::Resume { stream, event } => self.resume(stream, event),
            Step::Wait { seconds } => self.now_ms += seconds * 1000,
            Step::Sweep => self.store.sweep(self.now_ms, woken),
            Step::Rotate => {
                self.drawn += 1;
                // As many keys as a ring holds, then no more rotations.
                if let Ok(keys) = self.keys.rotated([self.drawn as u8; 32], self.drawn) {
                    self.keys = keys.clone();
                    self.store.set_keys(keys);
                }
            }
            Step::Renew { stream } => {
                let epoch = self.random().epoch;
                let Some(known) = self.streams.get_mut(stream) else { return };
                let scope = &self.scopes[known.session];
                if self.store.renew_epoch(scope, &known.token, epoch, self.now_ms, woken).is_ok() {
                    assert!(!known.is_call);
                    known.events.clear();
                    known.reader = None;
                }
            }
            Step::Delete { session } => {
                self.store.delete_session(&self.scopes[session], &[], self.now_ms, woken).unwrap();
            }
            Step::Close { stream } => {
                let Some(known) = self.streams.get_mut(stream) else { return };
                if let Some((ticket, _)) = known.reader.take() {
                    self.store.detach(ticket);
                }
            }
        }
    }

    fn append(&mut self, stream: usize, bytes: usize, is_answer: bool) {
        let Some(known) = self.streams.get_mut(stream) else { return };
        let number = known.events.len() + 1;
        let data = if is_answer {
            format!("{{\"id\":1,\"result\":\"{}\"}}", "r".repeat(bytes))
        } else {
            format!("{{\"method\":\"n\",\"params\":[{stream},{number},\"{}\"]}}", "p".repeat(bytes))
        };
        let scope = &self.scopes[known.session];
        let new = NewEvent { event: b"", data: data.as_bytes() };
        let mut id = Vec::new();
        let woken = &mut Vec::new();
        match self.store.append(scope, &known.token, new, self.now_ms, &mut id, woken) {
            Ok(appended) => {
                assert_eq!(appended.sequence, number as u64, "sequences are dense");
                assert_eq!(appended.has_ended, is_answer && known.is_call);
                known.has_answer |= is_answer && known.is_call;
                known.events.push((String::from_utf8(id).unwrap(), data.into_bytes()));
            }
            Err(StoreError::AnswerTooLarge { .. }) => assert!(is_answer && known.is_call && bytes > 1000),
            Err(error) => {
                assert!(matches!(error, StoreError::UnknownStream | StoreError::StreamEnded(_)), "{error}")
            }
        }
    }

    /// Whatever is read follows the position without a hole, byte for byte, or ends with a type.
    fn read(&mut self, stream: usize, max_bytes: usize) {
        let Some(known) = self.streams.get_mut(stream) else { return };
        let Some((ticket, position)) = known.reader else { return };
        let mut out = Vec::new();
        // As frames and as events the same is read; no event here is as large as a piece.
        let woken = &mut Vec::new();
        let found = if max_bytes % 2 == 0 {
            self.store.read(ticket, max_bytes, &mut out, self.now_ms, woken).map(drop)
        } else {
            let most = Most { events: 1 + max_bytes as u64 % 5, bytes: max_bytes };
            let found = self.store.read_events(ticket, most, &mut out, self.now_ms, woken);
            assert!(frames_of(&out).len() as u64 <= most.events);
            found
        };
        match found {
            Ok(()) => {
                let frames = frames_of(&out);
                if known.is_answers_only {
                    for frame in &frames {
                        assert!(known.events.contains(frame));
                        assert!(frame.1.starts_with(b"{\"id\":1"), "only answers");
                    }
                    return;
                }
                let from = position as usize;
                // Nothing is said only when there is nothing.
                assert!(!frames.is_empty() || from == known.events.len());
                assert_eq!(frames, known.events[from..from + frames.len()]);
                assert!(out.len() <= max_bytes || frames.len() == 1);
                known.reader = Some((ticket, position + frames.len() as u64));
            }
            Err(ReaderEnd::Ended(why)) => {
                // Everything was read first, unless its session was deleted under it.
                let is_whole = known.is_answers_only || position as usize == known.events.len();
                assert!(is_whole || matches!(why, EndWhy::Session), "{why:?} at {position}");
                known.reader = None;
            }
            Err(ReaderEnd::TooSlow { first, last }) => {
                assert!(first == position + 1 && last >= first && last as usize <= known.events.len());
                known.reader = None;
            }
            Err(ReaderEnd::TakenOver | ReaderEnd::Closed) => known.reader = None,
        }
    }

    fn resume(&mut self, stream: usize, event: usize) {
        let random = self.random();
        let Some(known) = self.streams.get_mut(stream) else { return };
        let Some((id, _)) = known.events.get(event) else { return };
        let scope = self.scopes[known.session].clone();
        let ask = Ask {
            scope: &scope,
            cursor: examine(&self.keys, &scope, Some(id.as_bytes())),
            is_aware: true,
            wants_new: false,
            attach_lost: false,
            owner: 0,
        };
        let resumed = self.store.resume(&ask, &mut || random, self.now_ms, &mut Vec::new());
        let Ok(resumption) = resumed else {
            assert_eq!(resumed.unwrap_err(), StoreError::SessionEnded);
            return;
        };
        check_verdict(&resumption, known, event);
        if let Some(ticket) = resumption.reader {
            let after = resumption.after.map_or(0, |(after, _)| after);
            known.reader = Some((ticket, after));
            known.is_answers_only = resumption.attached == Attached::Answers;
        }
    }

    /// Once everybody has gone and every time has passed, nothing is left.
    fn run_out(mut self) {
        for known in &mut self.streams {
            if let Some((ticket, _)) = known.reader.take() {
                self.store.detach(ticket);
            }
        }
        for _ in 0..20 {
            self.now_ms += 1_000_000;
            self.store.sweep(self.now_ms, &mut Vec::new());
        }
        let counts = self.store.statistics();
        let left = (counts.live_streams, counts.ended_streams, counts.tombstones);
        assert_eq!(left, (0, 0, 0));
        assert_eq!((counts.window_bytes, counts.charged_bytes), (0, 0));
        assert_eq!((counts.sessions, counts.ended_sessions), (0, 0));
    }

    fn check(&self) {
        let counts = self.store.statistics();
        let limits = limits();
        assert!(counts.charged_bytes <= limits.total_bytes, "{} over the budget", counts.charged_bytes);
        assert!(counts.window_bytes + counts.live_streams * STREAM_BYTES <= counts.charged_bytes);
        assert!(counts.live_streams * (RESERVE + STREAM_BYTES) <= counts.charged_bytes);
        assert!(counts.tombstones <= limits.tombstones);
        assert!(counts.ended_sessions <= limits.ended_sessions);
    }
}

fn check_verdict(resumption: &Resumption, known: &Known, event: usize) {
    let asked = event as u64 + 1;
    let last = known.events.len() as u64;
    match resumption.verdict {
        Verdict::Resumed => {
            let (_, window_last) = resumption.window.unwrap();
            assert_eq!(resumption.after.unwrap().0, asked);
            assert_eq!(window_last, last);
        }
        Verdict::Gap => {
            let (first, until) = resumption.gap.unwrap();
            assert_eq!(first, asked + 1);
            assert!(until <= last);
            assert_eq!(
                resumption.attached,
                if known.is_call { resumption.attached } else { Attached::Nothing }
            );
        }
        Verdict::Unverifiable => assert_eq!(resumption.row, 7),
        verdict => panic!("{verdict:?} for a cursor of this stream and epoch"),
    }
}

fn is_refusal(error: StoreError) -> bool {
    matches!(error, StoreError::Limit { .. } | StoreError::SessionEnded)
}

fn frames_of(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.split_terminator("\n\n")
        .map(|frame| {
            let (id, data) = frame.split_once('\n').unwrap();
            (
                id.strip_prefix("id: ").unwrap().to_owned(),
                data.strip_prefix("data: ").unwrap().as_bytes().to_vec(),
            )
        })
        .collect()
}
