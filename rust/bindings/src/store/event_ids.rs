//! `EventIds`: the IDs of several events, made into text only where somebody looks at them.

use counterfoil_core::store;
use pyo3::class::basic::CompareOp;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PySlice, PyString, PyTuple};

use super::core::with_scratch;

/// The IDs of events that were appended or read in one step, in order.
#[pyclass(frozen, sequence, module = "counterfoil")]
pub(crate) struct EventIds(store::EventIds);

impl EventIds {
    pub(super) fn new(ids: store::EventIds) -> Self {
        Self(ids)
    }

    pub(super) fn text<'py>(&self, py: Python<'py>, place: usize) -> PyResult<Bound<'py, PyString>> {
        with_scratch(|id| {
            if self.0.write(place, id) {
                PyString::from_bytes(py, id)
            } else {
                Err(PyIndexError::new_err("there are not so many event IDs"))
            }
        })
    }

    pub(super) fn texts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyString>>> {
        let mut texts = Vec::with_capacity(self.0.len());
        self.0.each(|id| texts.push(PyString::from_bytes(py, id)));
        texts.into_iter().collect()
    }

    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.texts(py)?)
    }
}

#[pymethods]
impl EventIds {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, place: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if place.is_instance_of::<PySlice>() {
            return self.list(py)?.as_any().get_item(place);
        }
        let place: isize = place.extract()?;
        let from_start = if place < 0 { place.checked_add_unsigned(self.0.len()) } else { Some(place) };
        let place = from_start.and_then(|place| usize::try_from(place).ok());
        Ok(self.text(py, place.unwrap_or(usize::MAX))?.into_any())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.list(py)?.try_iter()
    }

    /// Equal to what holds the same IDs: another of these, a list or a tuple.
    fn __richcmp__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
        operation: CompareOp,
    ) -> PyResult<Py<PyAny>> {
        let is_equal = if let Ok(other) = other.cast::<Self>() {
            self.0 == other.get().0
        } else if other.is_instance_of::<PyList>() {
            self.list(py)?.eq(other)?
        } else if other.is_instance_of::<PyTuple>() {
            self.list(py)?.to_tuple().eq(other)?
        } else {
            return Ok(py.NotImplemented());
        };
        Ok(match operation {
            CompareOp::Eq => is_equal.into_pyobject(py)?.to_owned().into_any().unbind(),
            CompareOp::Ne => (!is_equal).into_pyobject(py)?.to_owned().into_any().unbind(),
            _ => py.NotImplemented(),
        })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("EventIds({})", self.list(py)?.repr()?))
    }

    /// Where an ID stands first.
    #[pyo3(signature = (value, start=None, stop=None))]
    fn index<'py>(
        &self,
        py: Python<'py>,
        value: &Bound<'py, PyAny>,
        start: Option<isize>,
        stop: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let end = stop.unwrap_or(isize::MAX);
        self.list(py)?.call_method1("index", (value, start.unwrap_or(0), end))
    }

    /// How often an ID is there: once or not at all.
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(usize::from(self.list(py)?.contains(value)?))
    }
}
