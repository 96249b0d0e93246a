//! The text of a key file. Reading and writing the file itself, and its mode, are the caller's.

use std::fmt::Write as _;

use thiserror::Error;

use super::key_ring::{Key, KeyRing, KeyRingError, KEY_BYTES};
use super::malformed::Part;
use super::text;

/// The version of the format that this release writes, and the only one it reads.
pub const KEY_FILE_VERSION: u32 = 1;
/// A longer text is no key file.
pub const MAX_KEY_FILE_BYTES: usize = 16_384;

const MAGIC: &str = "counterfoil-keys";

/// Why a text is no key file. No variant repeats any of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// Longer than [`MAX_KEY_FILE_BYTES`].
    #[error("longer than {MAX_KEY_FILE_BYTES} bytes: not a key file")]
    TooLong,
    /// The first line is not ours.
    #[error("line 1 is not `counterfoil-keys 1`: not a key file")]
    NotAKeyFile,
    /// A newer format.
    #[error("key file of format version {0}; this release reads version 1")]
    Version(u32),
    /// A line that is no key.
    #[error("line {0} is not `sign|verify ID SECRET made=SECONDS [retired=SECONDS]`")]
    Line(usize),
    /// The id does not belong to the secret: one of the two was damaged.
    #[error("line {0}: the key id does not belong to the secret; one of the two was changed")]
    IdMismatch(usize),
    /// Not exactly one key signs.
    #[error("a key file has exactly one `sign` line, this one has {0}")]
    Signing(usize),
    /// The keys make no ring.
    #[error(transparent)]
    Ring(KeyRingError),
}

/// Reads a key file.
///
/// # Errors
/// When the text is not exactly a key file of version 1.
pub fn parse_key_file(content: &str) -> Result<KeyRing, KeyFileError> {
    if content.len() > MAX_KEY_FILE_BYTES {
        return Err(KeyFileError::TooLong);
    }
    let mut lines = content.lines().enumerate();
    check_first(lines.next().map_or("", |(_, line)| line))?;
    let mut signing = Vec::new();
    let mut verifying = Vec::new();
    for (index, line) in lines {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (signs, key) = parse_line(line, index + 1)?;
        if signs { &mut signing } else { &mut verifying }.push(key);
    }
    let count = signing.len();
    match (signing.pop(), count) {
        (Some(key), 1) => KeyRing::new(key, verifying).map_err(KeyFileError::Ring),
        _ => Err(KeyFileError::Signing(count)),
    }
}

fn check_first(line: &str) -> Result<(), KeyFileError> {
    let digits = line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' ')).unwrap_or_default();
    // `parse` alone would take a sign and leading zeros.
    if digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(KeyFileError::NotAKeyFile);
    }
    match digits.parse() {
        Ok(KEY_FILE_VERSION) => Ok(()),
        Ok(other) => Err(KeyFileError::Version(other)),
        Err(_) => Err(KeyFileError::NotAKeyFile),
    }
}

fn parse_line(line: &str, number: usize) -> Result<(bool, Key), KeyFileError> {
    let bad = || KeyFileError::Line(number);
    let mut words = line.split(' ');
    let role = words.next().unwrap_or_default();
    let id = words.next().ok_or_else(bad)?;
    let secret = words.next().ok_or_else(bad)?;
    let secret: [u8; KEY_BYTES] = text::decode(secret.as_bytes(), Part::Tag, 0).map_err(|_| bad())?;
    let made_s = seconds(words.next(), "made=").ok_or_else(bad)?;
    let (signs, retired_s) = match role {
        "sign" => (true, None),
        "verify" => (false, Some(seconds(words.next(), "retired=").ok_or_else(bad)?)),
        _ => return Err(bad()),
    };
    if words.next().is_some() {
        return Err(bad());
    }
    let key = Key::new(secret, made_s, retired_s);
    if key.id().as_str() == id {
        Ok((signs, key))
    } else {
        Err(KeyFileError::IdMismatch(number))
    }
}

fn seconds(word: Option<&str>, name: &str) -> Option<u64> {
    let digits = word?.strip_prefix(name)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The text of a key file with this ring in it. It holds the secrets.
#[must_use]
pub fn write_key_file(ring: &KeyRing) -> String {
    let mut out =
        format!("{MAGIC} {KEY_FILE_VERSION}\n# Secret: whoever reads this file can forge event IDs.\n");
    for (index, key) in ring.keys().enumerate() {
        let role = if index == 0 { "sign" } else { "verify" };
        // Writing to a String cannot fail.
        let _ = write!(out, "{role} {} {} made={}", key.id(), text::encode(key.secret()), key.made_s);
        if index > 0 {
            let _ = write!(out, " retired={}", key.retired_s.unwrap_or(key.made_s));
        }
        out.push('\n');
    }
    out
}
