//! Values at stable numbers, in chunks: growing moves nothing, and a chunk that nobody uses holds no memory.

const CHUNK: usize = 64;

/// A number that is not mistaken for a later tenant of the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(super) index: u32,
    turn: u32,
}

struct Chunk<T> {
    /// Empty, or `CHUNK` places.
    places: Vec<Option<(u32, T)>>,
    used: usize,
}

pub(super) struct Arena<T> {
    chunks: Vec<Chunk<T>>,
    free: Vec<u32>,
    /// Counts insertions, so that no ticket is given twice.
    turn: u32,
    len: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), turn: 0, len: 0 }
    }
}

impl<T> Arena<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, value: T) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| self.open_chunk());
        let chunk = &mut self.chunks[index as usize / CHUNK];
        if chunk.places.is_empty() {
            chunk.places.resize_with(CHUNK, || None);
        }
        self.turn = self.turn.wrapping_add(1);
        chunk.places[index as usize % CHUNK] = Some((self.turn, value));
        chunk.used += 1;
        self.len += 1;
        Ticket { index, turn: self.turn }
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let chunk = self.chunks.get_mut(index as usize / CHUNK)?;
        let (_, value) = chunk.places.get_mut(index as usize % CHUNK)?.take()?;
        chunk.used -= 1;
        if chunk.used == 0 {
            chunk.places = Vec::new();
        }
        self.free.push(index);
        self.len -= 1;
        if self.len == 0 {
            self.chunks = Vec::new();
            self.free = Vec::new();
        }
        Some(value)
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.place(index).map(|(_, value)| value)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(index as usize / CHUNK)?;
        chunk.places.get_mut(index as usize % CHUNK)?.as_mut().map(|(_, value)| value)
    }

    /// The place of a ticket whose value is still there.
    pub(super) fn find(&self, ticket: Ticket) -> Option<u32> {
        self.place(ticket.index).filter(|&&(turn, _)| turn == ticket.turn).map(|_| ticket.index)
    }

    /// The ticket of the value that is at `index` now.
    pub(super) fn ticket(&self, index: u32) -> Option<Ticket> {
        self.place(index).map(|&(turn, _)| Ticket { index, turn })
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| &chunk.places).flatten().map(|(_, value)| value)
    }

    fn place(&self, index: u32) -> Option<&(u32, T)> {
        self.chunks.get(index as usize / CHUNK)?.places.get(index as usize % CHUNK)?.as_ref()
    }

    /// The first place of a new chunk; the others go to the free list.
    fn open_chunk(&mut self) -> u32 {
        // Streams, sessions and readers are bounded far below 2^32.
        let first = (self.chunks.len() * CHUNK) as u32;
        self.chunks.push(Chunk { places: Vec::new(), used: 0 });
        self.free.extend((first + 1..first + CHUNK as u32).rev());
        first
    }
}
