//! Counts forks, so that a store made before one is refused after it.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between the first import and this process.
pub(crate) fn count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

#[pyfunction]
fn _after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Asks Python to tell of every fork; nothing where there is none (Windows).
pub(crate) fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let os = py.import("os")?;
    if os.hasattr("register_at_fork")? {
        let named = PyDict::new(py);
        named.set_item("after_in_child", wrap_pyfunction!(_after_fork_in_child, module)?)?;
        os.call_method("register_at_fork", (), Some(&named))?;
    }
    Ok(())
}
