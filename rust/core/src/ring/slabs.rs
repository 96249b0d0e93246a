//! Memory for all rings of one store: fixed pages out of slabs, taken and given back in O(1).
//!
//! Slabs are mapped, not allocated: an allocator keeps what a crowd has left, and one small value
//! beside a slab holds all of it.  A page is small enough that a stream of ten short events wastes little, and a slab large enough
//! that growing does not ask the allocator for every event.

use std::collections::VecDeque;

use memmap2::MmapMut;

/// Bytes of one page.
pub const PAGE_BYTES: usize = 512;

const SLAB_PAGES: usize = 128;
const SLAB_BYTES: usize = SLAB_PAGES * PAGE_BYTES;
/// No page is free.
const FULL: [u64; 2] = [0; 2];
/// Every page is.
const EMPTY: [u64; 2] = [u64::MAX; 2];
/// Empty slabs that are kept for the next burst; more go back to the allocator.
const SPARE_SLABS: usize = 16;

/// Names one page of a [`Slabs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page(u32);

impl Page {
    /// Whether `next` follows in memory.
    #[inline]
    pub(crate) fn is_before(self, next: Self) -> bool {
        next.0 == self.0 + 1 && next.0 % SLAB_PAGES as u32 != 0
    }
}

#[derive(Default)]
struct Slab {
    /// `None` while the slab holds no memory.
    memory: Option<Memory>,
    /// One bit for each page that nobody has, in words: a shift of more than one is made through memory.
    free: [u64; 2],
    /// How many pages somebody has.
    taken: u32,
    /// Whether its number is in `Slabs::open`.
    is_listed: bool,
}

impl Slab {
    #[inline]
    fn has_free(&self) -> bool {
        self.memory.is_some() && self.taken < SLAB_PAGES as u32
    }
}

enum Memory {
    Mapped(MmapMut),
    /// Where no more can be mapped.
    Allocated(Box<[u8]>),
}

impl Memory {
    fn new() -> Self {
        MmapMut::map_anon(SLAB_BYTES)
            .map_or_else(|_| Self::Allocated(vec![0; SLAB_BYTES].into_boxed_slice()), Self::Mapped)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(memory) => memory,
            Self::Allocated(memory) => memory,
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Mapped(memory) => memory,
            Self::Allocated(memory) => memory,
        }
    }
}

/// The pages of one store.
#[derive(Default)]
pub struct Slabs {
    slabs: Vec<Slab>,
    /// Slabs that may have a free page; a stale entry is dropped when it is met.  The one that was opened
    /// first is used first: a window that moves on finds whole slabs, and its events lie in one piece.
    open: VecDeque<u32>,
    /// Slabs without memory.
    vacant: Vec<u32>,
    empty: usize,
    pages: usize,
}

impl Slabs {
    /// Pages that rings hold now.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes that are held from the allocator for pages, spare ones included.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        (self.slabs.len() - self.vacant.len()) * SLAB_BYTES
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Page {
        let index = loop {
            match self.open.front() {
                Some(&index) if self.slabs[index as usize].has_free() => break index,
                Some(&index) => {
                    self.slabs[index as usize].is_listed = false;
                    self.open.pop_front();
                }
                None => break self.open_slab(),
            }
        };
        let slab = &mut self.slabs[index as usize];
        if slab.taken == 0 {
            self.empty -= 1;
        }
        slab.taken += 1;
        let word = usize::from(slab.free[0] == 0);
        let bit = slab.free[word].trailing_zeros();
        // Its lowest bit is set, or the slab would have been full.
        slab.free[word] &= slab.free[word].wrapping_sub(1);
        let page = word as u32 * 64 + bit;
        self.pages += 1;
        Page(index * SLAB_PAGES as u32 + page)
    }

    #[inline]
    pub(crate) fn give(&mut self, page: Page) {
        let index = page.0 / SLAB_PAGES as u32;
        let slab = &mut self.slabs[index as usize];
        slab.free[(page.0 % SLAB_PAGES as u32) as usize / 64] |= 1 << (page.0 % 64);
        self.pages -= 1;
        slab.taken -= 1;
        if slab.taken == 0 {
            if self.empty >= SPARE_SLABS {
                slab.memory = None;
                slab.free = FULL;
                self.vacant.push(index);
                return;
            }
            self.empty += 1;
        }
        if !slab.is_listed {
            slab.is_listed = true;
            self.open.push_back(index);
        }
    }

    #[inline]
    pub(crate) fn bytes(&self, page: Page) -> &[u8] {
        let start = (page.0 as usize % SLAB_PAGES) * PAGE_BYTES;
        match &self.slabs[page.0 as usize / SLAB_PAGES].memory {
            Some(memory) => &memory.bytes()[start..start + PAGE_BYTES],
            // No ring holds a page of a slab without memory.
            None => &[0; PAGE_BYTES],
        }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, page: Page) -> &mut [u8] {
        let start = (page.0 as usize % SLAB_PAGES) * PAGE_BYTES;
        let memory = self.slabs[page.0 as usize / SLAB_PAGES].memory.get_or_insert_with(Memory::new);
        &mut memory.bytes_mut()[start..start + PAGE_BYTES]
    }

    /// `length` bytes from `at` bytes into `page` on, over pages that follow each other in memory.
    #[inline]
    pub(crate) fn run_of(&self, page: Page, at: usize, length: usize) -> &[u8] {
        let start = (page.0 as usize % SLAB_PAGES) * PAGE_BYTES + at;
        match &self.slabs[page.0 as usize / SLAB_PAGES].memory {
            Some(memory) => &memory.bytes()[start..start + length],
            // No ring holds a page of a slab without memory.
            None => &[],
        }
    }

    /// The same to be written; `None` where it does not fit into one slab.
    #[inline]
    pub(crate) fn run_mut(&mut self, page: Page, at: usize, length: usize) -> Option<&mut [u8]> {
        let start = (page.0 as usize % SLAB_PAGES) * PAGE_BYTES + at;
        let memory = self.slabs[page.0 as usize / SLAB_PAGES].memory.as_mut()?;
        memory.bytes_mut().get_mut(start..start + length)
    }

    #[cold]
    fn open_slab(&mut self) -> u32 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slabs.push(Slab::default());
            (self.slabs.len() - 1) as u32
        });
        let slab = &mut self.slabs[index as usize];
        slab.memory = Some(Memory::new());
        slab.free = EMPTY;
        self.empty += 1;
        if !slab.is_listed {
            slab.is_listed = true;
            self.open.push_back(index);
        }
        index
    }
}
