//! `ChunkJoiner`: bytes of a connection in, the same body in fewer chunks out.

use std::sync::{Mutex, PoisonError};

use counterfoil_core::chunks::ChunkJoiner as Core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Joins the chunks of one HTTP/1.1 chunked body.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct ChunkJoiner {
    inner: Mutex<Core>,
}

#[pymethods]
impl ChunkJoiner {
    #[new]
    fn new() -> Self {
        Self { inner: Mutex::new(Core::new()) }
    }

    /// Take the next bytes of the connection; give what a reader of chunks is to get in their stead.
    fn feed<'py>(&self, py: Python<'py>, data: &[u8]) -> Bound<'py, PyBytes> {
        let mut out = Vec::new();
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).feed(data, &mut out);
        PyBytes::new(py, &out)
    }

    /// Whether the last chunk has come: what follows passes unchanged.
    #[getter]
    fn is_behind(&self) -> bool {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).is_behind()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ChunkJoiner>()
}
