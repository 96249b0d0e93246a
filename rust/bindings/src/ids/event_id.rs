//! `counterfoil.EventId`.

use counterfoil_core::ids::{self, IdError};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::cursor::Cursor;
use super::stream_token::StreamToken;
use crate::errors::{FOREIGN_EVENT_ID, MALFORMED_EVENT_ID, UNKNOWN_EVENT_ID_VERSION};

/// One event ID, decoded. Reading it proves nothing: `KeyRing.check` does.
#[pyclass(frozen, eq, hash, module = "counterfoil")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct EventId(pub(crate) ids::EventId);

#[pymethods]
impl EventId {
    #[new]
    fn new(text: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::parse(text)
    }

    /// Read the one spelling of an ID, as it came in a header or an `id` field.
    #[staticmethod]
    fn parse(text: &Bound<'_, PyAny>) -> PyResult<Self> {
        let read = if let Ok(text) = text.cast::<PyString>() {
            // A lone surrogate becomes U+FFFD, which no ID has either.
            ids::EventId::parse(text.to_string_lossy().as_bytes())
        } else if let Ok(bytes) = text.cast::<PyBytes>() {
            ids::EventId::parse(bytes.as_bytes())
        } else {
            return Err(PyTypeError::new_err("an event ID is a str or bytes"));
        };
        read.map(Self).map_err(|error| id_error(text.py(), error))
    }

    /// The stream.
    #[getter]
    fn stream(&self) -> StreamToken {
        StreamToken(self.0.stream)
    }

    /// Compared only for equality.
    #[getter]
    fn epoch(&self) -> String {
        self.0.epoch.to_string()
    }

    /// Which key made the tag.
    #[getter]
    fn key_id(&self) -> String {
        self.0.tag.key_id().to_string()
    }

    /// Key id and MAC, as in the ID.
    #[getter]
    fn tag(&self) -> String {
        self.0.tag.to_string()
    }

    /// 0 in the echo of a new stream, otherwise at least 1.
    #[getter]
    fn sequence(&self) -> u64 {
        self.0.sequence.get()
    }

    /// Opaque; compared only for equality.
    #[getter]
    fn digest(&self) -> String {
        self.0.digest.to_string()
    }

    /// The position without the tag, which is no part of a cursor's identity.
    #[getter]
    fn cursor(&self) -> PyResult<Cursor> {
        Cursor::at(&self.0)
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.0.to_string(),)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("EventId('{}')", self.0)
    }
}

/// The typed error for a text that is no event ID. It does not repeat the text.
pub(super) fn id_error(py: Python<'_>, error: IdError) -> PyErr {
    let message = error.to_string();
    match error {
        IdError::Foreign => FOREIGN_EVENT_ID.error(py, &message, &[]),
        IdError::Version { version } => match version.into_pyobject(py) {
            Ok(version) => UNKNOWN_EVENT_ID_VERSION.error(py, &message, &[("version", version.into_any())]),
            Err(error) => error.into(),
        },
        IdError::Malformed { reason, position } => {
            match (reason.to_string().into_pyobject(py), position.into_pyobject(py)) {
                (Ok(reason), Ok(position)) => {
                    let fields = [("reason", reason.into_any()), ("position", position.into_any())];
                    MALFORMED_EVENT_ID.error(py, &message, &fields)
                }
                (Err(error), _) | (_, Err(error)) => error.into(),
            }
        }
    }
}
