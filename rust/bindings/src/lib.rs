//! The Python face of `counterfoil-core`: converts values, decides nothing.

use pyo3::prelude::*;

mod buffers;
mod canonical;
mod chunks;
mod errors;
mod id_lines;
mod ids;
mod sse;
mod store;
mod text;

/// The extension module `counterfoil._core`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    canonical::register(module)?;
    chunks::register(module)?;
    errors::register(module)?;
    id_lines::register(module)?;
    ids::register(module)?;
    sse::register(module)?;
    store::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
