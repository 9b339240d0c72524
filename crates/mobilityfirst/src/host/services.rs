//! Names that a host is attached by beside its own: "operations include those to bind or *attach* a GUID"
//! [MFTP §4]. Several hosts may be attached by the same name; what is sent to it reaches the nearest.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::Guid;
use whimbrel_gnrs::{KeyPair, Record, Statement, StatementError};

use super::App;

/// Bound of the names of all programs together.
const MAX_SERVICES: usize = 64;

#[derive(Debug)]
struct Service {
    keys: KeyPair,
    apps: BTreeSet<App>,
}

/// The names that programs have attached the host by, each under the name of its members, by which the
/// nearest of them is addressed.
#[derive(Debug, Default)]
pub(super) struct Services {
    by_members: BTreeMap<Guid, Service>,
}

impl Services {
    /// Attaches the host by the name of a key, for a program. Returns the name of its members; `None` if there
    /// are too many.
    pub(super) fn attach(&mut self, app: App, keys: KeyPair) -> Option<Guid> {
        let members = Record::members_of(&keys.guid());
        if self.by_members.len() >= MAX_SERVICES && !self.by_members.contains_key(&members) {
            return None;
        }
        let apps = BTreeSet::new();
        let service = self
            .by_members
            .entry(members)
            .or_insert(Service { keys, apps });
        service.apps.insert(app);
        Some(members)
    }

    /// Forgets a program. Returns the names of members that no program is left for.
    pub(super) fn forget(&mut self, app: App) -> Vec<Guid> {
        let mut left = Vec::new();
        for (members, service) in &mut self.by_members {
            if service.apps.remove(&app) && service.apps.is_empty() {
                left.push(*members);
            }
        }
        left
    }

    /// Returns true if the host is attached by the name with these members.
    pub(super) fn is_attached(&self, members: &Guid) -> bool {
        let service = self.by_members.get(members);
        service.is_some_and(|service| !service.apps.is_empty())
    }

    /// Returns the programs that have attached the host by a name, and the name.
    pub(super) fn programs(&self, members: &Guid) -> impl Iterator<Item = (App, Guid)> {
        let service = self.by_members.get(members).into_iter();
        service.flat_map(|it| {
            let name = it.keys.guid();
            it.apps.iter().map(move |app| (*app, name))
        })
    }

    /// Signs that `host` is attached by the name with these members; `None` for another name. A name that no
    /// program is left for is forgotten with the removal.
    pub(super) fn sign(
        &mut self,
        members: &Guid,
        host: Guid,
        statement: &Statement,
    ) -> Option<Result<Record, StatementError>> {
        let service = self.by_members.get(members)?;
        let record = Record::member(&service.keys, host, statement);
        if statement.removed {
            self.by_members.remove(members);
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_attached_until_its_last_program_leaves_and_there_is_a_bound() {
        let mut services = Services::default();
        let keys = |number: usize| KeyPair::from_secret(&[number as u8 + 1; 32]);
        let members = services.attach(App::Inner(1), keys(0)).unwrap();
        assert_eq!(services.attach(App::Inner(2), keys(0)), Some(members));
        assert!(services.forget(App::Inner(1)).is_empty());
        assert!(services.is_attached(&members));
        assert_eq!(services.forget(App::Inner(2)), [members]);
        assert!(!services.is_attached(&members));
        let host = Guid([7; 32]);
        let removal = Statement::removal(1_800_000_000_000, 60_000);
        let record = services.sign(&members, host, &removal).unwrap().unwrap();
        assert!(record.is_removal() && record.holder() == host);
        assert!(services.sign(&members, host, &removal).is_none());
        let attached = (0..100).filter_map(|it| services.attach(App::Inner(1), keys(it)));
        assert_eq!(attached.count(), MAX_SERVICES);
    }
}
