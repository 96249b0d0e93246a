//! The one place where bytes become `str`.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

const UTF_8: &CStr = c"utf-8";
const REPLACE: &CStr = c"replace";

/// Decodes as the standard asks: one U+FFFD for each maximal subpart that is no UTF-8.
///
/// CPython does all decoding, so no byte is decoded twice; ASCII needs none.
#[inline]
pub(crate) fn decode<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if bytes.is_ascii() {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Ok(PyString::new(py, text));
        }
    }
    PyString::from_encoded_object(&PyBytes::new(py, bytes), Some(UTF_8), Some(REPLACE))
}
