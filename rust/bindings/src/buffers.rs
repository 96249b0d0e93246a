//! Reads any contiguous bytes-like object, without copying where the object cannot change.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

/// `bytes` as they are, everything else as a copy: another thread may change it meanwhile.
pub(crate) fn to_bytes<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "a bytes-like object is required, not str: an event stream is bytes",
        ));
    }
    let view = PyMemoryView::from(value)?;
    Ok(view.call_method0(intern!(value.py(), "tobytes"))?.cast_into()?)
}
