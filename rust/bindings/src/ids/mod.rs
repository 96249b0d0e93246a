//! Event IDs as Python values.

use pyo3::prelude::*;

mod cursor;
mod digest_chain;
mod event_id;
mod key_ring;
mod scope;
mod stream_token;

pub(crate) use key_ring::KeyRing;
pub(crate) use scope::Scope;
pub(crate) use stream_token::StreamToken;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<cursor::Cursor>()?;
    module.add_class::<digest_chain::DigestChain>()?;
    module.add_class::<event_id::EventId>()?;
    module.add_class::<key_ring::KeyCheck>()?;
    module.add_class::<key_ring::KeyInfo>()?;
    module.add_class::<key_ring::KeyRing>()?;
    module.add_class::<scope::Scope>()?;
    module.add_class::<stream_token::StreamToken>()
}
