//! The replay store as Python objects: locks, converts and wakes, decides nothing.

use pyo3::prelude::*;
use pyo3::types::PySequence;

mod answer;
mod clock;
mod core;
mod errors;
mod event_ids;
mod events;
mod fork;
mod reader;
mod relay;
mod values;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(module)?;
    fork::watch(module)?;
    module.add_class::<answer::ResumeAnswer>()?;
    module.add_class::<event_ids::EventIds>()?;
    PySequence::register::<event_ids::EventIds>(module.py())?;
    module.add_class::<events::StoredEvents>()?;
    PySequence::register::<events::StoredEvents>(module.py())?;
    module.add_class::<reader::ReaderCore>()?;
    module.add_class::<relay::RelayBatch>()?;
    module.add_class::<relay::RelayCore>()?;
    module.add_class::<relay::RelaySeen>()?;
    module.add_class::<core::ReplayCore>()
}
