//! Names by which a host is reached beside its own.

use std::collections::BTreeMap;

use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::LocalRequest;
use whimbrel_mobilityfirst::wire::ControlCode;

use crate::error::ProgramError;

/// The name of a service, or of a group that the host is a member of.
#[derive(Debug)]
struct FurtherName {
    request: LocalRequest,
    /// What the name service said last.
    code: Option<ControlCode>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct FurtherNames(BTreeMap<Guid, FurtherName>);

impl FurtherNames {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, name: Guid, request: LocalRequest) {
        let code = None;
        self.0.insert(name, FurtherName { request, code });
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = LocalRequest> {
        self.0.values().map(|further| further.request.clone())
    }

    pub(super) fn note(&mut self, name: Guid, code: ControlCode) {
        if let Some(further) = self.0.get_mut(&name) {
            further.code = Some(code);
        }
    }

    pub(super) fn code(&self, name: Guid) -> Option<ControlCode> {
        self.0.get(&name)?.code
    }

    pub(super) fn is_known(&self, name: Guid) -> Result<bool, ProgramError> {
        let further = self.0.get(&name).ok_or(ProgramError::Over)?;
        match further.code {
            Some(ControlCode::Registered) => Ok(true),
            Some(code @ (ControlCode::Invalid | ControlCode::Full | ControlCode::Clock)) => {
                Err(ProgramError::NotNamed { name, code })
            }
            // The host tells the name service again.
            _ => Ok(false),
        }
    }
}
