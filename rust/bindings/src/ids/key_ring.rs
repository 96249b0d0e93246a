//! `counterfoil.KeyRing`, and the reading of its file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use counterfoil_core::ids::{
    self, Check, Digest, Epoch, IdError, Key, KeyId, Sequence, KEY_BYTES, MAX_KEY_FILE_BYTES,
};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::digest_chain::DigestChain;
use super::event_id::{id_error, EventId};
use super::scope::Scope;
use super::stream_token::StreamToken;
use crate::errors::{ErrorClass, KEY_FILE_ERROR, KEY_FILE_EXPOSED, KEY_RING_ERROR};

/// What pickling asks for: a callable and its arguments.
type Reduced<'py, Arguments> = (Bound<'py, PyAny>, Arguments);

/// What the MAC of an ID says about it.
#[pyclass(frozen, eq, hash, module = "counterfoil")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum KeyCheck {
    /// One of our keys made this tag for this scope, stream and epoch.
    #[pyo3(name = "VERIFIED")]
    Verified,
    /// Forged, or of another scope: the two look alike.
    #[pyo3(name = "FORGED")]
    Forged,
    /// The ring has no key of that id: nothing can be said.
    #[pyo3(name = "UNKNOWN_KEY")]
    UnknownKey,
}

#[pymethods]
impl KeyCheck {
    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err("a KeyCheck is no bool: compare it with KeyCheck.VERIFIED"))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py, (Bound<'py, PyAny>, &'static str)>> {
        let name = match self {
            Self::Verified => "VERIFIED",
            Self::Forged => "FORGED",
            Self::UnknownKey => "UNKNOWN_KEY",
        };
        let getattr = py.import("builtins")?.getattr("getattr")?;
        Ok((getattr, (py.get_type::<Self>().into_any(), name)))
    }
}

/// One key of a ring, without its secret.
#[pyclass(frozen, eq, hash, module = "counterfoil", get_all)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct KeyInfo {
    /// Six characters, derived from the key.
    id: String,
    /// Whether it signs; exactly one does.
    signs: bool,
    /// When it was made, in Unix seconds.
    made_s: u64,
    /// When it stopped signing, in Unix seconds.
    retired_s: Option<u64>,
}

#[pymethods]
impl KeyInfo {
    #[new]
    #[pyo3(signature = (id, *, signs, made_s, retired_s=None))]
    fn new(id: String, signs: bool, made_s: u64, retired_s: Option<u64>) -> Self {
        Self { id, signs, made_s, retired_s }
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<((&str,), Bound<'py, pyo3::types::PyDict>)> {
        let named = pyo3::types::PyDict::new(py);
        named.set_item("signs", self.signs)?;
        named.set_item("made_s", self.made_s)?;
        named.set_item("retired_s", self.retired_s)?;
        Ok(((&self.id,), named))
    }

    fn __repr__(&self) -> String {
        let signs = if self.signs { "True" } else { "False" };
        let retired = self.retired_s.map_or("None".to_owned(), |seconds| seconds.to_string());
        format!("KeyInfo('{}', signs={signs}, made_s={}, retired_s={retired})", self.id, self.made_s)
    }
}

/// The keys that sign and verify event IDs: one signs, several verify.
///
/// Neither `repr` nor an error shows a secret. A pickle does hold them, as the key file does.
#[pyclass(frozen, eq, hash, module = "counterfoil")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct KeyRing(pub(crate) ids::KeyRing);

#[pymethods]
impl KeyRing {
    /// A ring of one random key that is written nowhere: cursors die with this process.
    #[staticmethod]
    fn random() -> PyResult<Self> {
        Ok(Self(ids::KeyRing::ephemeral(random_secret()?, 0)))
    }

    /// Read a key file that `counterfoil keys` wrote; refuses one that others may read.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let content = py.detach(|| read_secret_file(&path)).map_err(|refusal| refusal.error(py, &path))?;
        match ids::parse_key_file(&content) {
            Ok(ring) => Ok(Self(ring)),
            Err(reason) => Err(file_error(py, &KEY_FILE_ERROR, &path, &reason.to_string())),
        }
    }

    /// Read the text of a key file.
    #[staticmethod]
    fn from_text(py: Python<'_>, text: &str) -> PyResult<Self> {
        let read = ids::parse_key_file(text);
        read.map(Self).map_err(|reason| KEY_FILE_ERROR.error(py, &format!("key file: {reason}"), &[]))
    }

    /// A ring of one key from 32 random bytes.
    #[staticmethod]
    #[pyo3(signature = (secret, *, made_s))]
    fn from_secret(py: Python<'_>, secret: [u8; KEY_BYTES], made_s: u64) -> PyResult<Self> {
        ids::KeyRing::new(Key::new(secret, made_s, None), Vec::new()).map(Self).map_err(ring_error(py))
    }

    /// The text of a key file with this ring in it. It holds the secrets.
    fn to_text(&self) -> String {
        ids::write_key_file(&self.0)
    }

    /// Whether the key was drawn at start and is written nowhere.
    #[getter]
    fn is_ephemeral(&self) -> bool {
        self.0.is_ephemeral()
    }

    /// The keys without their secrets, the signing one first.
    #[getter]
    fn keys(&self, py: Python<'_>) -> PyResult<Py<pyo3::types::PyTuple>> {
        let infos = self.0.keys().enumerate().map(|(index, key)| KeyInfo {
            id: key.id().to_string(),
            signs: index == 0,
            made_s: key.made_s,
            retired_s: key.retired_s,
        });
        Ok(pyo3::types::PyTuple::new(py, infos.collect::<Vec<_>>())?.unbind())
    }

    /// A ring in which a new key signs and all of these still verify.
    #[pyo3(signature = (secret, *, now_s))]
    fn rotated(&self, py: Python<'_>, secret: [u8; KEY_BYTES], now_s: u64) -> PyResult<Self> {
        self.0.rotated(secret, now_s).map(Self).map_err(ring_error(py))
    }

    /// A ring without one of the keys that only verify.
    fn without(&self, py: Python<'_>, key_id: &str) -> PyResult<Self> {
        let Ok(id) = KeyId::parse(key_id.as_bytes()) else {
            return Err(KEY_RING_ERROR.error(py, "a key id is six characters of [A-Za-z0-9_-]", &[]));
        };
        self.0.without(id).map(Self).map_err(ring_error(py))
    }

    /// Judge an ID's tag in this scope, in constant time.
    fn check(&self, scope: &Scope, event_id: &EventId) -> KeyCheck {
        match self.0.check(&scope.0, &event_id.0) {
            Check::Verified => KeyCheck::Verified,
            Check::Forged => KeyCheck::Forged,
            Check::UnknownKey => KeyCheck::UnknownKey,
        }
    }

    /// Seal a message of one process to another that holds the same ring; returns ASCII text.
    fn seal(&self, message: &[u8]) -> String {
        self.0.seal(message)
    }

    /// Judge a seal in constant time; text that is none is forged.
    fn check_seal(&self, message: &[u8], seal: &[u8]) -> KeyCheck {
        match self.0.check_seal(message, seal) {
            Check::Verified => KeyCheck::Verified,
            Check::Forged => KeyCheck::Forged,
            Check::UnknownKey => KeyCheck::UnknownKey,
        }
    }

    /// The ID of one event, tagged by the signing key.
    #[pyo3(signature = (scope, *, stream, epoch, sequence, digest))]
    fn event_id(
        &self,
        py: Python<'_>,
        scope: &Scope,
        stream: &StreamToken,
        epoch: &str,
        sequence: u64,
        digest: &str,
    ) -> PyResult<EventId> {
        let refused = |reason| id_error(py, IdError::from(reason));
        let epoch = Epoch::parse(epoch.as_bytes()).map_err(refused)?;
        let digest = Digest::parse(digest.as_bytes()).map_err(refused)?;
        let Some(sequence) = Sequence::new(sequence) else {
            return Err(PyValueError::new_err("a sequence is at most 2^63 - 1"));
        };
        let tag = self.0.tag(&scope.0, &stream.0, &epoch);
        Ok(EventId(ids::EventId { stream: stream.0, epoch, tag, sequence, digest }))
    }

    /// The digest chain of an epoch that is being minted.
    #[pyo3(signature = (scope, *, stream, epoch))]
    fn digest_chain(
        &self,
        py: Python<'_>,
        scope: &Scope,
        stream: &StreamToken,
        epoch: &str,
    ) -> PyResult<DigestChain> {
        let epoch = Epoch::parse(epoch.as_bytes()).map_err(|reason| id_error(py, IdError::from(reason)))?;
        Ok(DigestChain::new(ids::DigestChain::start(&self.0, &scope.0, &stream.0, &epoch)))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py, (Bound<'py, PyAny>,)>> {
        let class = py.get_type::<Self>();
        if self.0.is_ephemeral() && self.0.keys().count() == 1 {
            let secret = PyBytes::new(py, self.0.signing().secret()).into_any();
            return Ok((class.getattr("_ephemeral")?, (secret,)));
        }
        Ok((class.getattr("from_text")?, (self.to_text().into_pyobject(py)?.into_any(),)))
    }

    #[staticmethod]
    fn _ephemeral(secret: [u8; KEY_BYTES]) -> Self {
        Self(ids::KeyRing::ephemeral(secret, 0))
    }

    fn __repr__(&self) -> String {
        let ids: Vec<_> = self.0.keys().map(|key| key.id().to_string()).collect();
        let verifying =
            if ids.len() > 1 { format!(", verifies={}", ids[1..].join(",")) } else { String::new() };
        let kind = if self.0.is_ephemeral() { ", ephemeral" } else { "" };
        format!("<KeyRing signs={}{verifying}{kind}>", ids[0])
    }
}

fn random_secret() -> PyResult<[u8; KEY_BYTES]> {
    let mut secret = [0; KEY_BYTES];
    getrandom::fill(&mut secret)
        .map_err(|_| PyOSError::new_err("the operating system gave no random bytes"))?;
    Ok(secret)
}

fn ring_error(py: Python<'_>) -> impl FnOnce(ids::KeyRingError) -> PyErr + '_ {
    move |error| KEY_RING_ERROR.error(py, &error.to_string(), &[])
}

enum Refusal {
    Exposed(u32),
    Unreadable(String),
}

impl Refusal {
    fn error(&self, py: Python<'_>, path: &Path) -> PyErr {
        match self {
            Self::Exposed(mode) => {
                let text = format!("its mode is {mode:04o}, so others may read or write it; run: chmod 600");
                file_error(py, &KEY_FILE_EXPOSED, path, &text)
            }
            Self::Unreadable(reason) => file_error(py, &KEY_FILE_ERROR, path, reason),
        }
    }
}

fn file_error(py: Python<'_>, class: &ErrorClass, path: &Path, reason: &str) -> PyErr {
    let shown = path.display().to_string();
    match shown.as_str().into_pyobject(py) {
        Ok(field) => class.error(py, &format!("key file {shown}: {reason}"), &[("path", field.into_any())]),
        Err(error) => error.into(),
    }
}

/// Mode and content of one open file, so that nobody can put another one in its place between the two.
fn read_secret_file(path: &Path) -> Result<String, Refusal> {
    let unreadable = |error: std::io::Error| Refusal::Unreadable(error.to_string());
    let kind = std::fs::metadata(path).map_err(unreadable)?;
    if !kind.is_file() {
        // Opening a FIFO would wait for its writer.
        return Err(Refusal::Unreadable("not a regular file".to_owned()));
    }
    let file = File::open(path).map_err(unreadable)?;
    check_mode(&file)?;
    let mut content = String::new();
    let bound = MAX_KEY_FILE_BYTES as u64 + 1;
    file.take(bound).read_to_string(&mut content).map_err(unreadable)?;
    Ok(content)
}

#[cfg(unix)]
fn check_mode(file: &File) -> Result<(), Refusal> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = file.metadata().map_err(|error| Refusal::Unreadable(error.to_string()))?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        Err(Refusal::Exposed(mode))
    }
}

/// Other systems guard files by other means than a mode.
#[cfg(not(unix))]
fn check_mode(_file: &File) -> Result<(), Refusal> {
    Ok(())
}
