//! `ReaderCore`: one reader of one stream, until it is closed or dropped.

use counterfoil_core::ring::Most;
use counterfoil_core::store::{Armed, Ticket, MAX_PIECE_BYTES};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::core::ReplayCore;
use super::events::{Collected, StoredEvents};
use super::{errors, fork};
use crate::store::core::with_scratch;

/// A reader; dropping it detaches it.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct ReaderCore {
    store: Py<ReplayCore>,
    ticket: Ticket,
}

impl ReaderCore {
    pub(super) fn new(store: Py<ReplayCore>, ticket: Ticket) -> Self {
        Self { store, ticket }
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }
}

#[pymethods]
impl ReaderCore {
    /// Ready frames after the position, `b""` if there are none yet.
    #[pyo3(signature = (max_bytes=262_144))]
    fn read<'py>(&self, py: Python<'py>, max_bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let store = self.store.get();
        let most = max_bytes.min(MAX_PIECE_BYTES);
        with_scratch(|frames| {
            let read = store
                .with(py, |store, now_ms, woken| store.read(self.ticket, most, frames, now_ms, woken))?;
            match read {
                Ok(0) => Ok(PyBytes::new(py, b"")),
                Ok(_) => Ok(PyBytes::new(py, frames)),
                Err(end) => Err(errors::reader_end(py, end)),
            }
        })
    }

    /// Events after the position, none if there are none yet.
    #[pyo3(signature = (max_bytes=262_144, *, max_events=None))]
    fn read_events(
        &self,
        py: Python<'_>,
        max_bytes: usize,
        max_events: Option<u64>,
    ) -> PyResult<StoredEvents> {
        let most = Most { events: max_events.unwrap_or(u64::MAX), bytes: max_bytes.min(MAX_PIECE_BYTES) };
        let mut events = Collected::new(py);
        self.store
            .get()
            .with(py, |store, now_ms, woken| {
                store.read_events(self.ticket, most, &mut events, now_ms, woken)
            })?
            .map_err(|end| errors::reader_end(py, end))?;
        events.into_events()
    }

    /// Keep `waker` and call it once when there is something to read or the reader ends.
    /// Returns False, and does not keep it, if that is so already.
    fn arm(&self, py: Python<'_>, waker: Py<PyAny>) -> PyResult<bool> {
        match self.store.get().locked(py, |store| store.arm(self.ticket, waker))? {
            Armed::Waiting => Ok(true),
            Armed::Ready(_) => Ok(false),
            Armed::Busy(_) => Err(errors::busy(py)),
        }
    }

    /// Take the waker back.
    fn disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.store.get().locked(py, |store| store.disarm(self.ticket)).map(drop)
    }

    /// Detach: the connection is gone, the stream goes on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.store.get().locked(py, |store| store.detach(self.ticket)).map(drop)
    }

    /// The ID of a position in the window or just before it; None elsewhere.
    fn id_at(&self, py: Python<'_>, sequence: u64) -> PyResult<Option<String>> {
        let id = self.store.get().locked(py, |store| store.id_at(self.ticket, sequence))?;
        // ASCII by construction.
        Ok(id.and_then(|id| String::from_utf8(id).ok()))
    }

    /// The last sequence that was handed out.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.store.get().locked(py, |store| store.position(self.ticket))
    }

    /// Everything that there is for this reader was handed out.
    #[getter]
    fn has_caught_up(&self, py: Python<'_>) -> PyResult<bool> {
        self.store.get().locked(py, |store| store.has_caught_up(self.ticket))
    }

    /// The call's answer was handed out, and everything before it.
    #[getter]
    fn has_read_answer(&self, py: Python<'_>) -> PyResult<bool> {
        self.store.get().locked(py, |store| store.has_read_answer(self.ticket))
    }

    /// A newer connection reads; this one is only kept open.
    #[getter]
    fn is_parked(&self, py: Python<'_>) -> PyResult<bool> {
        self.store.get().locked(py, |store| store.is_parked(self.ticket))
    }
}

impl Drop for ReaderCore {
    fn drop(&mut self) {
        let store = self.store.get();
        if store.forks() != fork::count() {
            return;
        }
        // Not under the lock: the waker's own end may run Python code.
        let waker = Python::attach(|py| store.locked(py, |store| store.detach(self.ticket)));
        drop(waker);
    }
}
