//! Whose stream it is: an input of the MAC, never content of an ID.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The longest tenant, principal or session, in bytes of UTF-8.
pub const MAX_SCOPE_PART_BYTES: usize = 4096;

/// Tenant, principal and session. Absent differs from empty.
///
/// Shared, so that a copy costs nothing, and a scope that is compared with itself is not read.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Scope(Arc<Parts>);

#[derive(Default, PartialEq, Eq, Hash)]
struct Parts {
    tenant: Option<Box<str>>,
    principal: Option<Box<str>>,
    session: Option<Box<str>>,
}

/// A part of a scope is over its bound; the text itself is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the {part} of a scope has {bytes} bytes, the limit is {MAX_SCOPE_PART_BYTES}")]
pub struct ScopeError {
    /// `tenant`, `principal` or `session`.
    pub part: &'static str,
    /// Its length.
    pub bytes: usize,
}

impl Scope {
    /// A scope of these parts.
    ///
    /// # Errors
    /// When a part is longer than [`MAX_SCOPE_PART_BYTES`].
    pub fn new(
        tenant: Option<&str>,
        principal: Option<&str>,
        session: Option<&str>,
    ) -> Result<Self, ScopeError> {
        for (part, value) in [("tenant", tenant), ("principal", principal), ("session", session)] {
            let bytes = value.map_or(0, str::len);
            if bytes > MAX_SCOPE_PART_BYTES {
                return Err(ScopeError { part, bytes });
            }
        }
        Ok(Self(Arc::new(Parts {
            tenant: tenant.map(Box::from),
            principal: principal.map(Box::from),
            session: session.map(Box::from),
        })))
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    /// The principal: one user, never a tenant.
    #[must_use]
    pub fn principal(&self) -> Option<&str> {
        self.0.principal.as_deref()
    }

    /// The MCP session.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.0.session.as_deref()
    }
}

/// Says which parts there are, not what they are: session ids do not belong in logs.
impl fmt::Debug for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Box<str>>| if value.is_some() { "<set>" } else { "<absent>" };
        formatter
            .debug_struct("Scope")
            .field("tenant", &shown(&self.0.tenant))
            .field("principal", &shown(&self.0.principal))
            .field("session", &shown(&self.0.session))
            .finish()
    }
}
