//! `encode_event` and `encode_comment`: values in, one ready frame out.

use std::borrow::Cow;

use counterfoil_core::sse::{write_comment, write_frame, Frame};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::buffers::to_bytes;
use crate::errors::encode_error;

/// Text as UTF-8, bytes as they are.
enum Field<'py> {
    Text(Bound<'py, PyString>),
    Bytes(Bound<'py, PyBytes>),
}

impl<'py> Field<'py> {
    fn read(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        match value.cast::<PyString>() {
            Ok(text) => Ok(Self::Text(text.clone())),
            Err(_) => to_bytes(value).map(Self::Bytes),
        }
    }

    fn bytes(&self) -> PyResult<Cow<'_, [u8]>> {
        match self {
            Self::Bytes(bytes) => Ok(Cow::Borrowed(bytes.as_bytes())),
            Self::Text(text) => match text.to_str() {
                Ok(text) => Ok(Cow::Borrowed(text.as_bytes())),
                Err(error) => Err(encode_error(text.py(), format!("the text has no UTF-8 form: {error}"))),
            },
        }
    }
}

/// Write one event as a frame with its blank line.
#[pyfunction]
#[pyo3(signature = (data, *, event=None, id=None, retry=None))]
pub(crate) fn encode_event<'py>(
    py: Python<'py>,
    data: Option<&Bound<'py, PyAny>>,
    event: Option<&Bound<'py, PyAny>>,
    id: Option<&Bound<'py, PyAny>>,
    retry: Option<u64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let read = |value: Option<&Bound<'py, PyAny>>| value.map(Field::read).transpose();
    let (data, event, id) = (read(data)?, read(event)?, read(id)?);
    let event = event.as_ref().map(Field::bytes).transpose()?;
    let id = id.as_ref().map(Field::bytes).transpose()?;
    let data = data.as_ref().map(Field::bytes).transpose()?;
    let frame = Frame {
        event: event.as_deref().unwrap_or_default(),
        id: id.as_deref(),
        retry,
        data: data.as_deref(),
    };
    let mut out = Vec::new();
    write_frame(&mut out, &frame).map_err(|error| encode_error(py, error.to_string()))?;
    Ok(PyBytes::new(py, &out))
}

/// Write a comment with its blank line.
#[pyfunction]
pub(crate) fn encode_comment<'py>(
    py: Python<'py>,
    text: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let field = Field::read(text)?;
    let mut out = Vec::new();
    write_comment(&mut out, &field.bytes()?);
    Ok(PyBytes::new(py, &out))
}
