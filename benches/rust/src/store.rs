//! The store and the relay without Python: appends into a full window, and whole streams relayed.
//! In CPU time: nobody waits for anything here, and a busy machine disturbs it less.

use std::hint::black_box;

use counterfoil_core::envelope;
use counterfoil_core::ids::{
    DigestChain, Epoch, KeyRing, LongSecret, Scope, Sequence, StreamKind, StreamToken,
};
use counterfoil_core::relay::{Relay, Report};
use counterfoil_core::sse::{EventRef, Parser, ParserLimits, Sink};
use counterfoil_core::store::{NewEvent, Random, Store, StoreLimits};
use rustix::time::{clock_gettime, ClockId};

const ROUNDS: usize = 41;
const APPENDS: usize = 4_000;
/// The most that one piece of a replay holds.
const PIECE_BYTES: usize = 256 << 10;

/// The CPU time that this process has spent.
struct Cpu(f64);

impl Cpu {
    fn now() -> Self {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        Self(spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9)
    }

    fn elapsed_s(&self) -> f64 {
        Self::now().0 - self.0
    }
}

fn payload(number: usize, bytes: usize) -> Vec<u8> {
    let start = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":\"tok-{number:08}\",\
         \"progress\":{},\"total\":1000000,\"message\":\"",
        number % 1000
    );
    let padding = bytes.saturating_sub(start.len() + 3);
    format!("{start}{}\"}}}}", "x".repeat(padding)).into_bytes()
}

struct Bench {
    store: Store<()>,
    scope: Scope,
    stream: StreamToken,
}

fn bench(window_events: usize, window_bytes: usize) -> Option<Bench> {
    let limits = StoreLimits { window_events, window_bytes, total_bytes: 1 << 30, ..StoreLimits::default() };
    let mut store = Store::new(limits, KeyRing::ephemeral([7; 32], 0), 1).ok()?;
    let scope = Scope::new(None, None, Some("session")).ok()?;
    let random = Random { name: [3; 12], epoch: [5; 8] };
    let stream = store.open_standalone(&scope, 0, random, 0, &mut Vec::new()).ok()?;
    Some(Bench { store, scope, stream })
}

/// On a shared machine some of many short runs are left alone.
fn best(times: Vec<f64>) -> f64 {
    times.into_iter().fold(f64::INFINITY, f64::min)
}

/// Prints nanoseconds per append into a full window, and of its parts, for 500-byte events.
pub(crate) fn time_appends() {
    let Some(mut bench) = bench(10_000, 16 << 20) else { return };
    let events: Vec<Vec<u8>> = (0..APPENDS).map(|number| payload(number, 500)).collect();
    let mut id = Vec::new();
    let mut woken = Vec::new();
    let mut append = |events: &[Vec<u8>]| {
        for data in events {
            let new = NewEvent { event: b"", data };
            let appended = bench.store.append(&bench.scope, &bench.stream, new, 0, &mut id, &mut woken);
            let _ = black_box(appended);
        }
    };
    append(&events);
    print("append_500_ns", APPENDS, || append(&events));
    print("append_16_500_ns", APPENDS, || {
        for batch in events.chunks(16) {
            let batch = batch.iter().map(Vec::as_slice);
            let appended = bench.store.append_all(&bench.scope, &bench.stream, batch, 0, &mut woken);
            let _ = black_box(appended);
        }
    });
    print("scan_500_ns", APPENDS, || {
        for data in &events {
            black_box(envelope::scan(black_box(data)));
        }
    });
    let ring = KeyRing::ephemeral([7; 32], 0);
    let Ok(token) = StreamToken::mint(StreamKind::Standalone, None, 0, [3; 12]) else { return };
    let mut chain = DigestChain::start(&ring, &bench.scope, &token, &Epoch([5; 8]));
    let mut secret = LongSecret::default();
    // Few enough to stay in the cache: in an append the event has been looked through just before.
    let few = &events[..32];
    print("digest_500_ns", APPENDS, || {
        for number in 0..APPENDS {
            let sequence = Sequence::new(number as u64 + 1).unwrap_or(Sequence::FIRST);
            black_box(chain.append_message(&mut secret, sequence, black_box(&few[number % 32])));
        }
    });
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn print(name: &str, count: usize, mut work: impl FnMut()) {
    let times = (0..ROUNDS)
        .map(|_| {
            let start = Cpu::now();
            work();
            start.elapsed_s()
        })
        .collect();
    println!("{{\"what\":\"{name}\",\"value\":{:.1}}}", best(times) / count as f64 * 1e9);
}

/// What the relay does beside parsing, storing and framing: the digest of every event, and its envelope.
///
/// An event ID has a digest, always, so the relay cannot be run without one; both are timed by themselves over
/// the same events, where nothing else is in their way, and so are never overrated.
struct Extras {
    digest: f64,
    envelope: f64,
}

#[derive(Default)]
struct Collected(Vec<Vec<u8>>);

impl Sink for Collected {
    fn event(&mut self, event: EventRef<'_>) {
        self.0.push(event.data.to_vec());
    }
}

fn time_extras(stream: &[u8], limits: ParserLimits) -> Option<Extras> {
    let mut events = Collected::default();
    Parser::new(limits).feed(stream, &mut events).ok()?;
    let ring = KeyRing::ephemeral([7; 32], 0);
    let scope = Scope::new(None, None, Some("session")).ok()?;
    let token = StreamToken::mint(StreamKind::Standalone, None, 0, [3; 12]).ok()?;
    let mut chain = DigestChain::start(&ring, &scope, &token, &Epoch([5; 8]));
    let mut secret = LongSecret::default();
    let mut digests = Vec::new();
    let mut envelopes = Vec::new();
    for _ in 0..ROUNDS {
        let start = Cpu::now();
        for (number, data) in events.0.iter().enumerate() {
            let sequence = Sequence::new(number as u64 + 1).unwrap_or(Sequence::FIRST);
            black_box(chain.append_message(&mut secret, sequence, black_box(data)));
        }
        digests.push(start.elapsed_s());
        let start = Cpu::now();
        for data in &events.0 {
            black_box(envelope::scan_briefly(black_box(data)));
        }
        envelopes.push(start.elapsed_s());
    }
    Some(Extras { digest: best(digests), envelope: best(envelopes) })
}

/// Prints the speed of the whole relay step for each file, with 16 KiB chunks.
pub(crate) fn time_relay(files: &[String]) {
    for file in files {
        match std::fs::read(file) {
            Ok(stream) => time_relay_of(file, &stream),
            Err(error) => {
                eprintln!("{file}: {error}");
                std::process::exit(1);
            }
        }
    }
}

fn time_relay_of(file: &str, stream: &[u8]) {
    // One store for all rounds: its window is full after the first, as a gateway's is. It holds what the ring
    // of the C relay does: what one round brings, and 65 536 events at most.
    let Some(Bench { mut store, scope, stream: token }) = bench(65_536, stream.len()) else { return };
    let limits = ParserLimits { line_bytes: 1 << 30, event_bytes: 1 << 30, ..ParserLimits::default() };
    let mut events = 0;
    let mut times = Vec::new();
    let mut woken = Vec::new();
    let mut out: Vec<u8> = Vec::new();
    let mut report = Report::default();
    let mut after = 0;
    for _ in 0..ROUNDS {
        let mut relay = Relay::new(limits, token, b"", true);
        let Ok(reader) = store.attach(&scope, &token, after, true, 0, &mut woken) else { return };
        events = 0;
        let start = Cpu::now();
        for chunk in stream.chunks(16 << 10) {
            let _ = relay.feed(&mut store, &scope, chunk, 0, &mut report, &mut woken);
            events += report.seen.len();
            loop {
                out.clear();
                match store.read(reader, PIECE_BYTES, &mut out, 0, &mut woken) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {
                        black_box(&out);
                    }
                }
            }
        }
        times.push(start.elapsed_s());
        after = store.position(reader).unwrap_or(after);
    }
    let Some(extras) = time_extras(stream, limits) else { return };
    // As the C floor does.
    let seconds = median(times);
    let mb_s = |seconds: f64| stream.len() as f64 / seconds / 1e6;
    let name = file.rsplit('/').next().unwrap_or(file);
    println!(
        "{{\"what\":\"relay\",\"file\":\"{name}\",\"bytes\":{},\"events\":{events},\"mb_s\":{:.0},\"without_digest_mb_s\":{:.0},\"bare_mb_s\":{:.0},\"ns_event\":{:.1},\"digest_ns_event\":{:.1},\"envelope_ns_event\":{:.1}}}",
        stream.len(),
        mb_s(seconds),
        mb_s(seconds - extras.digest),
        mb_s(seconds - extras.digest - extras.envelope),
        seconds / events.max(1) as f64 * 1e9,
        extras.digest / events.max(1) as f64 * 1e9,
        extras.envelope / events.max(1) as f64 * 1e9,
    );
}
