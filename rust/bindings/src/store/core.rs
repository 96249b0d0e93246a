//! `ReplayCore`: the store behind one lock, which no Python code ever runs under.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use counterfoil_core::ids::KeyRing as CoreKeyRing;
use counterfoil_core::resume::{examine, Ask, Examined, Resumption};
use counterfoil_core::store::{NewEvent, Random, Store, StoreError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use super::answer::ResumeAnswer;
use super::clock::Stopwatch;
use super::event_ids::EventIds;
use super::reader::ReaderCore;
use super::relay::{self, RelayCore};
use super::values::{self, Batch, Data};
use super::{errors, fork};
use crate::ids::{KeyRing, Scope, StreamToken};

/// What wakes one waiting reader: a callable without arguments that may be called from any thread.
pub(super) type Waker = Py<PyAny>;
type Woken = Vec<Waker>;

/// Bytes that a thread keeps for the next read.
const SCRATCH_BYTES: usize = 1 << 20;

/// Where the time of a store stops: 17 years after its beginning.
const MOST_MS: u64 = ((1 << 29) - 1) * 1000;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with this thread's empty scratch buffer.
pub(super) fn with_scratch<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    SCRATCH.with(|cell| {
        let mut scratch = cell.take();
        scratch.clear();
        let result = work(&mut scratch);
        scratch.shrink_to(SCRATCH_BYTES);
        cell.replace(scratch);
        result
    })
}

/// The replay store of one process; `counterfoil.ReplayStore` is its public face.
#[pyclass(frozen, subclass, module = "counterfoil")]
pub(crate) struct ReplayCore {
    store: Mutex<Store<Waker>>,
    keys: Mutex<Arc<CoreKeyRing>>,
    clock: Option<Py<PyAny>>,
    /// What the clock showed first: the store counts from there, and an event's age has 29 bits of seconds.
    first_ms: OnceLock<u64>,
    stopwatch: Stopwatch,
    forks: u64,
}

impl ReplayCore {
    pub(super) fn forks(&self) -> u64 {
        self.forks
    }

    fn now_ms(&self, py: Python<'_>) -> PyResult<u64> {
        match &self.clock {
            None => Ok(self.stopwatch.elapsed_ms()),
            Some(clock) => {
                let seconds: f64 = clock.call0(py)?.extract(py)?;
                let shown_ms = values::to_ms(seconds)
                    .ok_or_else(|| PyValueError::new_err("the clock gave no time in seconds"))?;
                let first_ms = *self.first_ms.get_or_init(|| shown_ms);
                Ok(shown_ms.saturating_sub(first_ms).min(MOST_MS))
            }
        }
    }

    /// Runs `work` under the lock, without asking the clock: nothing here can run Python code.
    pub(super) fn locked<R>(&self, py: Python<'_>, work: impl FnOnce(&mut Store<Waker>) -> R) -> PyResult<R> {
        if self.forks != fork::count() {
            return Err(errors::forked(py));
        }
        let mut store = self.store.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        Ok(work(&mut store))
    }

    /// Runs `work` under the lock, and wakes whom it woke after it.
    #[inline]
    pub(super) fn with<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Store<Waker>, u64, &mut Woken) -> R,
    ) -> PyResult<R> {
        if self.forks != fork::count() {
            return Err(errors::forked(py));
        }
        let now_ms = self.now_ms(py)?;
        let mut woken = Woken::new();
        let result = {
            let mut store = self.store.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            work(&mut store, now_ms, &mut woken)
        };
        if !woken.is_empty() {
            wake(py, woken);
        }
        Ok(result)
    }

    #[inline]
    pub(super) fn attempt<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Store<Waker>, u64, &mut Woken) -> Result<R, StoreError>,
    ) -> PyResult<R> {
        self.with(py, work)?.map_err(|error| errors::store_error(py, error))
    }

    fn key_ring(&self, py: Python<'_>) -> Arc<CoreKeyRing> {
        Arc::clone(&self.keys.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
    }
}

#[cold]
fn wake(py: Python<'_>, woken: Woken) {
    for waker in woken {
        if let Err(error) = waker.call0(py) {
            // The appender is not at fault, and the reader will look again at its next read.
            error.write_unraisable(py, Some(waker.bind(py)));
        }
    }
}

fn draw(bytes: &mut [u8]) -> PyResult<()> {
    getrandom::fill(bytes).map_err(|error| PyOSError::new_err(format!("no random bytes: {error}")))
}

fn random() -> PyResult<Random> {
    let mut bytes = [0; 20];
    draw(&mut bytes)?;
    let (mut name, mut epoch) = ([0; 12], [0; 8]);
    name.copy_from_slice(&bytes[..12]);
    epoch.copy_from_slice(&bytes[12..]);
    Ok(Random { name, epoch })
}

fn event_type(event: Option<&str>) -> &[u8] {
    event.unwrap_or_default().as_bytes()
}

#[pymethods]
impl ReplayCore {
    #[new]
    #[pyo3(signature = (*, limits, keys, clock=None))]
    fn new(limits: &Bound<'_, PyAny>, keys: &KeyRing, clock: Option<Py<PyAny>>) -> PyResult<Self> {
        let mut seed = [0; 8];
        draw(&mut seed)?;
        let store = Store::new(values::limits(limits)?, keys.0.clone(), u64::from_le_bytes(seed))
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self {
            store: Mutex::new(store),
            keys: Mutex::new(Arc::new(keys.0.clone())),
            clock,
            first_ms: OnceLock::new(),
            stopwatch: Stopwatch::start(),
            forks: fork::count(),
        })
    }

    /// Remember a session from its `initialize` on.
    fn open_session(&self, py: Python<'_>, scope: &Scope) -> PyResult<()> {
        self.attempt(py, |store, now_ms, woken| store.open_session(&scope.0, now_ms, woken))
    }

    /// Open the stream of one POST that answers `request_ids`.
    #[pyo3(signature = (scope, request_ids, *, owner=0))]
    fn open_call(
        &self,
        py: Python<'_>,
        scope: &Scope,
        request_ids: &Bound<'_, PyAny>,
        owner: u32,
    ) -> PyResult<StreamToken> {
        let requests =
            request_ids.try_iter()?.map(|value| values::request_id(&value?)).collect::<PyResult<Vec<_>>>()?;
        let random = random()?;
        self.attempt(py, |store, now_ms, woken| {
            store.open_call(&scope.0, &requests, owner, random, now_ms, woken)
        })
        .map(StreamToken)
    }

    /// The standalone stream of a session: the one it has, or a new one.
    #[pyo3(signature = (scope, *, owner=0))]
    fn open_standalone(&self, py: Python<'_>, scope: &Scope, owner: u32) -> PyResult<StreamToken> {
        let random = random()?;
        self.attempt(py, |store, now_ms, woken| store.open_standalone(&scope.0, owner, random, now_ms, woken))
            .map(StreamToken)
    }

    /// Append one event; its ID.
    #[pyo3(signature = (scope, stream, data, *, event=None))]
    fn append<'py>(
        &self,
        py: Python<'py>,
        scope: &Scope,
        stream: &StreamToken,
        data: &Bound<'py, PyAny>,
        event: Option<&str>,
    ) -> PyResult<Bound<'py, PyString>> {
        let data = Data::of(data)?;
        let new = NewEvent { event: event_type(event), data: data.as_bytes() };
        with_scratch(|id| {
            self.attempt(py, |store, now_ms, woken| {
                store.append(&scope.0, &stream.0, new, now_ms, id, woken)
            })?;
            PyString::from_bytes(py, id)
        })
    }

    /// Append several events in one step; their IDs. Readers are woken once. An event that is refused
    /// raises after those before it were appended.
    fn append_many(
        &self,
        py: Python<'_>,
        scope: &Scope,
        stream: &StreamToken,
        events: &Bound<'_, PyAny>,
    ) -> PyResult<EventIds> {
        let events = Batch::of(events)?;
        let (scope, stream) = (&scope.0, &stream.0);
        self.attempt(py, |store, now_ms, woken| match &events {
            Batch::Bytes(tuple) => store.append_all(scope, stream, values::all_data(tuple), now_ms, woken),
            Batch::Mixed(events) => {
                store.append_all(scope, stream, events.iter().map(Data::as_bytes), now_ms, woken)
            }
        })
        .map(EventIds::new)
    }

    /// Append the error that settles a call whose stream ended without an answer; its ID, or None if
    /// there is a terminal event already.
    fn settle<'py>(
        &self,
        py: Python<'py>,
        scope: &Scope,
        stream: &StreamToken,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        let data = Data::of(data)?;
        with_scratch(|id| {
            let settled = self.attempt(py, |store, now_ms, woken| {
                store.settle(&scope.0, &stream.0, data.as_bytes(), now_ms, id, woken)
            })?;
            settled.map(|_| PyString::from_bytes(py, id)).transpose()
        })
    }

    /// The ID of a position, which an echo carries; None if the digest there is not known.
    fn position_id<'py>(
        &self,
        py: Python<'py>,
        scope: &Scope,
        stream: &StreamToken,
        position: u64,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        with_scratch(|id| {
            let is_known = self.attempt(py, |store, now_ms, woken| {
                store.position_id(&scope.0, &stream.0, position, now_ms, id, woken)
            })?;
            is_known.then(|| PyString::from_bytes(py, id)).transpose()
        })
    }

    /// End a stream without an answer: "closed", "cancelled" or "adopted".
    #[pyo3(signature = (scope, stream, *, why="closed"))]
    fn end_stream(&self, py: Python<'_>, scope: &Scope, stream: &StreamToken, why: &str) -> PyResult<()> {
        let why = values::end_why(why)?;
        self.attempt(py, |store, now_ms, woken| store.end_stream(&scope.0, &stream.0, why, now_ms, woken))
    }

    /// Give a standalone stream whose history broke a new epoch.
    fn renew_epoch(&self, py: Python<'_>, scope: &Scope, stream: &StreamToken) -> PyResult<()> {
        let mut epoch = [0; 8];
        draw(&mut epoch)?;
        self.attempt(py, |store, now_ms, woken| store.renew_epoch(&scope.0, &stream.0, epoch, now_ms, woken))
    }

    /// Delete a session; the calls of it that were not answered.
    #[pyo3(signature = (scope, *, keep=None))]
    fn delete_session(
        &self,
        py: Python<'_>,
        scope: &Scope,
        keep: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<StreamToken>> {
        let mut kept = Vec::new();
        if let Some(keep) = keep {
            for stream in keep.try_iter()? {
                kept.push(stream?.cast::<StreamToken>()?.get().0);
            }
        }
        let unanswered =
            self.attempt(py, |store, now_ms, woken| store.delete_session(&scope.0, &kept, now_ms, woken))?;
        Ok(unanswered.into_iter().map(StreamToken).collect())
    }

    /// Attach a reader without a cursor: for the connection that a stream was opened for.
    #[pyo3(signature = (scope, stream, *, after=0, aware=false))]
    fn _attach(
        slf: &Bound<'_, Self>,
        scope: &Scope,
        stream: &StreamToken,
        after: u64,
        aware: bool,
    ) -> PyResult<ReaderCore> {
        let ticket = slf.get().attempt(slf.py(), |store, now_ms, woken| {
            store.attach(&scope.0, &stream.0, after, aware, now_ms, woken)
        })?;
        Ok(ReaderCore::new(slf.clone().unbind(), ticket))
    }

    /// Decide a resume and attach its reader, in one step.
    #[pyo3(signature = (scope, cursor, *, aware, want_new, attach_lost, owner))]
    #[allow(clippy::too_many_arguments)]
    fn _resume(
        slf: &Bound<'_, Self>,
        scope: &Scope,
        cursor: Option<&Bound<'_, PyAny>>,
        aware: bool,
        want_new: bool,
        attach_lost: bool,
        owner: u32,
    ) -> PyResult<ResumeAnswer> {
        let py = slf.py();
        let this = slf.get();
        let keys = this.key_ring(py);
        let examined = examine_any(&keys, scope, cursor)?;
        let ask = Ask {
            scope: &scope.0,
            cursor: examined,
            is_aware: aware,
            wants_new: want_new,
            attach_lost,
            owner,
        };
        // Drawn only where a standalone stream may have to be minted.
        let may_mint = attach_lost || matches!(examined, Examined::NoCursor);
        let drawn = if may_mint { random()? } else { Random { name: [0; 12], epoch: [0; 8] } };
        let decided =
            this.attempt(py, |store, now_ms, woken| store.resume(&ask, &mut || drawn, now_ms, woken))?;
        let reader = decided.reader.map(|ticket| Py::new(py, ReaderCore::new(slf.clone().unbind(), ticket)));
        Ok(ResumeAnswer::new(decided, reader.transpose()?))
    }

    /// Decide several resumes in one step; each ask is a scope and a cursor.
    #[pyo3(signature = (asks, *, aware, attach_lost, owner))]
    fn _resume_many(
        slf: &Bound<'_, Self>,
        asks: &Bound<'_, PyList>,
        aware: bool,
        attach_lost: bool,
        owner: u32,
    ) -> PyResult<Vec<ResumeAnswer>> {
        let py = slf.py();
        let this = slf.get();
        let keys = this.key_ring(py);
        let mut examined = Vec::with_capacity(asks.len());
        for ask in asks {
            let (scope, cursor): (Bound<'_, Scope>, Option<Bound<'_, PyAny>>) = ask.extract()?;
            let seen = examine_any(&keys, scope.get(), cursor.as_ref())?;
            let may_mint = attach_lost || matches!(seen, Examined::NoCursor);
            let drawn = if may_mint { random()? } else { Random { name: [0; 12], epoch: [0; 8] } };
            examined.push((scope, seen, drawn));
        }
        let decided = this.attempt(py, |store, now_ms, woken| {
            let mut decided = Vec::with_capacity(examined.len());
            for (scope, cursor, drawn) in &examined {
                let scope = &scope.get().0;
                let ask =
                    Ask { scope, cursor: *cursor, is_aware: aware, wants_new: false, attach_lost, owner };
                match store.resume(&ask, &mut || *drawn, now_ms, woken) {
                    Ok(resumption) => decided.push(resumption),
                    Err(error) => {
                        // Nobody will ever hold these readers, and they would keep their streams busy.
                        let orphans = decided.iter().filter_map(|before: &Resumption| before.reader);
                        orphans.for_each(|ticket| woken.extend(store.detach(ticket)));
                        return Err(error);
                    }
                }
            }
            Ok(decided)
        })?;
        decided
            .into_iter()
            .map(|decided| {
                let reader =
                    decided.reader.map(|ticket| Py::new(py, ReaderCore::new(slf.clone().unbind(), ticket)));
                Ok(ResumeAnswer::new(decided, reader.transpose()?))
            })
            .collect()
    }

    /// A relay that appends an upstream connection's events to a stream.
    #[pyo3(signature = (scope, stream, *, limits, last_event_id="", takes_anything=false))]
    fn _open_relay(
        slf: &Bound<'_, Self>,
        scope: &Bound<'_, Scope>,
        stream: &StreamToken,
        limits: &Bound<'_, PyAny>,
        last_event_id: &str,
        takes_anything: bool,
    ) -> PyResult<RelayCore> {
        relay::open(slf, scope, stream, limits, last_event_id.as_bytes(), takes_anything)
    }

    /// Sign new streams and new appends with another ring; verify with it.
    fn set_keys(&self, py: Python<'_>, keys: &KeyRing) -> PyResult<()> {
        self.locked(py, |store| store.set_keys(keys.0.clone()))?;
        *self.keys.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner) = Arc::new(keys.0.clone());
        Ok(())
    }

    /// Sweep everything that is due.
    fn sweep(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |store, now_ms, woken| store.sweep(now_ms, woken))
    }

    /// The counters.
    fn _statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.locked(py, |store| store.statistics())?;
        let out = PyDict::new(py);
        for (name, value) in [
            ("live_streams", counts.live_streams as u64),
            ("ended_streams", counts.ended_streams as u64),
            ("tombstones", counts.tombstones as u64),
            ("sessions", counts.sessions as u64),
            ("ended_sessions", counts.ended_sessions as u64),
            ("readers", counts.readers as u64),
            ("charged_bytes", counts.charged_bytes as u64),
            ("window_events", counts.window_events as u64),
            ("window_bytes", counts.window_bytes as u64),
            ("held_bytes", counts.held_bytes as u64),
            ("lookups", counts.lookups),
            ("appended", counts.appended),
            ("trimmed_events", counts.trimmed_events),
            ("trimmed_bytes", counts.trimmed_bytes),
            ("trimmed_age", counts.trimmed_age),
            ("trimmed_budget", counts.trimmed_budget),
            ("trimmed_at_birth", counts.trimmed_at_birth),
            ("too_large", counts.too_large),
            ("refused", counts.refused),
            ("forgotten_sessions", counts.forgotten_sessions),
            ("taken_over", counts.taken_over),
            ("too_slow", counts.too_slow),
            ("idle_ends", counts.idle_ends),
        ] {
            out.set_item(name, value)?;
        }
        out.set_item("rows", counts.rows.to_vec())?;
        Ok(out)
    }
}

/// `str`, `bytes` or None; a lone surrogate becomes U+FFFD, which no ID has.
fn examine_any(keys: &CoreKeyRing, scope: &Scope, cursor: Option<&Bound<'_, PyAny>>) -> PyResult<Examined> {
    let Some(cursor) = cursor else { return Ok(examine(keys, &scope.0, None)) };
    if let Ok(bytes) = cursor.cast::<PyBytes>() {
        return Ok(examine(keys, &scope.0, Some(bytes.as_bytes())));
    }
    let text = cursor.cast::<PyString>()?;
    Ok(examine(keys, &scope.0, Some(text.to_string_lossy().as_bytes())))
}
