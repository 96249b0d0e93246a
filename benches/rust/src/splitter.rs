//! The parser without Python: every event handed to a sink that keeps its span and adds up its data.

use std::hint::black_box;
use std::time::{Duration, Instant};

use counterfoil_core::sse::{EventRef, ParseError, Parser, ParserLimits, Sink};

const ROUNDS: usize = 9;
const WIDE: ParserLimits = ParserLimits { line_bytes: 1 << 30, event_bytes: 1 << 30, event_lines: 1 << 18 };
const CHUNK_BYTES: [usize; 4] = [1024, 16 * 1024, 64 * 1024, 1];

/// Keeps what a user of spans would keep: where each field lies.
struct Spans {
    kept: Vec<[usize; 8]>,
    events: usize,
    data_bytes: usize,
}

impl Sink for Spans {
    #[inline]
    fn event(&mut self, event: EventRef<'_>) {
        let id = event.id.unwrap_or_default();
        let place = |field: &[u8]| field.as_ptr() as usize;
        let slot = self.events % self.kept.len();
        self.kept[slot] = [
            place(event.event),
            event.event.len(),
            place(id),
            id.len(),
            place(event.data),
            event.data.len(),
            usize::from(event.id.is_some()),
            event.retry.map_or(usize::MAX, |retry| retry as usize),
        ];
        self.events += 1;
        self.data_bytes += event.data.len();
    }
}

fn accepted(result: Result<(), ParseError>) {
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

fn feed_all(stream: &[u8], chunk_bytes: usize, sink: &mut Spans) {
    sink.events = 0;
    sink.data_bytes = 0;
    let mut parser =
        Parser::new(ParserLimits { line_bytes: 1 << 30, event_bytes: 1 << 30, ..ParserLimits::default() });
    for chunk in stream.chunks(chunk_bytes) {
        accepted(parser.feed(black_box(chunk), sink));
    }
    parser.end();
    black_box(&sink.kept);
}

fn time(stream: &[u8], chunk_bytes: usize, rounds: usize, sink: &mut Spans) -> f64 {
    let round = |_| {
        let start = Instant::now();
        feed_all(stream, chunk_bytes, sink);
        start.elapsed()
    };
    median((0..rounds).map(round).collect())
}

fn new_sink() -> Spans {
    Spans { kept: vec![[0; 8]; 1 << 17], events: 0, data_bytes: 0 }
}

/// `what: splitter`, one line for each file and chunk size.
pub(crate) fn time_files(files: &[String]) {
    for path in files {
        let stream = match std::fs::read(path) {
            Ok(stream) => stream,
            Err(error) => {
                eprintln!("{path}: {error}");
                std::process::exit(2);
            }
        };
        let name = path.rsplit('/').next().unwrap_or(path);
        let mut sink = new_sink();
        for chunk_bytes in CHUNK_BYTES {
            let rounds = if chunk_bytes == 1 { 3 } else { ROUNDS };
            let seconds = time(&stream, chunk_bytes, rounds, &mut sink);
            println!(
                "{{\"what\":\"splitter\",\"file\":\"{name}\",\"chunk\":{chunk_bytes},\"bytes\":{},\"events\":{},\"data_bytes\":{},\"spans_mb_s\":{:.1},\"spans_ns_event\":{:.1}}}",
                stream.len(),
                sink.events,
                sink.data_bytes,
                stream.len() as f64 / seconds / 1e6,
                seconds / sink.events.max(1) as f64 * 1e9,
            );
        }
    }
}

/// `what: long-line`, one line for each chunk size and length: is the cost per byte the same?
///
/// One parser reads the same event again and again, and the first time does not count: fresh pages from the
/// operating system cost more than parsing.  A plain copy of the same chunks stands beside it, because 1 MiB lies
/// in a cache and 16 MiB do not, for a copy either.
pub(crate) fn time_long_lines() {
    for chunk_bytes in [1, 7, 1024] {
        for mebibytes in [1, 16] {
            let event = [b"id: 1\ndata: ".as_slice(), &vec![b'x'; mebibytes << 20], b"\n\n"].concat();
            let rounds = if chunk_bytes == 1024 { ROUNDS } else { 3 };
            let mut sink = new_sink();
            let mut parser = Parser::new(WIDE);
            let seconds =
                time_again(&event, chunk_bytes, rounds, |chunk| accepted(parser.feed(chunk, &mut sink)));
            let mut copy = Vec::new();
            let copy_seconds = time_again(&event, chunk_bytes, rounds, |chunk| {
                if copy.len() == event.len() {
                    copy.clear();
                }
                copy.extend_from_slice(chunk);
            });
            println!(
                "{{\"what\":\"long-line\",\"chunk\":{chunk_bytes},\"mebibytes\":{mebibytes},\"seconds\":{seconds:.6},\"copy_seconds\":{copy_seconds:.6},\"mb_s\":{:.1}}}",
                event.len() as f64 / seconds / 1e6,
            );
        }
    }
}

fn time_again(event: &[u8], chunk_bytes: usize, rounds: usize, mut take: impl FnMut(&[u8])) -> f64 {
    let mut read = || {
        let start = Instant::now();
        event.chunks(chunk_bytes).for_each(|chunk| take(black_box(chunk)));
        start.elapsed()
    };
    read();
    median((0..rounds).map(|_| read()).collect())
}
