//! Values that pass between Python and the store.

use counterfoil_core::resume::{Attached, Next, Settle, Verdict, Why};
use counterfoil_core::store::{EndWhy, OwnedId, StoreLimits};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyList, PyString, PyTuple};

/// Reads the bounds off any object that has them as attributes.
pub(super) fn limits(value: &Bound<'_, PyAny>) -> PyResult<StoreLimits> {
    let count = |name: &str| value.getattr(name)?.extract::<usize>();
    let milliseconds = |name: &str| -> PyResult<u64> {
        let seconds: f64 = value.getattr(name)?.extract()?;
        to_ms(seconds).ok_or_else(|| PyValueError::new_err(format!("{name} is no time in seconds")))
    };
    Ok(StoreLimits {
        window_events: count("window_events")?,
        window_bytes: count("window_bytes")?,
        window_age_ms: milliseconds("window_age_s")?,
        event_bytes: count("event_bytes")?,
        total_bytes: count("total_bytes")?,
        reserve_bytes: count("reserve_bytes")?,
        principal_share: count("principal_share")?,
        streams: count("streams")?,
        session_streams: count("session_streams")?,
        sessions: count("sessions")?,
        grace_ms: milliseconds("grace_s")?,
        tombstones: count("tombstones")?,
        tombstone_age_ms: milliseconds("tombstone_age_s")?,
        stream_idle_ms: milliseconds("stream_idle_s")?,
        session_idle_ms: milliseconds("session_idle_s")?,
        ended_sessions: count("ended_sessions")?,
    })
}

/// A time that never comes; far enough from the largest number that one more can be added to it.
const NEVER_MS: u64 = 1 << 50;

/// Seconds as milliseconds, rounded down; `None` for what is no time.
pub(super) fn to_ms(seconds: f64) -> Option<u64> {
    let milliseconds = seconds * 1000.0;
    // Finite and at least 0; the cast saturates.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (milliseconds.is_finite() && milliseconds >= 0.0).then_some((milliseconds as u64).min(NEVER_MS))
}

/// A JSON-RPC id: `str`, or `int` that is no `bool`.
pub(super) fn request_id(value: &Bound<'_, PyAny>) -> PyResult<OwnedId> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(OwnedId::Text(text.to_string_lossy().into()));
    }
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        return Ok(match value.extract::<i64>() {
            Ok(number) => OwnedId::Integer(number),
            Err(_) => OwnedId::Number(value.str()?.to_string_lossy().into()),
        });
    }
    if let Ok(number) = value.extract::<f64>() {
        if !value.is_instance_of::<PyBool>() {
            return Ok(OwnedId::Number(format!("{number:?}").into()));
        }
    }
    Err(PyTypeError::new_err("a JSON-RPC id is a str or a number"))
}

pub(super) fn id_to_python<'py>(py: Python<'py>, id: &OwnedId) -> PyResult<Bound<'py, PyAny>> {
    Ok(match id {
        OwnedId::Integer(number) => number.into_pyobject(py)?.into_any(),
        OwnedId::Text(text) => text.as_ref().into_pyobject(py)?.into_any(),
        // Kept as it stood: a float would lose digits.
        OwnedId::Number(text) => text.as_ref().into_pyobject(py)?.into_any(),
    })
}

/// The data of an event: bytes, or text that is encoded.
pub(super) enum Data<'py> {
    Bytes(Bound<'py, PyBytes>),
    Text(String),
}

impl<'py> Data<'py> {
    pub(super) fn of(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone()));
        }
        if let Ok(text) = value.cast::<PyString>() {
            return text.extract().map(Self::Text);
        }
        crate::buffers::to_bytes(value).map(Self::Bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Text(text) => text.as_bytes(),
        }
    }
}

/// The data of several events.
pub(super) enum Batch<'py> {
    /// As nearly every caller has them: nothing but `bytes`, in a tuple that nobody else can change.
    Bytes(Bound<'py, PyTuple>),
    Mixed(Vec<Data<'py>>),
}

impl<'py> Batch<'py> {
    pub(super) fn of(values: &Bound<'py, PyAny>) -> PyResult<Self> {
        let tuple = values.cast::<PyList>().ok().map(PyListMethods::to_tuple);
        let tuple = tuple.or_else(|| values.cast_exact::<PyTuple>().ok().cloned());
        match tuple {
            Some(tuple) if tuple.iter_borrowed().all(|value| value.is_instance_of::<PyBytes>()) => {
                Ok(Self::Bytes(tuple))
            }
            _ => values
                .try_iter()?
                .map(|value| Data::of(&value?))
                .collect::<PyResult<Vec<_>>>()
                .map(Self::Mixed),
        }
    }
}

/// The data of a tuple that holds nothing but `bytes`.
pub(super) fn all_data<'a>(tuple: &'a Bound<'_, PyTuple>) -> impl Iterator<Item = &'a [u8]> {
    // The default is never taken, and would be refused.
    tuple.iter_borrowed().map(|value| value.extract().unwrap_or_default())
}

pub(super) fn end_why(text: &str) -> PyResult<EndWhy> {
    match text {
        "closed" => Ok(EndWhy::Closed),
        "cancelled" => Ok(EndWhy::Cancelled),
        "adopted" => Ok(EndWhy::Adopted),
        _ => Err(PyValueError::new_err("a stream is ended as \"closed\", \"cancelled\" or \"adopted\"")),
    }
}

/// Interned: a verdict is made for every resume.
pub(super) fn verdict(py: Python<'_>, verdict: Verdict) -> &Bound<'_, PyString> {
    match verdict {
        Verdict::New => intern!(py, "new"),
        Verdict::Resumed => intern!(py, "resumed"),
        Verdict::Gap => intern!(py, "gap"),
        Verdict::Reoriginated => intern!(py, "reoriginated"),
        Verdict::Forged => intern!(py, "forged"),
        Verdict::Unverifiable => intern!(py, "unverifiable"),
    }
}

/// Interned: a verdict is made for every resume.
pub(super) fn why(py: Python<'_>, why: Why) -> &Bound<'_, PyString> {
    match why {
        Why::First => intern!(py, "first"),
        Why::Wanted => intern!(py, "wanted"),
        Why::Held => intern!(py, "held"),
        Why::Ended => intern!(py, "ended"),
        Why::NoCursor => intern!(py, "no-cursor"),
        Why::ForeignId => intern!(py, "foreign-id"),
        Why::Malformed => intern!(py, "malformed"),
        Why::Mac => intern!(py, "mac"),
        Why::Version => intern!(py, "version"),
        Why::Key => intern!(py, "key"),
        Why::UnknownStream => intern!(py, "unknown-stream"),
        Why::Epoch => intern!(py, "epoch"),
        Why::Ahead => intern!(py, "ahead"),
        Why::Trimmed => intern!(py, "trimmed"),
        Why::Diverged => intern!(py, "diverged"),
    }
}

/// Interned: a verdict is made for every resume.
pub(super) fn next(py: Python<'_>, next: Next) -> &Bound<'_, PyString> {
    match next {
        Next::Continue => intern!(py, "continue"),
        Next::Reconcile => intern!(py, "reconcile"),
        Next::Stop => intern!(py, "stop"),
        Next::Done => intern!(py, "done"),
    }
}

pub(super) const fn attached(attached: Attached) -> &'static str {
    match attached {
        Attached::Nothing => "nothing",
        Attached::Events => "events",
        Attached::Answers => "answers",
    }
}

pub(super) const fn settle(settle: Settle) -> &'static str {
    match settle {
        Settle::Nothing => "nothing",
        Settle::Append => "append",
        Settle::Write => "write",
    }
}
