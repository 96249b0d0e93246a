//! The ring against a list: whatever is appended, trimmed and read, both say the same.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use counterfoil_core::ids::Digest;
use counterfoil_core::ring::{Mark, Most, Ring, Slabs, PAGE_BYTES};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Append { bytes: usize, mark: Mark },
    Trim,
    Skip,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let mark = prop_oneof![Just(Mark::Plain), Just(Mark::Request), Just(Mark::Answer)];
    prop_oneof![
        6 => (prop_oneof![0..40_usize, 900..1100_usize, 0..6000_usize], mark)
            .prop_map(|(bytes, mark)| Step::Append { bytes, mark }),
        4 => Just(Step::Trim),
        1 => Just(Step::Skip),
        1 => Just(Step::Forget),
    ]
}

/// What was appended: one entry for each sequence, `None` for one that is in the window no longer.
#[derive(Default)]
struct Model {
    events: Vec<(Vec<u8>, Digest, Mark)>,
    first: u64,
}

impl Model {
    fn last(&self) -> u64 {
        self.events.len() as u64
    }

    fn event(&self, sequence: u64) -> &(Vec<u8>, Digest, Mark) {
        &self.events[sequence as usize - 1]
    }
}

fn content(sequence: u64, bytes: usize) -> Vec<u8> {
    let mut content = format!("{sequence}.").into_bytes();
    content.extend((0..bytes).map(|at| b'a' + ((sequence as usize + at) % 26) as u8));
    content
}

fn check(ring: &Ring, slabs: &Slabs, model: &Model) {
    assert_eq!((ring.first_sequence(), ring.last_sequence()), (model.first, model.last()));
    let kept = model.first..=model.last();
    let bytes: usize = kept.clone().map(|sequence| model.event(sequence).0.len()).sum();
    assert_eq!(ring.bytes(), bytes);
    assert_eq!(ring.pages(), slabs.pages());
    assert!(ring.pages() * PAGE_BYTES < bytes + 2 * PAGE_BYTES);
    for sequence in 0..=model.last() + 1 {
        let known = (sequence + 1 >= model.first && sequence <= model.last()).then(|| match sequence {
            0 => Digest(0),
            _ => model.event(sequence).1,
        });
        assert_eq!(ring.digest_at(sequence), known, "digest at {sequence}");
        let mark = kept.contains(&sequence).then(|| model.event(sequence).2);
        assert_eq!(ring.mark(sequence), mark);
    }
}

fn check_reads(ring: &Ring, slabs: &Slabs, model: &Model, max_bytes: usize) {
    const LEAD: &[u8] = b"<lead>";
    for after in model.first - 1..=model.last() {
        let (to, bytes) = ring.measure_after(after, LEAD.len(), Most::bytes(max_bytes));
        let mut read = Vec::new();
        ring.put_frames(slabs, after + 1, to, LEAD, &mut read);
        let expected: Vec<u8> =
            (after + 1..=to).flat_map(|sequence| [LEAD, &model.event(sequence).0].concat()).collect();
        assert_eq!(read, expected);
        assert_eq!(bytes, read.len());
        // At most what was asked, but one event at least, and never less than fits.
        if after < model.last() {
            assert!(to > after);
            assert!(bytes <= max_bytes || to == after + 1);
            if to < model.last() {
                assert!(bytes + LEAD.len() + model.event(to + 1).0.len() > max_bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_ring_is_a_list_that_forgets_its_beginning(
        steps in proptest::collection::vec(step(), 1..60),
        max_bytes in prop_oneof![Just(1_usize), 1..5000_usize, Just(1_usize << 30)],
    ) {
        let mut slabs = Slabs::default();
        let mut ring = Ring::new(Digest(0));
        let mut model = Model { first: 1, ..Model::default() };
        for step in steps {
            let next = model.last() + 1;
            let digest = Digest(next * 7919);
            match step {
                Step::Append { bytes, mark } => {
                    let content = content(next, bytes);
                    let (one, two) = content.split_at(content.len() / 3);
                    prop_assert_eq!(ring.append(&mut slabs, &[one, b"", two], digest, mark, 0), next);
                    model.events.push((content, digest, mark));
                }
                Step::Trim => {
                    let trimmed = ring.trim_oldest(&mut slabs);
                    let expected = (model.first <= model.last()).then_some(model.first);
                    prop_assert_eq!(trimmed.map(|trimmed| trimmed.sequence), expected);
                    model.first += u64::from(expected.is_some());
                }
                Step::Skip => {
                    prop_assert_eq!(ring.skip(&mut slabs, digest), next);
                    model.events.push((Vec::new(), digest, Mark::Plain));
                    model.first = next + 1;
                }
                Step::Forget => {
                    let last = model.events.last().map_or(Digest(0), |event| event.1);
                    ring.forget(&mut slabs, last);
                    model.first = next;
                }
            }
            check(&ring, &slabs, &model);
        }
        check_reads(&ring, &slabs, &model, max_bytes);
        ring.forget(&mut slabs, Digest(0));
        prop_assert_eq!(slabs.pages(), 0);
    }

    #[test]
    fn many_rings_share_pages_and_none_reads_anothers(
        steps in proptest::collection::vec((0..6_usize, step()), 1..200),
    ) {
        let mut slabs = Slabs::default();
        let mut rings: Vec<(Ring, Model)> =
            (0..6).map(|_| (Ring::new(Digest(0)), Model { first: 1, ..Model::default() })).collect();
        for (which, step) in steps {
            let (ring, model) = &mut rings[which];
            let next = model.last() + 1;
            match step {
                Step::Append { bytes, mark } => {
                    let mut content = content(next, bytes);
                    content.push(b'0' + which as u8);
                    ring.append(&mut slabs, &[&content], Digest(next), mark, 0);
                    model.events.push((content, Digest(next), mark));
                }
                Step::Trim => {
                    if ring.trim_oldest(&mut slabs).is_some() {
                        model.first += 1;
                    }
                }
                Step::Skip | Step::Forget => {
                    ring.forget(&mut slabs, Digest(model.last()));
                    model.first = next;
                }
            }
        }
        for (ring, model) in &rings {
            check_reads(ring, &slabs, model, 3000);
        }
        for (ring, _) in &mut rings {
            ring.forget(&mut slabs, Digest(0));
        }
        prop_assert_eq!(slabs.pages(), 0);
    }
}

#[test]
fn positions_wrap_at_four_gibibytes_and_nothing_is_lost() {
    // Seconds in a debug build: in full runs only.
    let rounds = if std::env::var_os("COUNTERFOIL_FULL").is_some() { 72 } else { 4_u8 };
    let mut slabs = Slabs::default();
    let mut ring = Ring::new(Digest(0));
    let event = vec![b'x'; 64 << 20];
    let mut sequence = 0;
    // 4.5 GiB through a window of two events.
    for round in 0..rounds {
        sequence = ring.append(&mut slabs, &[&[round], &event], Digest(u64::from(round)), Mark::Plain, 0);
        while ring.len() > 2 {
            ring.trim_oldest(&mut slabs);
        }
        let mut read = Vec::new();
        if let Some(stored) = ring.stored(&slabs, sequence) {
            stored.put(&mut read);
        }
        assert_eq!((read[0], read.len()), (round, event.len() + 1));
    }
    assert_eq!(ring.last_sequence(), sequence);
    assert_eq!(ring.bytes(), 2 * (event.len() + 1));
}

#[test]
fn memory_of_a_crowd_goes_back() {
    let mut slabs = Slabs::default();
    let mut rings: Vec<Ring> = (0..2000).map(|_| Ring::new(Digest(0))).collect();
    for ring in &mut rings {
        for _ in 0..20 {
            ring.append(&mut slabs, &[&[b'x'; 700]], Digest(0), Mark::Plain, 0);
        }
    }
    let most = slabs.held_bytes();
    assert!(most >= 2000 * 20 * 700);
    for ring in &mut rings {
        ring.forget(&mut slabs, Digest(0));
    }
    assert_eq!(slabs.pages(), 0);
    assert!(slabs.held_bytes() <= 1 << 20, "{} of {most} bytes are still held", slabs.held_bytes());
}
