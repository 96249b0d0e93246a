//! The core of Counterfoil: SSE parsing and encoding, event IDs, and the replay window.
//!
//! What this crate does not do: Python, I/O, clocks, randomness. Callers pass in `now` and random
//! bytes, so that every result is a function of the arguments.

pub mod canonical;
pub mod chunks;
pub mod envelope;
pub mod id_lines;
pub mod ids;
pub mod relay;
pub mod resume;
pub mod ring;
pub mod sse;
pub mod store;
