//! The only Rust file that names a Python exception class.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    counterfoil._core,
    CounterfoilError,
    PyException,
    "The root of every error that Counterfoil raises."
);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("CounterfoilError", module.py().get_type::<CounterfoilError>())
}
