//! `ids_agree`: whether all ids in a piece of a stream are of one stream.

use counterfoil_core::id_lines;
use pyo3::prelude::*;

/// Whether nothing but LF ends a line in `text[begin:end]`, and every id in `text[first:last]` is of a stream.
///
/// `first` and `last` are where a line ends; a range outside of `text` is empty.
#[pyfunction]
fn ids_agree(text: &[u8], prefix: &[u8], begin: usize, first: usize, last: usize, end: usize) -> bool {
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    id_lines::ids_agree(part(begin, end), part(first, last), prefix)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(ids_agree, module)?)
}
