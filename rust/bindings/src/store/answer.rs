//! `ResumeAnswer`: what the store decided, as plain values; Python makes the verdict of it.

use counterfoil_core::resume::Resumption;
use counterfoil_core::store::OwnedId;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::reader::ReaderCore;
use super::values;
use crate::ids::StreamToken;

/// One decided resume.
#[pyclass(frozen, module = "counterfoil")]
pub(crate) struct ResumeAnswer {
    decided: Resumption,
    reader: Option<Py<ReaderCore>>,
}

impl ResumeAnswer {
    pub(super) fn new(decided: Resumption, reader: Option<Py<ReaderCore>>) -> Self {
        Self { decided, reader }
    }
}

fn ids<'py>(py: Python<'py>, ids: &[OwnedId]) -> PyResult<Bound<'py, PyTuple>> {
    let ids = ids.iter().map(|id| values::id_to_python(py, id)).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, ids)
}

#[pymethods]
impl ResumeAnswer {
    /// What a verdict is made of, in one call: row, verdict, why, next, asked, first, last, after, gap
    /// and request ids.  First and last are None where the row discloses nothing.
    #[allow(clippy::type_complexity)]
    fn _facts<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(
        u8,
        Bound<'py, PyString>,
        Bound<'py, PyString>,
        Bound<'py, PyString>,
        Option<u64>,
        Option<u64>,
        Option<u64>,
        Option<u64>,
        Option<(u64, u64)>,
        Bound<'py, PyTuple>,
    )> {
        let decided = &self.decided;
        let window = decided.window.filter(|_| decided.asked.is_some());
        Ok((
            decided.row,
            values::verdict(py, decided.verdict).clone(),
            values::why(py, decided.why).clone(),
            values::next(py, decided.next).clone(),
            decided.asked,
            window.map(|(first, _)| first),
            window.map(|(_, last)| last),
            decided.after.map(|(sequence, _)| sequence),
            decided.gap,
            ids(py, &decided.request_ids)?,
        ))
    }

    /// The row of the table that matched.
    #[getter]
    fn row(&self) -> u8 {
        self.decided.row
    }

    /// The token of the verdict.
    #[getter]
    fn verdict<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        values::verdict(py, self.decided.verdict).clone()
    }

    /// The token of its reason.
    #[getter]
    fn why<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        values::why(py, self.decided.why).clone()
    }

    /// The token of what to do.
    #[getter]
    fn next<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        values::next(py, self.decided.next).clone()
    }

    /// The sequence asked for, where the stream was found.
    #[getter]
    fn asked(&self) -> Option<u64> {
        self.decided.asked
    }

    /// First and last sequence of the window.
    #[getter]
    fn window(&self) -> Option<(u64, u64)> {
        self.decided.window
    }

    /// The position that the reader starts after.
    #[getter]
    fn after(&self) -> Option<u64> {
        self.decided.after.map(|(sequence, _)| sequence)
    }

    /// The digest there.
    #[getter]
    fn digest(&self) -> Option<String> {
        self.decided.after.map(|(_, digest)| digest.to_string())
    }

    /// First and last sequence lost.
    #[getter]
    fn gap(&self) -> Option<(u64, u64)> {
        self.decided.gap
    }

    /// Requests whose answers were in the gap.
    #[getter]
    fn request_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        ids(py, &self.decided.request_ids)
    }

    /// Requests of the server that left the window and may be unanswered.
    #[getter]
    fn lost_requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        ids(py, &self.decided.lost_requests)
    }

    /// The stream that is attached, or that the cursor names.
    #[getter]
    fn stream(&self) -> Option<StreamToken> {
        self.decided.stream.map(StreamToken)
    }

    /// The current epoch, where it may be told.
    #[getter]
    fn epoch(&self) -> Option<String> {
        self.decided.epoch.map(|epoch| epoch.to_string())
    }

    /// "nothing", "events" or "answers".
    #[getter]
    fn attached(&self) -> &'static str {
        values::attached(self.decided.attached)
    }

    /// "nothing", "append" or "write": what becomes of the in-band error.
    #[getter]
    fn settle(&self) -> &'static str {
        values::settle(self.decided.settle)
    }

    /// Why the stream is over, if it is.
    #[getter]
    fn ended(&self) -> Option<&'static str> {
        self.decided.ended.map(|why| why.as_str())
    }

    /// Seconds that the connection is to be held before it is answered.
    #[getter]
    fn hold_s(&self) -> f64 {
        // At most fifteen seconds.
        self.decided.hold_ms as f64 / 1000.0
    }

    /// The reader, if one is attached.
    #[getter]
    fn reader(&self, py: Python<'_>) -> Option<Py<ReaderCore>> {
        self.reader.as_ref().map(|reader| reader.clone_ref(py))
    }
}
