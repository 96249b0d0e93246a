//! The only Rust file that names a Python exception class.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyPermissionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

create_exception!(
    counterfoil._core,
    CounterfoilError,
    PyException,
    "The root of every error that Counterfoil raises."
);

/// An exception under [`CounterfoilError`] and a builtin, with typed fields.
///
/// The fields are set on the instance, where pickling keeps them; the class has an example of each,
/// so that the stubs can be checked against it.
pub(crate) struct ErrorClass {
    name: &'static str,
    doc: &'static str,
    class: PyOnceLock<Py<PyType>>,
}

impl ErrorClass {
    pub(crate) const fn new(name: &'static str, doc: &'static str) -> Self {
        Self { name, doc, class: PyOnceLock::new() }
    }

    /// Makes the class and adds it to the module. Called once, when the module is made.
    pub(crate) fn register(
        &self,
        module: &Bound<'_, PyModule>,
        bases: &[Bound<'_, PyType>],
        fields: &[(&str, Bound<'_, PyAny>)],
    ) -> PyResult<()> {
        let py = module.py();
        let body = PyDict::new(py);
        body.set_item("__module__", "counterfoil.errors")?;
        body.set_item("__doc__", self.doc)?;
        for (field, example) in fields {
            body.set_item(field, example)?;
        }
        let class = py.get_type::<PyType>().call1((self.name, PyTuple::new(py, bases)?, body))?;
        let class = class.cast_into::<PyType>()?;
        module.add(self.name, &class)?;
        let _ = self.class.set(py, class.unbind());
        Ok(())
    }

    /// The class, for use as a base of another one.
    pub(crate) fn class<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyType>> {
        match self.class.get(py) {
            Some(class) => Ok(class.bind(py).clone()),
            None => Ok(py.get_type::<CounterfoilError>()),
        }
    }

    /// One such error with `message` as its text.
    pub(crate) fn error(&self, py: Python<'_>, message: &str, fields: &[(&str, Bound<'_, PyAny>)]) -> PyErr {
        let made = self.class(py).and_then(|class| {
            let error = class.call1((message,))?;
            for (field, value) in fields {
                error.setattr(field, value)?;
            }
            Ok(error)
        });
        match made {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    }
}

static LIMIT_EXCEEDED: ErrorClass = ErrorClass::new(
    "LimitExceeded",
    "A bound was passed. `bound` names the field of `Limits`, `limit` is its value.",
);
static SSE_LIMIT_ERROR: ErrorClass = ErrorClass::new(
    "SseLimitError",
    "An event stream passed a bound of the parser. `position` counts the bytes of the stream before the \
     first one too many; it does not depend on how the bytes were cut.",
);
static ENCODE_ERROR: ErrorClass = ErrorClass::new(
    "EncodeError",
    "A field cannot be written, because it would break the stream (WHATWG HTML, section 9.2.5).",
);
static PARSER_CLOSED: ErrorClass = ErrorClass::new(
    "ParserClosed",
    "This parser takes no bytes: its stream has ended, or another thread is feeding it.",
);
pub(crate) static FOREIGN_EVENT_ID: ErrorClass = ErrorClass::new(
    "ForeignEventId",
    "The text is no event ID of ours but of another scheme: opaque, to be kept and compared as it is.",
);
pub(crate) static MALFORMED_EVENT_ID: ErrorClass = ErrorClass::new(
    "MalformedEventId",
    "A text that begins like an event ID of ours and is none; reading stopped at byte `position`.",
);
pub(crate) static UNKNOWN_EVENT_ID_VERSION: ErrorClass = ErrorClass::new(
    "UnknownEventIdVersion",
    "An event ID of another format version; only its number was read.",
);
pub(crate) static SCOPE_TOO_LONG: ErrorClass =
    ErrorClass::new("ScopeTooLong", "A tenant, principal or session is longer than `limit` bytes of UTF-8.");
pub(crate) static KEY_RING_ERROR: ErrorClass =
    ErrorClass::new("KeyRingError", "These keys make no ring, or the ring has no such key.");
pub(crate) static KEY_FILE_ERROR: ErrorClass =
    ErrorClass::new("KeyFileError", "A key file cannot be read or is none. The text repeats no secret.");
pub(crate) static KEY_FILE_EXPOSED: ErrorClass = ErrorClass::new(
    "KeyFileExposed",
    "A key file that others may read or write: `chmod 600` it, and rotate if somebody may have.",
);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let root = py.get_type::<CounterfoilError>();
    module.add("CounterfoilError", &root)?;
    let text = |value: &str| value.into_pyobject(py).map(Bound::into_any);
    let number = |value: u64| value.into_pyobject(py).map(Bound::into_any);
    let value_error = [root.clone(), py.get_type::<PyValueError>()];
    LIMIT_EXCEEDED.register(module, &value_error, &[("bound", text("")?), ("limit", number(0)?)])?;
    SSE_LIMIT_ERROR.register(module, &[LIMIT_EXCEEDED.class(py)?], &[("position", number(0)?)])?;
    ENCODE_ERROR.register(module, &value_error, &[])?;
    PARSER_CLOSED.register(module, &[root, py.get_type::<PyRuntimeError>()], &[])?;
    FOREIGN_EVENT_ID.register(module, &value_error, &[])?;
    let fields = [("reason", text("")?), ("position", number(0)?)];
    MALFORMED_EVENT_ID.register(module, &value_error, &fields)?;
    UNKNOWN_EVENT_ID_VERSION.register(module, &value_error, &[("version", number(0)?)])?;
    SCOPE_TOO_LONG.register(module, &value_error, &[("part", text("")?), ("limit", number(0)?)])?;
    KEY_RING_ERROR.register(module, &value_error, &[])?;
    KEY_FILE_ERROR.register(module, &value_error, &[("path", text("")?)])?;
    let exposed = [KEY_FILE_ERROR.class(py)?, py.get_type::<PyPermissionError>()];
    KEY_FILE_EXPOSED.register(module, &exposed, &[])
}

/// `LimitExceeded`, for bounds that other files name.
pub(crate) fn limit_class(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    LIMIT_EXCEEDED.class(py)
}

/// A bound of the parser was passed.
pub(crate) fn sse_limit_error(
    py: Python<'_>,
    text: String,
    bound: &str,
    limit: usize,
    position: u64,
) -> PyErr {
    let fields = || -> PyResult<[(&str, Bound<'_, PyAny>); 3]> {
        Ok([
            ("bound", bound.into_pyobject(py)?.into_any()),
            ("limit", limit.into_pyobject(py)?.into_any()),
            ("position", position.into_pyobject(py)?.into_any()),
        ])
    };
    fields().map_or_else(|error| error, |fields| SSE_LIMIT_ERROR.error(py, &text, &fields))
}

/// A field would break the stream.
pub(crate) fn encode_error(py: Python<'_>, text: String) -> PyErr {
    ENCODE_ERROR.error(py, &text, &[])
}

/// The parser takes no bytes.
pub(crate) fn parser_closed(py: Python<'_>, text: String) -> PyErr {
    PARSER_CLOSED.error(py, &text, &[])
}
