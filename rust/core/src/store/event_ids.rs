//! The IDs of several events, made into text only where somebody looks at them.

use crate::ids::{write_id, Digest, IdPrefix, Position, Sequence, MAX_ID_BYTES};

/// The IDs of events that were appended or read in one step, in order.
#[derive(Clone, Debug, Default)]
pub struct EventIds {
    /// Empty before the first event was read.
    prefix: IdPrefix,
    /// Prefixes that other keys signed, each with the place of the first event under it.
    later: Vec<(usize, IdPrefix)>,
    positions: Vec<(Sequence, Digest)>,
}

impl EventIds {
    /// Those of one prefix.
    #[must_use]
    pub(super) fn new(prefix: IdPrefix, positions: Vec<(Sequence, Digest)>) -> Self {
        Self { prefix, later: Vec::new(), positions }
    }

    /// So many more will be added.
    pub fn expect(&mut self, count: usize) {
        self.positions.reserve_exact(count);
    }

    /// Adds the ID that begins with `prefix`.
    #[inline]
    pub fn push(&mut self, prefix: &[u8], sequence: Sequence, digest: Digest) {
        if self.last_prefix().as_bytes() != prefix {
            self.begin(prefix);
        }
        self.positions.push((sequence, digest));
    }

    #[cold]
    fn begin(&mut self, prefix: &[u8]) {
        let prefix = IdPrefix::from_bytes(prefix);
        if self.positions.is_empty() {
            self.prefix = prefix;
        } else {
            self.later.push((self.positions.len(), prefix));
        }
    }

    fn last_prefix(&self) -> &IdPrefix {
        self.later.last().map_or(&self.prefix, |(_, prefix)| prefix)
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Writes the ID at `place` into `id` (cleared first); false if there is none.
    pub fn write(&self, place: usize, id: &mut Vec<u8>) -> bool {
        id.clear();
        let Some(&(sequence, digest)) = self.positions.get(place) else { return false };
        write_id(id, self.prefix_at(place), sequence, digest);
        true
    }

    /// Shows the text of every ID, in order.
    pub fn each(&self, mut visit: impl FnMut(&[u8])) {
        let mut id = Vec::with_capacity(MAX_ID_BYTES);
        let mut next = self.later.iter().map(|&(first, _)| first).peekable();
        for (place, &(sequence, digest)) in self.positions.iter().enumerate() {
            let prefix = self.prefix_at(place).as_bytes();
            if place == 0 || next.next_if_eq(&place).is_some() {
                id.clear();
                id.extend_from_slice(prefix);
            }
            let position = Position::new(sequence, digest);
            id.resize(prefix.len() + Position::MAX_CHARS, 0);
            position.write(&mut id[prefix.len()..]);
            visit(&id[..prefix.len() + position.len()]);
        }
    }

    fn prefix_at(&self, place: usize) -> &IdPrefix {
        let later = self.later.iter().rev().find(|(first, _)| *first <= place);
        later.map_or(&self.prefix, |(_, prefix)| prefix)
    }
}

impl PartialEq for EventIds {
    fn eq(&self, other: &Self) -> bool {
        self.positions == other.positions
            && (self.is_empty() || (&self.prefix, &self.later) == (&other.prefix, &other.later))
    }
}

impl Eq for EventIds {}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(given: &[(&[u8], u64)]) -> EventIds {
        let mut ids = EventIds::default();
        for &(prefix, number) in given {
            ids.push(prefix, Sequence::new(number).unwrap_or(Sequence::MAX), Digest(number));
        }
        ids
    }

    #[test]
    fn every_id_has_the_prefix_that_it_was_read_with() {
        let found = ids(&[(b"a.", 1), (b"a.", 2), (b"b.", 3), (b"c.", 5), (b"c.", 6)]);
        let mut id = Vec::new();
        let mut texts = Vec::new();
        while found.write(texts.len(), &mut id) {
            texts.push(String::from_utf8_lossy(&id).into_owned());
        }
        let mut shown = Vec::new();
        found.each(|id| shown.push(String::from_utf8_lossy(id).into_owned()));
        assert_eq!(shown, texts);
        let expected = [("a", 1), ("a", 2), ("b", 3), ("c", 5), ("c", 6)];
        assert_eq!(texts, expected.map(|(prefix, number)| format!("{prefix}.{number}.{}", Digest(number))));
    }

    #[test]
    fn ids_are_equal_where_their_texts_are() {
        assert_eq!(ids(&[]), EventIds::new(IdPrefix::from_bytes(b"a."), Vec::new()));
        assert_eq!(ids(&[(b"a.", 1), (b"b.", 2)]), ids(&[(b"a.", 1), (b"b.", 2)]));
        assert_ne!(ids(&[(b"a.", 1), (b"b.", 2)]), ids(&[(b"a.", 1), (b"a.", 2)]));
        assert_ne!(ids(&[(b"a.", 1)]), ids(&[(b"b.", 1)]));
    }
}
