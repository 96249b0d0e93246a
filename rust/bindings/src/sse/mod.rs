//! The parser and the encoder as Python sees them.

use pyo3::prelude::*;

mod batch;
mod encoder;
mod items;
mod parser;

pub(crate) use parser::to_python as parse_error;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<batch::SseBatch>()?;
    module.add_class::<items::SseBlock>()?;
    module.add_class::<items::SseComment>()?;
    module.add_class::<items::SseEnd>()?;
    module.add_class::<items::SseEvent>()?;
    module.add_class::<parser::SseParser>()?;
    module.add_function(wrap_pyfunction!(encoder::encode_comment, module)?)?;
    module.add_function(wrap_pyfunction!(encoder::encode_event, module)?)
}
