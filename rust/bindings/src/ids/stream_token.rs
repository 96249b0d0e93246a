//! `counterfoil.StreamToken`.

use counterfoil_core::ids::{self, IdError, RequestId, StreamKind};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

use super::event_id::id_error;

/// The identity of a stream: a random name with kind, owner and, for a call, the typed request id.
#[pyclass(frozen, eq, hash, module = "counterfoil")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct StreamToken(pub(crate) ids::StreamToken);

#[pymethods]
impl StreamToken {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        let read = ids::StreamToken::parse(text.as_bytes());
        read.map(Self).map_err(|reason| id_error(py, IdError::from(reason)))
    }

    /// A token from 12 random bytes. A request id that has no place in an ID is left out.
    #[staticmethod]
    #[pyo3(signature = (*, kind, random, request_id=None, owner=0))]
    fn mint(
        kind: &str,
        random: [u8; 12],
        request_id: Option<&Bound<'_, PyAny>>,
        owner: u32,
    ) -> PyResult<Self> {
        let kind = match kind {
            "call" => StreamKind::Call,
            "standalone" => StreamKind::Standalone,
            _ => return Err(PyValueError::new_err("kind is \"call\" or \"standalone\"")),
        };
        let request_id = match request_id {
            None => None,
            Some(value) if kind == StreamKind::Standalone => {
                let name = value.get_type().name()?;
                return Err(PyValueError::new_err(format!(
                    "a standalone stream has no request id ({name} given)"
                )));
            }
            Some(value) => read_request_id(value)?,
        };
        let minted = ids::StreamToken::mint(kind, request_id.as_ref().map(OwnedId::borrow), owner, random);
        minted.map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// What the stream carries: "call" or "standalone".
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.kind() {
            StreamKind::Call => "call",
            StreamKind::Standalone => "standalone",
        }
    }

    /// The JSON-RPC id of the call, with its type; None where the ID carries none.
    #[getter]
    fn request_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match self.0.request_id() {
            None => None,
            Some(RequestId::Integer(number)) => Some(number.into_pyobject(py)?.into_any()),
            Some(RequestId::Text(text)) => Some(text.into_pyobject(py)?.into_any()),
        })
    }

    /// Which process holds the stream; 0 when there is one.
    #[getter]
    fn owner(&self) -> u32 {
        self.0.owner()
    }

    fn __getnewargs__(&self) -> (&str,) {
        (self.0.as_str(),)
    }

    fn __str__(&self) -> &str {
        self.0.as_str()
    }

    fn __repr__(&self) -> String {
        format!("StreamToken('{}')", self.0)
    }
}

enum OwnedId {
    Integer(i64),
    Text(String),
}

impl OwnedId {
    fn borrow(&self) -> RequestId<'_> {
        match self {
            Self::Integer(number) => RequestId::Integer(*number),
            Self::Text(text) => RequestId::Text(text),
        }
    }
}

/// An integer beyond 64 bits or a text with a lone surrogate has no place in an ID either.
fn read_request_id(value: &Bound<'_, PyAny>) -> PyResult<Option<OwnedId>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_str().ok().map(|text| OwnedId::Text(text.to_owned())));
    }
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        return Ok(value.extract().ok().map(OwnedId::Integer));
    }
    Err(PyTypeError::new_err("request_id is an int, a str or None"))
}
