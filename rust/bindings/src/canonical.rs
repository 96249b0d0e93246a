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

/// Tool name, params and meta of a call.
type CallText<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Return what a call of this method asks for as canonical text: the name in its params, its params without
/// `_meta`, and that; None for another message.
#[pyfunction]
fn canonical_call<'py>(
    py: Python<'py>,
    text: &[u8],
    method: &[u8],
    depth: usize,
) -> PyResult<Option<CallText<'py>>> {
    let found = canonical::read_call(text, method, depth).map_err(error)?;
    Ok(found.map(|call| {
        (PyBytes::new(py, &call.name), PyBytes::new(py, &call.params), PyBytes::new(py, &call.meta))
    }))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(canonical_call, module)?)?;
    module.add_function(wrap_pyfunction!(canonical_json, module)?)?;
    module.add_function(wrap_pyfunction!(canonical_members, module)?)
}
