//! Canonical JSON, and the members of an object as such.

use counterfoil_core::canonical::{self, Ambiguous};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

fn error(ambiguous: Ambiguous) -> PyErr {
    PyValueError::new_err(ambiguous.to_string())
}

/// Return the canonical text of a JSON text; ValueError where readers could take it in two ways.
#[pyfunction]
fn canonical_json<'py>(py: Python<'py>, text: &[u8], depth: usize) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::with_capacity(text.len());
    canonical::write_canonical(text, depth, &mut out).map_err(error)?;
    Ok(PyBytes::new(py, &out))
}

/// Return name and value of an object's members as canonical text, in canonical order; None for no object.
#[pyfunction]
fn canonical_members<'py>(
    py: Python<'py>,
    text: &[u8],
    depth: usize,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(members) = canonical::read_members(text, depth).map_err(error)? else { return Ok(None) };
    let found = PyDict::new(py);
    for member in &members {
        found.set_item(PyBytes::new(py, &member.name), PyBytes::new(py, &member.value))?;
    }
    Ok(Some(found))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(canonical_json, module)?)?;
    module.add_function(wrap_pyfunction!(canonical_members, module)?)
}
