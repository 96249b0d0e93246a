//! `counterfoil.Cursor`.

use counterfoil_core::ids;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A reader's position: stream, epoch, sequence and digest, replaced together or not at all.
#[pyclass(frozen, eq, hash, module = "counterfoil", get_all)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Cursor {
    /// The stream token.
    stream: String,
    /// Compared only for equality.
    epoch: String,
    /// The last event that the reader has; 0 before the first.
    sequence: u64,
    /// Opaque; compared only for equality.
    digest: String,
}

#[pymethods]
impl Cursor {
    #[new]
    fn new(stream: String, epoch: String, sequence: u64, digest: String) -> PyResult<Self> {
        if ids::Sequence::new(sequence).is_none() {
            return Err(PyValueError::new_err("a sequence is at most 2^63 - 1"));
        }
        Ok(Self { stream, epoch, sequence, digest })
    }

    fn __getnewargs__(&self) -> (&str, &str, u64, &str) {
        (&self.stream, &self.epoch, self.sequence, &self.digest)
    }

    fn __repr__(&self) -> String {
        format!(
            "Cursor(stream={:?}, epoch={:?}, sequence={}, digest={:?})",
            self.stream, self.epoch, self.sequence, self.digest
        )
    }
}

impl Cursor {
    pub(super) fn at(id: &ids::EventId) -> PyResult<Self> {
        let (stream, epoch) = (id.stream.to_string(), id.epoch.to_string());
        Self::new(stream, epoch, id.sequence.get(), id.digest.to_string())
    }
}
