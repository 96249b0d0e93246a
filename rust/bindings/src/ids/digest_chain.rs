//! `counterfoil.DigestChain`.

use std::sync::Mutex;

use counterfoil_core::ids;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

/// The running digest of one stream and epoch; made by `KeyRing.digest_chain`.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct DigestChain(Mutex<ids::DigestChain>);

impl DigestChain {
    pub(super) fn new(chain: ids::DigestChain) -> Self {
        Self(Mutex::new(chain))
    }
}

#[pymethods]
impl DigestChain {
    /// The digest after the last event; before the first one, the one that the echo with 0 carries.
    #[getter]
    fn current(&self, py: Python<'_>) -> String {
        let chain = self.0.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
        chain.current().to_string()
    }

    /// Move on by one event as it is sent; the new digest.
    #[pyo3(signature = (sequence, *, event=None, data))]
    fn append(&self, py: Python<'_>, sequence: u64, event: Option<&[u8]>, data: &[u8]) -> PyResult<String> {
        let Some(sequence) = ids::Sequence::new(sequence) else {
            return Err(PyValueError::new_err("a sequence is at most 2^63 - 1"));
        };
        let mut chain = self.0.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(chain.append(sequence, event.unwrap_or_default(), data).to_string())
    }
}
