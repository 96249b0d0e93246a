//! The one place where bytes become `str`.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

const UTF_8: &CStr = c"utf-8";
const REPLACE: &CStr = c"replace";

/// Decodes as the standard asks: one U+FFFD for each maximal subpart that is no UTF-8.
///
/// CPython does all decoding, and does it once; what comes before only tells whether `str` may be
/// made from the bytes where they lie, at many times the speed of a decoder.
#[inline]
pub(crate) fn decode<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(_) => PyString::from_encoded_object(&PyBytes::new(py, bytes), Some(UTF_8), Some(REPLACE)),
    }
}
