//! `StoredEvents`: what one read gave as values, made of a ring's frames without a parser.

use counterfoil_core::ids::Sequence;
use counterfoil_core::ring::{Frames, Stored};
use counterfoil_core::store::{self, LEAD};
use pyo3::exceptions::PyIndexError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PySlice, PyString, PyTuple};

use super::event_ids::EventIds;

/// What memory is taken for beforehand.
const MOST_EXPECTED: usize = 1024;

type Parts<'py> = (Bound<'py, PyString>, Bound<'py, PyString>, Bound<'py, PyAny>);

/// Events in order: a sequence of `(id, event, data)`, and the same by columns.
#[pyclass(frozen, sequence, module = "counterfoil")]
pub(crate) struct StoredEvents {
    /// The IDs, made into text only where somebody looks at them.
    #[pyo3(get)]
    ids: Py<EventIds>,
    /// The data of each.
    #[pyo3(get)]
    data: Py<PyTuple>,
    /// The types of those that are no `message`, by their places.
    named: Vec<(usize, Py<PyString>)>,
}

impl StoredEvents {
    fn event_at<'py>(&self, py: Python<'py>, place: usize) -> Bound<'py, PyString> {
        match self.named.binary_search_by_key(&place, |(at, _)| *at) {
            Ok(found) => self.named[found].1.bind(py).clone(),
            Err(_) => intern!(py, "message").clone(),
        }
    }

    fn parts<'py>(&self, py: Python<'py>, place: usize) -> PyResult<Parts<'py>> {
        let data = self.data.bind(py).get_item(place)?;
        Ok((self.ids.get().text(py, place)?, self.event_at(py, place), data))
    }

    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut parts = Vec::new();
        for (place, (id, data)) in self.ids.get().texts(py)?.into_iter().zip(self.data.bind(py)).enumerate() {
            parts.push((id, self.event_at(py, place), data));
        }
        PyList::new(py, parts)
    }
}

#[pymethods]
impl StoredEvents {
    /// The type of each.
    #[getter]
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, (0..self.data.bind(py).len()).map(|place| self.event_at(py, place)))
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.data.bind(py).len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, place: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if place.is_instance_of::<PySlice>() {
            return self.list(py)?.as_any().get_item(place);
        }
        let place: isize = place.extract()?;
        let count = self.data.bind(py).len();
        let from_start = if place < 0 { place.checked_add_unsigned(count) } else { Some(place) };
        match from_start.and_then(|place| usize::try_from(place).ok()).filter(|&place| place < count) {
            Some(place) => Ok(self.parts(py, place)?.into_pyobject(py)?.into_any()),
            None => Err(PyIndexError::new_err("there are not so many events")),
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.list(py)?.try_iter()
    }

    /// Where an event stands first.
    #[pyo3(signature = (value, start=0, stop=isize::MAX))]
    fn index<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        start: isize,
        stop: isize,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.list(py)?.call_method1("index", (value, start, stop))
    }

    /// How often an event is there: once or not at all.
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(usize::from(self.list(py)?.contains(value)?))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<StoredEvents: {}>", self.data.bind(py).len())
    }
}

/// What a read collects, under the store's lock: `bytes` and `str` are nothing that the garbage collector looks
/// at, so that making them runs no Python code.  What holds them is made after it.
pub(super) struct Collected<'py> {
    py: Python<'py>,
    ids: store::EventIds,
    data: Vec<Bound<'py, PyBytes>>,
    named: Vec<(usize, Py<PyString>)>,
    failed: Option<PyErr>,
    scratch: Vec<u8>,
}

impl<'py> Collected<'py> {
    pub(super) fn new(py: Python<'py>) -> Self {
        Self {
            py,
            ids: store::EventIds::default(),
            data: Vec::new(),
            named: Vec::new(),
            failed: None,
            scratch: Vec::new(),
        }
    }

    pub(super) fn into_events(self) -> PyResult<StoredEvents> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let ids = Py::new(self.py, EventIds::new(self.ids))?;
        let data = PyTuple::new(self.py, self.data)?.unbind();
        Ok(StoredEvents { ids, data, named: self.named })
    }
}

impl Frames for Collected<'_> {
    fn expect(&mut self, frames: usize) {
        // A reader of answers moves over many that it is not given.
        let likely = frames.min(MOST_EXPECTED);
        self.ids.expect(likely);
        self.data.reserve_exact(likely);
    }

    fn frame(&mut self, lead: &[u8], stored: Stored<'_>) {
        let sequence = Sequence::new(stored.sequence).unwrap_or(Sequence::MAX);
        self.ids.push(lead.strip_prefix(LEAD).unwrap_or(lead), sequence, stored.digest);
        let event = stored.event(&mut self.scratch);
        if !event.event.is_empty() {
            match crate::text::decode(self.py, event.event) {
                Ok(name) => self.named.push((self.data.len(), name.unbind())),
                Err(error) => self.failed = Some(error),
            }
        }
        self.data.push(PyBytes::new(self.py, &event.data));
    }
}
