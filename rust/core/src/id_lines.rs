//! Looks at the ids in a stream that is passed on: whether all of them are of the stream that was asked for.
//!
//! It reads no event and keeps nothing; who calls it knows where lines begin.

use memchr::{memchr2, memmem};

/// How a line with an event ID begins, behind the end of the line before it.
const ID: &[u8] = b"\nid";

/// Whether nothing but LF ends a line in `text`, and every id in `lines` begins with `prefix`.
///
/// `lines` is the part of `text` that holds whole lines: it begins at the LF before the first of them, and ends
/// before the LF that ends the last.  `prefix` begins with that LF too.  A NUL is refused like CR: no parser
/// takes such an id.
#[must_use]
pub fn ids_agree(text: &[u8], lines: &[u8], prefix: &[u8]) -> bool {
    memchr2(b'\r', b'\0', text).is_none()
        && memmem::find_iter(lines, ID).all(|at| lines.get(at..).is_some_and(|line| line.starts_with(prefix)))
}
