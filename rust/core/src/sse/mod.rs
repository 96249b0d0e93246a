//! Server-Sent Events (WHATWG HTML, sections 9.2.5 and 9.2.6): an incremental parser and an encoder.
//!
//! Everything here is bytes: malformed UTF-8 is passed through untouched, and whoever decodes it
//! does so once, with one U+FFFD per maximal subpart.  Called by the relay and by the bindings.

mod encoder;
mod limits;
mod line_ends;
mod parser;
mod sink;

pub use encoder::{write_comment, write_frame, EncodeError, Frame};
pub use limits::{ParseError, ParserLimits};
pub use parser::{End, Parser, RETRY_CAP_MS};
pub use sink::{BlockRef, EventRef, Sink};
