//! Shared by the tests of the core and by the fuzz targets, which call the same functions.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods
)]

pub mod checks;
pub mod kept;
pub mod naive;
