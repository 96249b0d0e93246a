//! The core of Counterfoil: SSE parsing and encoding, event IDs, and the replay window.
//!
//! What this crate does not do: Python, I/O, clocks, randomness. Callers pass in `now` and random
//! bytes, so that every result is a function of the arguments.

pub mod ids;
pub mod sse;
