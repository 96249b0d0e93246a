//! `SseParser`: feeds the core's parser and makes Python values of what it hands out.

use std::sync::{Mutex, MutexGuard, TryLockError};

use counterfoil_core::sse::{BlockRef, End, EventRef, ParseError, Parser, ParserLimits, Sink};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyType};

use super::batch::{BatchSink, SseBatch};
use super::items::{SseBlock, SseComment, SseEnd, SseEvent};
use crate::buffers::to_bytes;
use crate::errors::{parser_closed, sse_limit_error};
use crate::text::decode;

/// An incremental event-stream parser for one connection.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct SseParser {
    wants: Wants,
    inner: Mutex<Inner>,
}

/// What `feed` gives beside events, and in which form.
#[derive(Clone, Copy)]
struct Wants {
    data_as_bytes: bool,
    comments: bool,
    blocks: bool,
}

struct Inner {
    parser: Parser,
    names: Names,
}

/// `str` objects that the next event will most likely need again.
#[derive(Default)]
struct Names {
    event: Option<(Vec<u8>, Py<PyAny>)>,
    last_event_id: Option<Py<PyAny>>,
}

#[pymethods]
impl SseParser {
    #[new]
    #[pyo3(signature = (*, limits=None, last_event_id=None, data="str", comments=false, blocks=false))]
    fn new(
        limits: Option<&Bound<'_, PyAny>>,
        last_event_id: Option<&Bound<'_, PyAny>>,
        data: &str,
        comments: bool,
        blocks: bool,
    ) -> PyResult<Self> {
        let limits = limits.map_or_else(|| Ok(ParserLimits::default()), read_limits)?;
        let data_as_bytes = match data {
            "str" => false,
            "bytes" => true,
            _ => return Err(PyValueError::new_err("data is \"str\" or \"bytes\"")),
        };
        let parser = match last_event_id {
            None => Parser::new(limits),
            Some(id) => match id.cast::<PyString>() {
                Ok(text) => Parser::with_last_event_id(limits, text.to_str()?.as_bytes()),
                Err(_) => Parser::with_last_event_id(limits, to_bytes(id)?.as_bytes()),
            },
        };
        let inner = Inner { parser, names: Names::default() };
        Ok(Self { wants: Wants { data_as_bytes, comments, blocks }, inner: Mutex::new(inner) })
    }

    /// Take the next bytes; give what they complete, in the order of the stream.
    fn feed<'py>(&self, py: Python<'py>, chunk: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        if let Ok(bytes) = chunk.cast::<PyBytes>() {
            self.feed_into(py, bytes.as_bytes(), &list)?;
        } else {
            self.feed_into(py, to_bytes(chunk)?.as_bytes(), &list)?;
        }
        Ok(list)
    }

    /// Take the next bytes; give what they complete as one value that builds fields on demand.
    fn feed_batch(&self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<SseBatch> {
        let bytes = to_bytes(chunk)?;
        let mut inner = self.lock(py)?;
        let mut sink = BatchSink::new(self.wants.data_as_bytes, self.wants.comments);
        sink.start(inner.parser.last_event_id());
        let result = inner.parser.feed(bytes.as_bytes(), &mut sink);
        inner.names.last_event_id = None;
        drop(inner);
        let batch = sink.into_batch();
        match result {
            Err(error) if batch.is_empty() => Err(to_python(py, error)),
            _ => Ok(batch),
        }
    }

    /// End the input; say whether it ended inside an event.
    #[pyo3(signature = (*, lenient=false))]
    fn end(&self, py: Python<'_>, lenient: bool) -> PyResult<SseEnd> {
        let list = PyList::empty(py);
        let mut inner = self.lock(py)?;
        if let Some(error) = inner.parser.error() {
            return Err(to_python(py, error));
        }
        let Inner { parser, names } = &mut *inner;
        let wants = Wants { comments: false, blocks: false, ..self.wants };
        let end = if lenient {
            let mut sink = ListSink { py, list: &list, wants, names, failed: None };
            let end = parser.end_leniently(&mut sink);
            let failed = sink.failed.take();
            // The unfinished block's id has moved nothing.
            names.last_event_id = None;
            failed.map_or(Ok(end), Err)?
        } else {
            parser.end()
        };
        let truncated = (end == End::Truncated).into_pyobject(py)?.to_owned().into_any().unbind();
        let incomplete = list.get_item(0).map_or_else(|_| py.None(), Bound::unbind);
        Ok(SseEnd { truncated, incomplete })
    }

    /// The last event ID as of the last blank line; "" when there is none.
    #[getter]
    fn last_event_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode(py, self.lock(py)?.parser.last_event_id())
    }

    /// The last valid `retry` field in milliseconds, or None.
    #[getter]
    fn reconnection_time_ms(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.lock(py)?.parser.reconnection_time_ms())
    }

    /// Bytes of the stream accepted so far.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.lock(py)?.parser.position())
    }

    /// Bytes held for what is not complete yet.
    #[getter]
    fn held_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.parser.held_bytes())
    }

    /// The error that every further call raises, or None.
    #[getter]
    fn error(&self, py: Python<'_>) -> PyResult<Option<PyErr>> {
        Ok(self.lock(py)?.parser.error().map(|error| to_python(py, error)))
    }

    #[classmethod]
    #[pyo3(signature = (item, /))]
    fn __class_getitem__<'py>(class: &Bound<'py, PyType>, item: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        let _ = item;
        class.clone()
    }
}

impl SseParser {
    /// Never waits: a thread that waited here with the interpreter lock could wait for ever.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(parser_closed(
                py,
                "another thread is feeding this parser: a stream has one order, so give it one reader"
                    .to_owned(),
            )),
        }
    }

    #[inline]
    fn feed_into(&self, py: Python<'_>, chunk: &[u8], list: &Bound<'_, PyList>) -> PyResult<()> {
        let mut inner = self.lock(py)?;
        let Inner { parser, names } = &mut *inner;
        let mut sink = ListSink { py, list, wants: self.wants, names, failed: None };
        let result = parser.feed(chunk, &mut sink);
        if let Some(error) = sink.failed {
            return Err(error);
        }
        match result {
            // What came before the error is not lost: the next call raises it.
            Err(error) if list.is_empty() => Err(to_python(py, error)),
            _ => Ok(()),
        }
    }
}

fn read_limits(limits: &Bound<'_, PyAny>) -> PyResult<ParserLimits> {
    let py = limits.py();
    let read = |name: &Bound<'_, PyString>| limits.getattr(name)?.extract::<usize>();
    Ok(ParserLimits {
        line_bytes: read(intern!(py, "line_bytes"))?,
        event_bytes: read(intern!(py, "event_bytes"))?,
        event_lines: read(intern!(py, "event_lines"))?,
    })
}

pub(crate) fn to_python(py: Python<'_>, error: ParseError) -> PyErr {
    match error.bound() {
        Some((bound, limit, position)) => {
            let text = format!("{error}: raise Limits.{bound}, or close the connection");
            sse_limit_error(py, text, bound, limit, position)
        }
        None => parser_closed(py, error.to_string()),
    }
}

/// Makes a Python value of everything that is wanted.
struct ListSink<'a, 'py> {
    py: Python<'py>,
    list: &'a Bound<'py, PyList>,
    wants: Wants,
    names: &'a mut Names,
    failed: Option<PyErr>,
}

impl Names {
    #[inline]
    fn event(&mut self, py: Python<'_>, event: &[u8]) -> PyResult<Py<PyAny>> {
        if event.is_empty() {
            return Ok(intern!(py, "message").clone().into_any().unbind());
        }
        if let Some((bytes, text)) = &self.event {
            if bytes == event {
                return Ok(text.clone_ref(py));
            }
        }
        let text = decode(py, event)?.into_any().unbind();
        self.event = Some((event.to_vec(), text.clone_ref(py)));
        Ok(text)
    }

    /// The block's own id and the last event ID; the same object when the block has one.
    #[inline]
    fn ids(&mut self, py: Python<'_>, id: Option<&[u8]>, last: &[u8]) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        match (id, &self.last_event_id) {
            (Some(id), _) => {
                let own = decode(py, id)?.into_any().unbind();
                self.last_event_id = Some(own.clone_ref(py));
                Ok((own.clone_ref(py), own))
            }
            (None, Some(kept)) => Ok((py.None(), kept.clone_ref(py))),
            (None, None) => {
                let text = decode(py, last)?.into_any().unbind();
                self.last_event_id = Some(text.clone_ref(py));
                Ok((py.None(), text))
            }
        }
    }
}

#[inline]
fn milliseconds(py: Python<'_>, retry: Option<u64>) -> PyResult<Py<PyAny>> {
    Ok(match retry {
        None => py.None(),
        Some(retry) => retry.into_pyobject(py)?.into_any().unbind(),
    })
}

impl ListSink<'_, '_> {
    #[inline]
    fn make_event(&mut self, event: EventRef<'_>) -> PyResult<()> {
        let py = self.py;
        let data = if self.wants.data_as_bytes {
            PyBytes::new(py, event.data).into_any().unbind()
        } else {
            decode(py, event.data)?.into_any().unbind()
        };
        let (id, last_event_id) = self.names.ids(py, event.id, event.last_event_id)?;
        let last_event_id = match event.id {
            // Only an unfinished event has an id that is not the last event ID.
            Some(own) if !std::ptr::eq(own, event.last_event_id) => {
                decode(py, event.last_event_id)?.into_any().unbind()
            }
            _ => last_event_id,
        };
        let value = SseEvent {
            event: self.names.event(py, event.event)?,
            data,
            id,
            retry: milliseconds(py, event.retry)?,
            last_event_id,
        };
        self.list.append(Py::new(py, value)?)
    }

    fn make_block(&mut self, block: BlockRef<'_>) -> PyResult<()> {
        let py = self.py;
        let (id, last_event_id) = self.names.ids(py, block.id, block.last_event_id)?;
        let event = self.names.event(py, block.event)?;
        let retry = milliseconds(py, block.retry)?;
        self.list.append(Py::new(py, SseBlock { event, id, retry, last_event_id })?)
    }

    fn note(&mut self, result: PyResult<()>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }
}

impl Sink for ListSink<'_, '_> {
    #[inline]
    fn event(&mut self, event: EventRef<'_>) {
        let made = self.make_event(event);
        self.note(made);
    }

    #[inline]
    fn comment(&mut self, text: &[u8]) {
        if self.wants.comments {
            let made = decode(self.py, text).and_then(|text| {
                let comment = SseComment { text: text.into_any().unbind() };
                self.list.append(Py::new(self.py, comment)?)
            });
            self.note(made);
        }
    }

    fn block_without_data(&mut self, block: BlockRef<'_>) {
        if self.wants.blocks {
            let made = self.make_block(block);
            self.note(made);
        } else if block.id.is_some() {
            self.names.last_event_id = None;
        }
    }
}
