//! `counterfoil.Scope`.

use counterfoil_core::ids;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::SCOPE_TOO_LONG;

/// Whose streams: tenant, principal and session. None differs from the empty text.
#[pyclass(frozen, eq, hash, module = "counterfoil")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope(pub(crate) ids::Scope);

#[pymethods]
impl Scope {
    #[new]
    #[pyo3(signature = (*, tenant=None, principal=None, session=None))]
    fn new(
        py: Python<'_>,
        tenant: Option<&str>,
        principal: Option<&str>,
        session: Option<&str>,
    ) -> PyResult<Self> {
        match ids::Scope::new(tenant, principal, session) {
            Ok(scope) => Ok(Self(scope)),
            Err(error) => {
                let limit = ids::MAX_SCOPE_PART_BYTES.into_pyobject(py)?.into_any();
                let fields = [("part", error.part.into_pyobject(py)?.into_any()), ("limit", limit)];
                Err(SCOPE_TOO_LONG.error(py, &error.to_string(), &fields))
            }
        }
    }

    /// The tenant.
    #[getter]
    fn tenant(&self) -> Option<&str> {
        self.0.tenant()
    }

    /// The principal: one user, never a tenant.
    #[getter]
    fn principal(&self) -> Option<&str> {
        self.0.principal()
    }

    /// The MCP session.
    #[getter]
    fn session(&self) -> Option<&str> {
        self.0.session()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((), Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("tenant", self.0.tenant())?;
        named.set_item("principal", self.0.principal())?;
        named.set_item("session", self.0.session())?;
        Ok(((), named))
    }

    /// Principal and session are not shown: they do not belong in logs.
    fn __repr__(&self) -> String {
        let tenant = self.0.tenant().map_or("None".to_owned(), |tenant| format!("{tenant:?}"));
        let hidden = |part: Option<&str>| if part.is_some() { "<hidden>" } else { "None" };
        let (principal, session) = (hidden(self.0.principal()), hidden(self.0.session()));
        format!("Scope(tenant={tenant}, principal={principal}, session={session})")
    }
}
