//! `RelayCore` and what one chunk gave: `RelayBatch`, made into Python values only where it is asked.

use std::sync::{Mutex, MutexGuard, PoisonError};

use counterfoil_core::envelope::Kind;
use counterfoil_core::relay::{Relay, Report, Seen, SeenId, What};
use counterfoil_core::sse::{End, ParserLimits};
use counterfoil_core::store::{Armed, ReaderEnd, MAX_PIECE_BYTES};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyString};

use super::core::{with_scratch, ReplayCore};
use super::errors;
use super::reader::ReaderCore;
use crate::ids::{Scope, StreamToken};

/// The relay of one upstream connection into one stream; fed by one task at a time.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct RelayCore {
    store: Py<ReplayCore>,
    scope: Py<Scope>,
    fed: Mutex<Fed>,
}

/// A relay, and the memory of its reports.
struct Fed {
    relay: Relay,
    report: Report,
    has_ended: bool,
}

impl RelayCore {
    pub(super) fn new(store: Py<ReplayCore>, scope: Py<Scope>, relay: Relay) -> Self {
        Self { store, scope, fed: Mutex::new(Fed { relay, report: Report::default(), has_ended: false }) }
    }

    /// For steps that run no Python code: neither does whoever waits here hold the interpreter lock.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Fed> {
        self.fed.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl RelayCore {
    /// Take a chunk. With `reader`, also read for it what it has not been given yet, in the same step.
    #[pyo3(signature = (chunk, *, reader=None))]
    fn feed(
        &self,
        py: Python<'_>,
        chunk: &Bound<'_, PyAny>,
        reader: Option<&ReaderCore>,
    ) -> PyResult<RelayBatch> {
        let chunk = crate::buffers::to_bytes(chunk)?;
        let mut report = Report::default();
        let store = self.store.get();
        let scope = self.scope.get();
        with_scratch(|frames| {
            let read = store.attempt(py, |store, now_ms, woken| {
                // Inside the store's step, where no Python code runs: what is woken may look at this relay.
                let Fed { relay, has_ended, .. } = &mut *self.lock(py);
                relay.feed(store, &scope.0, chunk.as_bytes(), now_ms, &mut report, woken)?;
                *has_ended |= report.has_ended;
                Ok(match reader {
                    None => Ok(0),
                    Some(reader) => store.read(reader.ticket(), MAX_PIECE_BYTES, frames, now_ms, woken),
                })
            })?;
            let frames = match read {
                // The reader says so itself when it is read.
                Ok(0) | Err(ReaderEnd::Ended(_) | ReaderEnd::TakenOver | ReaderEnd::Closed) => None,
                Ok(_) => Some(PyBytes::new(py, frames).unbind()),
                Err(ReaderEnd::TooSlow { .. }) => None,
            };
            Ok(RelayBatch { report, frames })
        })
    }

    /// Take a chunk and return what `reader` reads then, in one step. Who waits on that reader is woken only
    /// for more than is returned; the end of the stream, and all that comes with what stops this relay, which
    /// is raised, is left to it.
    fn pass_on<'py>(
        &self,
        py: Python<'py>,
        reader: &ReaderCore,
        chunk: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let chunk = crate::buffers::to_bytes(chunk)?;
        let scope = self.scope.get();
        let reader = reader.ticket();
        with_scratch(|frames| {
            let stopped = self.store.get().attempt(py, |store, now_ms, woken| {
                // Inside the store's step, where no Python code runs: what is woken may look at this relay.
                let Fed { relay, report, has_ended } = &mut *self.lock(py);
                let waiter = store.disarm(reader);
                let fed = relay.feed(store, &scope.0, chunk.as_bytes(), now_ms, report, woken);
                *has_ended |= report.has_ended;
                let stopped = (report.refused, report.failed);
                if fed.is_ok() && !report.has_ended && stopped == (None, None) {
                    // Its end, if it has one, is told by the reader itself when it is read.
                    let _ = store.read(reader, MAX_PIECE_BYTES, frames, now_ms, woken);
                }
                match waiter.map(|waiter| store.arm(reader, waiter)) {
                    None | Some(Armed::Waiting) => {}
                    Some(Armed::Ready(waiter) | Armed::Busy(waiter)) => woken.push(waiter),
                }
                fed.map(|()| stopped)
            })?;
            match stopped {
                (None, None) => Ok(PyBytes::new(py, frames)),
                (Some(error), _) => Err(errors::store_error(py, error)),
                (None, Some(error)) => Err(crate::sse::parse_error(py, error)),
            }
        })
    }

    /// The upstream's connection is over; True if it ended inside an event, which is discarded.
    fn end(&self, py: Python<'_>) -> bool {
        self.lock(py).relay.end() == End::Truncated
    }

    /// The upstream's last event ID as of the last thing that was taken, as it stood.
    #[getter]
    fn last_event_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let cursor = self.lock(py).relay.cursor().to_vec();
        crate::text::decode(py, &cursor)
    }

    /// The stream got its last answer by this relay.
    #[getter]
    fn has_ended(&self, py: Python<'_>) -> bool {
        self.lock(py).has_ended
    }

    /// The stream that is appended to.
    #[getter]
    fn stream(&self, py: Python<'_>) -> StreamToken {
        StreamToken(*self.lock(py).relay.stream())
    }
}

/// What one chunk held.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct RelayBatch {
    report: Report,
    frames: Option<Py<PyBytes>>,
}

/// One thing that was seen.
#[pyclass(frozen, module = "counterfoil", get_all)]
pub(crate) struct RelaySeen {
    /// "appended", "trimmed", "refused", "echo", "comment", "dropped", "invalid" or "block".
    what: &'static str,
    /// "request", "notification", "result", "error", "batch" or "invalid".
    kind: &'static str,
    /// The message's id with its type; None where it has none.
    id: Py<PyAny>,
    /// The message's method.
    method: Option<Py<PyString>>,
    /// The comment's text, the id of an echo or a block, or the name of a dropped event.
    text: Option<Py<PyString>>,
    /// Its sequence in our stream; 0 where it has none.
    sequence: u64,
}

#[pymethods]
impl RelaySeen {
    fn __repr__(&self) -> String {
        format!("RelaySeen(what='{}', kind='{}', sequence={})", self.what, self.kind, self.sequence)
    }
}

const fn what(what: What) -> &'static str {
    match what {
        What::Appended => "appended",
        What::Trimmed => "trimmed",
        What::Refused => "refused",
        What::Echo => "echo",
        What::Comment => "comment",
        What::Dropped => "dropped",
        What::Invalid => "invalid",
        What::Block => "block",
    }
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Request => "request",
        Kind::Notification => "notification",
        Kind::Result => "result",
        Kind::Error => "error",
        Kind::Batch => "batch",
        Kind::Invalid => "invalid",
    }
}

impl RelayBatch {
    fn seen_as_python(&self, py: Python<'_>, seen: &Seen) -> PyResult<RelaySeen> {
        let text = |span| crate::text::decode(py, self.report.text_of(span));
        let id = match &seen.id {
            SeenId::None | SeenId::Null => py.None(),
            SeenId::Integer(number) => number.into_pyobject(py)?.into_any().unbind(),
            SeenId::Text(span) | SeenId::Number(span) => text(span)?.into_any().unbind(),
        };
        let has_text = !seen.text.is_empty();
        let is_message = matches!(seen.what, What::Appended | What::Trimmed | What::Refused | What::Invalid);
        let value = if has_text { Some(text(&seen.text)?.unbind()) } else { None };
        let (method, text) = if is_message { (value, None) } else { (None, value) };
        Ok(RelaySeen {
            what: what(seen.what),
            kind: kind(seen.kind),
            id,
            method,
            text,
            sequence: seen.sequence,
        })
    }
}

#[pymethods]
impl RelayBatch {
    /// Everything that was seen, in order.
    #[getter]
    fn seen(&self, py: Python<'_>) -> PyResult<Vec<RelaySeen>> {
        self.report.seen.iter().map(|seen| self.seen_as_python(py, seen)).collect()
    }

    /// Only requests and answers, and what was not appended: what a gateway has to act on.
    #[getter]
    fn notable(&self, py: Python<'_>) -> PyResult<Vec<RelaySeen>> {
        let is_notable = |seen: &&Seen| seen.what != What::Appended || seen.kind != Kind::Notification;
        self.report.seen.iter().filter(is_notable).map(|seen| self.seen_as_python(py, seen)).collect()
    }

    /// Events that were appended.
    #[getter]
    fn appended(&self) -> usize {
        self.report.seen.iter().filter(|seen| matches!(seen.what, What::Appended | What::Trimmed)).count()
    }

    /// The frames that were read for the reader.
    #[getter]
    fn frames(&self, py: Python<'_>) -> Py<PyBytes> {
        self.frames.as_ref().map_or_else(|| PyBytes::new(py, b"").unbind(), |frames| frames.clone_ref(py))
    }

    /// The stream has all its answers now.
    #[getter]
    fn has_ended(&self) -> bool {
        self.report.has_ended
    }

    /// The upstream's last `retry`, if this chunk had one.
    #[getter]
    fn retry_ms(&self) -> Option<u64> {
        self.report.retry_ms
    }

    /// Raise what was refused, or why nothing more is read, if so.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(error) = self.report.refused {
            return Err(errors::store_error(py, error));
        }
        self.report.failed.map_or(Ok(()), |error| Err(crate::sse::parse_error(py, error)))
    }

    /// Why an event was refused (`AnswerTooLarge`, `StreamEnded`), if one was.
    #[getter]
    fn refused(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.report.refused.map(|error| errors::store_error(py, error).into_value(py).into_any())
    }

    /// Why the upstream's bytes are read no further (`SseLimitError`, `ParserClosed`), if so.
    #[getter]
    fn failed(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.report.failed.map(|error| crate::sse::parse_error(py, error).into_value(py).into_any())
    }
}

/// A relay for one upstream connection.
#[allow(clippy::too_many_arguments)]
pub(super) fn open(
    store: &Bound<'_, ReplayCore>,
    scope: &Bound<'_, Scope>,
    stream: &StreamToken,
    limits: &Bound<'_, PyAny>,
    last_event_id: &[u8],
    takes_anything: bool,
) -> PyResult<RelayCore> {
    let bound = |name: &str| limits.getattr(name)?.extract::<usize>();
    let limits = ParserLimits {
        line_bytes: bound("line_bytes")?,
        event_bytes: bound("event_bytes")?,
        event_lines: bound("event_lines")?,
    };
    let relay = Relay::new(limits, stream.0, last_event_id, takes_anything);
    Ok(RelayCore::new(store.clone().unbind(), scope.clone().unbind(), relay))
}
