//! Milliseconds since a store was made, read as cheaply as the system allows.

#[cfg(not(target_os = "linux"))]
use std::time::Instant;

/// Never goes backwards, and may lag by one tick of the system (10 ms at most): ages are counted in seconds.
pub(super) struct Stopwatch {
    #[cfg(target_os = "linux")]
    started_ms: u64,
    #[cfg(not(target_os = "linux"))]
    started: Instant,
}

#[cfg(target_os = "linux")]
impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { started_ms: Self::shown_ms() }
    }

    #[inline]
    pub(super) fn elapsed_ms(&self) -> u64 {
        Self::shown_ms().saturating_sub(self.started_ms)
    }

    #[inline]
    fn shown_ms() -> u64 {
        let shown = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        // Neither part of a monotonic time is negative.
        shown.tv_sec.unsigned_abs() * 1000 + shown.tv_nsec.unsigned_abs() / 1_000_000
    }
}

#[cfg(not(target_os = "linux"))]
impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { started: Instant::now() }
    }

    #[inline]
    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
