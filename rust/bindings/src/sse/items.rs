//! What the parser hands to Python: frozen values, compared by content.

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

/// The methods of a frozen value: its own, and equality, hash, repr and pickling from one tuple of its fields.
macro_rules! value_methods {
    ($class:ident, $name:literal, ($($field:ident),+), { $($own:tt)* }) => {
        impl $class {
            fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
                PyTuple::new(py, [$(self.$field.bind(py)),+])
            }
        }

        #[pymethods]
        impl $class {
            $($own)*

            fn __richcmp__(&self, other: &Bound<'_, PyAny>, operation: CompareOp) -> PyResult<Py<PyAny>> {
                let py = other.py();
                match (other.cast::<Self>(), operation) {
                    (Ok(other), CompareOp::Eq | CompareOp::Ne) => {
                        let equal = self.fields(py)?.eq(other.get().fields(py)?)?;
                        let answer = equal == matches!(operation, CompareOp::Eq);
                        Ok(answer.into_pyobject(py)?.to_owned().into_any().unbind())
                    }
                    _ => Ok(py.NotImplemented()),
                }
            }

            fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
                self.fields(py)?.hash()
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let mut parts = Vec::new();
                $(parts.push(format!("{}={}", stringify!($field), self.$field.bind(py).repr()?));)+
                Ok(format!("{}({})", $name, parts.join(", ")))
            }

            fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
                Ok((py.get_type::<Self>(), self.fields(py)?))
            }
        }
    };
}

/// One complete event.
///
/// The free list spares an allocation per event, and the walk of the garbage collector over events that live for
/// one turn of a loop; it holds as many as a chunk of 64 KiB of small events completes.
#[pyclass(frozen, freelist = 512, module = "counterfoil")]
pub(crate) struct SseEvent {
    #[pyo3(get)]
    pub(crate) event: Py<PyAny>,
    #[pyo3(get)]
    pub(crate) data: Py<PyAny>,
    #[pyo3(get)]
    pub(crate) id: Py<PyAny>,
    #[pyo3(get)]
    pub(crate) retry: Py<PyAny>,
    #[pyo3(get)]
    pub(crate) last_event_id: Py<PyAny>,
}

/// One comment line.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct SseComment {
    #[pyo3(get)]
    pub(crate) text: Py<PyAny>,
}

/// A block that ended without a `data` line.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct SseBlock {
    #[pyo3(get)]
    pub(crate) event: Py<PyAny>,
    #[pyo3(get)]
    pub(crate) id: Py<PyAny>,
    #[pyo3(get)]
    pub(crate) retry: Py<PyAny>,
    #[pyo3(get)]
    pub(crate) last_event_id: Py<PyAny>,
}

/// How a stream ended.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct SseEnd {
    #[pyo3(get)]
    pub(crate) truncated: Py<PyAny>,
    #[pyo3(get)]
    pub(crate) incomplete: Py<PyAny>,
}

value_methods!(SseEvent, "SseEvent", (event, data, id, retry, last_event_id), {
    #[new]
    #[pyo3(signature = (event, data, id=None, retry=None, last_event_id=None))]
    fn new(
        py: Python<'_>,
        event: Py<PyAny>,
        data: Py<PyAny>,
        id: Option<Py<PyAny>>,
        retry: Option<Py<PyAny>>,
        last_event_id: Option<Py<PyAny>>,
    ) -> Self {
        let none = || py.None();
        let id = id.unwrap_or_else(none);
        let last_event_id = last_event_id.unwrap_or_else(|| {
            if id.is_none(py) {
                pyo3::types::PyString::new(py, "").into_any().unbind()
            } else {
                id.clone_ref(py)
            }
        });
        Self { event, data, id, retry: retry.unwrap_or_else(none), last_event_id }
    }

    #[classmethod]
    #[pyo3(signature = (item, /))]
    fn __class_getitem__<'py>(class: &Bound<'py, PyType>, item: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        let _ = item;
        class.clone()
    }
});

value_methods!(SseComment, "SseComment", (text), {
    #[new]
    fn new(text: Py<PyAny>) -> Self {
        Self { text }
    }
});

value_methods!(SseBlock, "SseBlock", (event, id, retry, last_event_id), {
    #[new]
    fn new(event: Py<PyAny>, id: Py<PyAny>, retry: Py<PyAny>, last_event_id: Py<PyAny>) -> Self {
        Self { event, id, retry, last_event_id }
    }
});

value_methods!(SseEnd, "SseEnd", (truncated, incomplete), {
    #[new]
    fn new(truncated: Py<PyAny>, incomplete: Py<PyAny>) -> Self {
        Self { truncated, incomplete }
    }
});
