//! The exceptions of the replay store.

use counterfoil_core::store::{ReaderEnd, StoreError};
use pyo3::exceptions::{PyLookupError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::{limit_class, CounterfoilError, ErrorClass};

static ANSWER_TOO_LARGE: ErrorClass = ErrorClass::new(
    "AnswerTooLarge",
    "An answer has no room in the store; its call is settled by an in-band error (why=too-large) instead.",
);
static FORKED_HANDLE: ErrorClass = ErrorClass::new(
    "ForkedHandle",
    "A handle made before a fork was used after it; make one in each process.",
);
static READER_BUSY: ErrorClass =
    ErrorClass::new("ReaderBusy", "Another task waits on this reader; a reader serves one connection.");
static READER_CLOSED: ErrorClass = ErrorClass::new("ReaderClosed", "The reader was closed by its owner.");
static READER_TOO_SLOW: ErrorClass = ErrorClass::new(
    "ReaderTooSlow",
    "The window moved past this reader: the sequences `first` to `last` are lost to it. Resume, and be told.",
);
static SCOPE_MISSING: ErrorClass = ErrorClass::new(
    "ScopeMissing",
    "A scope needs a session or a principal; without either nothing is resumable.",
);
static SESSION_ENDED: ErrorClass = ErrorClass::new(
    "SessionEnded",
    "The session is known to have ended, or belongs to another principal: answer 404.",
);
static STORE_FULL: ErrorClass = ErrorClass::new(
    "StoreFull",
    "A new stream or session was refused at a bound; what is open goes on. Answer 503 with Retry-After.",
);
static STREAM_ENDED: ErrorClass = ErrorClass::new(
    "StreamEnded",
    "The stream is over and everything of it was read, or it takes no more events; `why` is the wire's token.",
);
static TAKEN_OVER: ErrorClass =
    ErrorClass::new("TakenOver", "A newer connection reads this stream now (`end why=superseded`).");
static UNKNOWN_STREAM: ErrorClass =
    ErrorClass::new("UnknownStream", "No such stream in this scope: never opened here, or forgotten.");
static UNSTORABLE_EVENT: ErrorClass = ErrorClass::new(
    "UnstorableEvent",
    "An event that takes no sequence: without data (an echo), or with a type that would break the stream.",
);

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let text = |value: &str| value.into_pyobject(py).map(Bound::into_any);
    let number = |value: u64| value.into_pyobject(py).map(Bound::into_any);
    let root = py.get_type::<CounterfoilError>();
    let lookup = [root.clone(), py.get_type::<PyLookupError>()];
    let runtime = [root.clone(), py.get_type::<PyRuntimeError>()];
    let value = [root, py.get_type::<PyValueError>()];
    let limit = [limit_class(py)?];
    ANSWER_TOO_LARGE.register(module, &limit, &[("bytes", number(0)?)])?;
    FORKED_HANDLE.register(module, &runtime, &[])?;
    READER_BUSY.register(module, &runtime, &[])?;
    READER_CLOSED.register(module, &runtime, &[])?;
    READER_TOO_SLOW.register(module, &runtime, &[("first", number(0)?), ("last", number(0)?)])?;
    SCOPE_MISSING.register(module, &value, &[])?;
    SESSION_ENDED.register(module, &lookup, &[])?;
    STORE_FULL.register(module, &limit, &[])?;
    STREAM_ENDED.register(module, &runtime, &[("why", text("")?)])?;
    TAKEN_OVER.register(module, &runtime, &[])?;
    UNKNOWN_STREAM.register(module, &lookup, &[])?;
    UNSTORABLE_EVENT.register(module, &value, &[])
}

fn with_fields(
    py: Python<'_>,
    class: &ErrorClass,
    message: &str,
    texts: &[(&str, &str)],
    numbers: &[(&str, u64)],
) -> PyErr {
    let mut fields = Vec::new();
    for &(name, value) in texts {
        match value.into_pyobject(py) {
            Ok(value) => fields.push((name, value.into_any())),
            Err(error) => match error {},
        }
    }
    for &(name, value) in numbers {
        match value.into_pyobject(py) {
            Ok(value) => fields.push((name, value.into_any())),
            Err(error) => match error {},
        }
    }
    class.error(py, message, &fields)
}

pub(super) fn forked(py: Python<'_>) -> PyErr {
    FORKED_HANDLE.error(py, "this store was made before a fork: make one in each process", &[])
}

pub(super) fn busy(py: Python<'_>) -> PyErr {
    READER_BUSY.error(py, "another task waits on this reader: a reader serves one connection", &[])
}

pub(super) fn store_error(py: Python<'_>, error: StoreError) -> PyErr {
    let message = error.to_string();
    match error {
        StoreError::UnknownStream => UNKNOWN_STREAM.error(py, &message, &[]),
        StoreError::StreamEnded(why) => with_fields(py, &STREAM_ENDED, &message, &[("why", why)], &[]),
        StoreError::SessionEnded => SESSION_ENDED.error(py, &message, &[]),
        StoreError::NoScope => SCOPE_MISSING.error(py, &message, &[]),
        StoreError::Limit { name, limit } => {
            with_fields(py, &STORE_FULL, &message, &[("bound", name)], &[("limit", limit as u64)])
        }
        StoreError::AnswerTooLarge { bytes, name, limit } => with_fields(
            py,
            &ANSWER_TOO_LARGE,
            &message,
            &[("bound", name)],
            &[("limit", limit as u64), ("bytes", bytes as u64)],
        ),
        StoreError::NoData | StoreError::Encode(_) | StoreError::NoRequest => {
            UNSTORABLE_EVENT.error(py, &message, &[])
        }
        StoreError::AheadOfEnd => PyValueError::new_err(message),
        StoreError::LastSequence | StoreError::NameTaken => PyRuntimeError::new_err(message),
    }
}

pub(super) fn reader_end(py: Python<'_>, end: ReaderEnd) -> PyErr {
    match end {
        ReaderEnd::Ended(why) => {
            let message = format!("the stream has ended ({}) and everything of it was read", why.as_str());
            with_fields(py, &STREAM_ENDED, &message, &[("why", why.as_str())], &[])
        }
        ReaderEnd::TakenOver => {
            TAKEN_OVER.error(py, "a newer connection reads this stream now: close this one", &[])
        }
        ReaderEnd::TooSlow { first, last } => with_fields(
            py,
            &READER_TOO_SLOW,
            &format!("the window moved past this reader: {first} to {last} are lost to it; close, and let it resume"),
            &[],
            &[("first", first), ("last", last)],
        ),
        ReaderEnd::Closed => READER_CLOSED.error(py, "the reader was closed", &[]),
    }
}
