//! The only Rust file that names a Python exception class.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

create_exception!(
    counterfoil._core,
    CounterfoilError,
    PyException,
    "The root of every error that Counterfoil raises."
);

static LIMIT_EXCEEDED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static SSE_LIMIT_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ENCODE_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static PARSER_CLOSED: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Makes a class with several bases, which `create_exception!` cannot.
fn make_class<'py>(
    py: Python<'py>,
    name: &str,
    bases: &Bound<'py, PyTuple>,
    doc: &str,
    defaults: &Bound<'py, PyDict>,
) -> PyResult<Py<PyType>> {
    defaults.set_item("__module__", "counterfoil._core")?;
    defaults.set_item("__doc__", doc)?;
    Ok(py.get_type::<PyType>().call1((name, bases, defaults))?.cast_into::<PyType>()?.unbind())
}

/// Adds every class to the extension module; the module is imported once per process.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let root = py.get_type::<CounterfoilError>();
    let value_error = py.get_type::<PyValueError>();
    let with_value_error = PyTuple::new(py, [&root, &value_error])?;
    let with_runtime_error = PyTuple::new(py, [&root, &py.get_type::<PyRuntimeError>()])?;

    let bound = PyDict::new(py);
    bound.set_item("bound", "")?;
    bound.set_item("limit", 0)?;
    let doc = "A bound was passed. `bound` names the field of `Limits`, `limit` is its value.";
    let limit_exceeded = LIMIT_EXCEEDED
        .get_or_try_init(py, || make_class(py, "LimitExceeded", &with_value_error, doc, &bound))?
        .bind(py);

    let position = PyDict::new(py);
    position.set_item("position", 0)?;
    let doc =
        "An event stream passed a bound of the parser. `position` counts the bytes of the stream before \
               the first one too many; it does not depend on how the bytes were cut.";
    let bases = PyTuple::new(py, [limit_exceeded])?;
    let sse_limit_error = SSE_LIMIT_ERROR
        .get_or_try_init(py, || make_class(py, "SseLimitError", &bases, doc, &position))?
        .bind(py);

    let doc = "A field cannot be written, because it would break the stream (WHATWG HTML, section 9.2.5).";
    let encode_error = ENCODE_ERROR
        .get_or_try_init(py, || make_class(py, "EncodeError", &with_value_error, doc, &PyDict::new(py)))?
        .bind(py);

    let doc = "This parser takes no bytes: its stream has ended, or another thread is feeding it.";
    let parser_closed = PARSER_CLOSED
        .get_or_try_init(py, || make_class(py, "ParserClosed", &with_runtime_error, doc, &PyDict::new(py)))?
        .bind(py);

    module.add("CounterfoilError", root)?;
    module.add("EncodeError", encode_error)?;
    module.add("LimitExceeded", limit_exceeded)?;
    module.add("ParserClosed", parser_closed)?;
    module.add("SseLimitError", sse_limit_error)
}

fn class_of<'py>(
    py: Python<'py>,
    class: &'static PyOnceLock<Py<PyType>>,
) -> PyResult<&'py Bound<'py, PyType>> {
    let found = class.get(py).ok_or_else(|| PyRuntimeError::new_err("counterfoil._core is not imported"))?;
    Ok(found.bind(py))
}

/// A bound of the parser was passed.
pub(crate) fn sse_limit_error(
    py: Python<'_>,
    text: String,
    bound: &str,
    limit: usize,
    position: u64,
) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let error = class_of(py, &SSE_LIMIT_ERROR)?.call1((text,))?;
        error.setattr("bound", bound)?;
        error.setattr("limit", limit)?;
        error.setattr("position", position)?;
        Ok(PyErr::from_value(error))
    };
    make().unwrap_or_else(|error| error)
}

/// A field would break the stream.
pub(crate) fn encode_error(py: Python<'_>, text: String) -> PyErr {
    class_of(py, &ENCODE_ERROR).map_or_else(|error| error, |class| PyErr::from_type(class.clone(), (text,)))
}

/// The parser takes no bytes.
pub(crate) fn parser_closed(py: Python<'_>, text: String) -> PyErr {
    class_of(py, &PARSER_CLOSED).map_or_else(|error| error, |class| PyErr::from_type(class.clone(), (text,)))
}
