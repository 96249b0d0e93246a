//! `SseBatch`: all events of one chunk, crossed into Python once; a field is made when it is asked for.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil_core::sse::{BlockRef, EventRef, Sink};
use pyo3::exceptions::PyIndexError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyMemoryView};

use super::items::SseEvent;
use crate::text::decode;

/// Where the fields of one event lie in the batch's bytes.
struct Entry {
    event: Range<usize>,
    /// The block's own id is there, and is `last_event_id`.
    has_id: bool,
    last_event_id: Range<usize>,
    data: Range<usize>,
    retry: Option<u64>,
}

/// Copies what a chunk completes into one buffer.
pub(crate) struct BatchSink {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    comments: Option<Vec<(usize, Range<usize>)>>,
    last_event_id: Range<usize>,
    data_as_bytes: bool,
}

impl BatchSink {
    pub(crate) fn new(data_as_bytes: bool, with_comments: bool) -> Self {
        let comments = with_comments.then(Vec::new);
        Self { bytes: Vec::new(), entries: Vec::new(), comments, last_event_id: 0..0, data_as_bytes }
    }

    /// The id that sticks until the chunk changes it.
    pub(crate) fn start(&mut self, last_event_id: &[u8]) {
        self.last_event_id = self.push(last_event_id);
    }

    pub(crate) fn into_batch(self) -> SseBatch {
        SseBatch {
            bytes: self.bytes,
            entries: self.entries,
            comments: self.comments.unwrap_or_default(),
            data_as_bytes: self.data_as_bytes,
            shared: PyOnceLock::new(),
        }
    }

    #[inline]
    fn push(&mut self, field: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(field);
        start..self.bytes.len()
    }
}

impl Sink for BatchSink {
    #[inline]
    fn event(&mut self, event: EventRef<'_>) {
        if event.id.is_some() {
            self.last_event_id = self.push(event.last_event_id);
        }
        let entry = Entry {
            event: self.push(event.event),
            has_id: event.id.is_some(),
            last_event_id: self.last_event_id.clone(),
            data: self.push(event.data),
            retry: event.retry,
        };
        self.entries.push(entry);
    }

    #[inline]
    fn comment(&mut self, text: &[u8]) {
        if self.comments.is_some() {
            let range = self.push(text);
            let before = self.entries.len();
            if let Some(comments) = &mut self.comments {
                comments.push((before, range));
            }
        }
    }

    fn block_without_data(&mut self, block: BlockRef<'_>) {
        if block.id.is_some() {
            self.last_event_id = self.push(block.last_event_id);
        }
    }
}

/// The events that one chunk completed, in order.
#[pyclass(frozen, sequence, module = "counterfoil")]
pub(crate) struct SseBatch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    comments: Vec<(usize, Range<usize>)>,
    data_as_bytes: bool,
    /// The same bytes as a Python object, made when the first memoryview is asked for.
    shared: PyOnceLock<Py<PyBytes>>,
}

impl SseBatch {
    /// Nothing was completed, not even a comment that was asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.comments.is_empty()
    }

    fn entry(&self, index: isize) -> PyResult<&Entry> {
        let length = self.entries.len();
        let found =
            if index < 0 { length.checked_sub(index.unsigned_abs()) } else { Some(index.unsigned_abs()) };
        found.and_then(|position| self.entries.get(position)).ok_or_else(|| {
            PyIndexError::new_err(format!("the batch has {length} events, and none at {index}"))
        })
    }

    fn field(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    fn make_event(&self, py: Python<'_>, entry: &Entry) -> PyResult<Py<SseEvent>> {
        let event = match self.field(&entry.event) {
            [] => intern!(py, "message").clone(),
            event => decode(py, event)?,
        };
        let data = match self.field(&entry.data) {
            data if self.data_as_bytes => PyBytes::new(py, data).into_any().unbind(),
            data => decode(py, data)?.into_any().unbind(),
        };
        let last_event_id = decode(py, self.field(&entry.last_event_id))?.into_any().unbind();
        let value = SseEvent {
            event: event.into_any().unbind(),
            data,
            id: if entry.has_id { last_event_id.clone_ref(py) } else { py.None() },
            retry: entry.retry.map_or_else(
                || Ok(py.None()),
                |retry| retry.into_pyobject(py).map(|r| r.into_any().unbind()),
            )?,
            last_event_id,
        };
        Py::new(py, value)
    }
}

#[pymethods]
impl SseBatch {
    fn __len__(&self) -> usize {
        self.entries.len()
    }

    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<Py<SseEvent>> {
        self.make_event(py, self.entry(index)?)
    }

    fn __iter__(batch: Bound<'_, Self>) -> SseBatchIterator {
        SseBatchIterator { batch: batch.unbind(), next: AtomicUsize::new(0) }
    }

    fn __repr__(&self) -> String {
        format!("<SseBatch of {} events>", self.entries.len())
    }

    /// The data of one event as bytes.
    fn data<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.field(&self.entry(index)?.data)))
    }

    /// The data of every event as bytes.
    fn all_data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.entries.iter().map(|entry| PyBytes::new(py, self.field(&entry.data))))
    }

    /// The data of one event without a copy of its own; it keeps the batch's bytes alive.
    fn view<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let range = &self.entry(index)?.data;
        let shared = self.shared.get_or_init(py, || PyBytes::new(py, &self.bytes).unbind());
        let whole = PyMemoryView::from(shared.bind(py).as_any())?;
        whole.get_item(pyo3::types::PySlice::new(
            py,
            isize::try_from(range.start)?,
            isize::try_from(range.end)?,
            1,
        ))
    }

    /// The event type as bytes; `b"message"` when the stream named none.
    fn event<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyBytes>> {
        Ok(match self.field(&self.entry(index)?.event) {
            [] => PyBytes::new(py, b"message"),
            event => PyBytes::new(py, event),
        })
    }

    /// The block's own id as bytes: absent is None, empty is `b""`.
    fn id<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let entry = self.entry(index)?;
        Ok(entry.has_id.then(|| PyBytes::new(py, self.field(&entry.last_event_id))))
    }

    /// The last event ID after the event, as bytes.
    fn last_event_id<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.field(&self.entry(index)?.last_event_id)))
    }

    /// The block's own `retry` in milliseconds.
    fn retry(&self, index: isize) -> PyResult<Option<u64>> {
        Ok(self.entry(index)?.retry)
    }

    /// Every comment as bytes, with the index of the event that it came before; for a parser made
    /// with `comments=True`.
    fn comments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            self.comments.iter().map(|(before, range)| (*before, PyBytes::new(py, self.field(range)))),
        )
    }
}

/// Walks a batch, building one event at a time.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct SseBatchIterator {
    batch: Py<SseBatch>,
    next: AtomicUsize,
}

#[pymethods]
impl SseBatchIterator {
    fn __iter__(iterator: Bound<'_, Self>) -> Bound<'_, Self> {
        iterator
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<SseEvent>>> {
        let batch = self.batch.get();
        match batch.entries.get(self.next.load(Ordering::Relaxed)) {
            None => Ok(None),
            Some(entry) => {
                self.next.fetch_add(1, Ordering::Relaxed);
                batch.make_event(py, entry).map(Some)
            }
        }
    }
}
