//! Groups that this host is a member of [MFTP §3.5], and programs that ask who else is.
//!
//! A membership outlasts the program that joined: a member that sleeps is a member. It ends when a program
//! leaves the group, with its admission, or a week after the host was last there.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::Guid;
use whimbrel_gnrs::{GroupAdmission, KeyPair, Record, Statement, StatementError};

use super::App;
use super::effects::{Action, Effects};
use crate::local::MembershipChange;
use crate::wire::ControlCode;

/// Bound of the groups of a host.
const MAX_GROUPS: usize = 64;
/// Bound of the questions of programs that wait for an answer; the oldest is forgotten.
const MAX_QUESTIONS: usize = 64;
/// Longest lifetime of a membership's record.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// A record is renewed after this long.
pub(super) const RENEWAL: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Membership {
    admission: GroupAdmission,
    // Programs that are told the outcome.
    apps: BTreeSet<App>,
    change: MembershipChange,
}

impl Membership {
    fn is_over(&self) -> bool {
        self.change == MembershipChange::Leave
    }
}

/// A program that has asked for the members of a group.
#[derive(Clone, Copy, Debug)]
struct MembersQuestion {
    app: App,
    request: u32,
    group: Guid,
}

/// The groups of a host, by the names of their memberships.
#[derive(Debug, Default)]
pub(super) struct Memberships {
    by_group: BTreeMap<Guid, Membership>,
    questions: VecDeque<MembersQuestion>,
}

impl Memberships {
    /// Joins or leaves a group. Returns the name of its memberships; `None` if there are too many.
    pub(super) fn set(
        &mut self,
        app: App,
        admission: GroupAdmission,
        change: MembershipChange,
    ) -> Option<Guid> {
        let group = Record::group_of(&admission.group_name());
        if self.by_group.len() >= MAX_GROUPS && !self.by_group.contains_key(&group) {
            return None;
        }
        let known = self.by_group.entry(group).or_insert(Membership {
            admission,
            apps: BTreeSet::new(),
            change,
        });
        known.admission = admission;
        known.change = change;
        known.apps.insert(app);
        Some(group)
    }

    pub(super) fn forget(&mut self, app: App) {
        for membership in self.by_group.values_mut() {
            membership.apps.remove(&app);
        }
        self.questions.retain(|question| question.app != app);
    }

    /// Returns true if the host is a member of this group.
    pub(super) fn has(&self, group: &Guid) -> bool {
        let membership = self.by_group.get(group);
        membership.is_some_and(|membership| !membership.is_over())
    }

    /// Returns the programs that are told of a group, and its name.
    pub(super) fn programs(&self, group: &Guid) -> Vec<(App, Guid)> {
        let membership = self.by_group.get(group).into_iter();
        let programs = membership.flat_map(|it| {
            let name = it.admission.group_name();
            it.apps.iter().map(move |app| (*app, name))
        });
        programs.collect()
    }

    /// Signs a membership, or its end; `None` for another name.
    pub(super) fn sign(
        &mut self,
        group: &Guid,
        keys: &KeyPair,
        statement: &Statement,
    ) -> Option<Result<Record, StatementError>> {
        let membership = self.by_group.get(group)?;
        let longest = statement.issued_ms + LIFETIME.as_millis() as u64;
        let expires_ms = match membership.is_over() {
            true => longest,
            false => longest.min(membership.admission.expires_ms),
        };
        let statement = Statement {
            expires_ms,
            removed: membership.is_over(),
            ..statement.clone()
        };
        let admission = &membership.admission;
        Some(match membership.change {
            MembershipChange::JoinAsGroup => {
                Record::membership_of_group(keys, admission, &statement)
            }
            _ => Record::membership(keys, admission, &statement),
        })
    }

    /// The name service has answered about a group: what is over is forgotten.
    pub(super) fn note_outcome(&mut self, group: &Guid, code: ControlCode) {
        let is_done = code == ControlCode::Registered;
        if is_done && self.by_group.get(group).is_some_and(Membership::is_over) {
            self.by_group.remove(group);
        }
    }

    /// A program asks for the members of a group.
    pub(super) fn ask(&mut self, app: App, request: u32, name: &Guid, effects: &mut Effects) {
        let group = Record::group_of(name);
        let question = MembersQuestion {
            app,
            request,
            group,
        };
        effects.push(Action::AskMembers(group));
        let same = |it: &MembersQuestion| (it.app, it.request) == (question.app, question.request);
        self.questions.retain(|it| !same(it));
        if self.questions.len() >= MAX_QUESTIONS {
            self.questions.pop_front();
        }
        self.questions.push_back(question);
    }

    /// The router tells the members of a group: those that have asked are told.
    pub(super) fn note_members(&mut self, group: &Guid, members: &[Guid], effects: &mut Effects) {
        let (about, others) = self.questions.iter().partition(|it| it.group == *group);
        self.questions = others;
        for MembersQuestion { app, request, .. } in about {
            effects.tell_status(app, request, &MembersReport { members });
        }
    }
}

/// The members of a group, as programs are told them.
#[derive(serde::Serialize)]
struct MembersReport<'a> {
    members: &'a [Guid],
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    #[test]
    fn a_membership_outlasts_its_program_and_ends_with_a_removal() {
        let (group, host) = (
            KeyPair::from_secret(&[1; 32]),
            KeyPair::from_secret(&[2; 32]),
        );
        let admission = GroupAdmission::sign(&group, None, NOW + 3_600_000);
        let mut memberships = Memberships::default();
        let name = memberships
            .set(App::Inner(1), admission, MembershipChange::Join)
            .unwrap();
        assert_eq!(name, Record::group_of(&group.guid()));
        memberships.forget(App::Inner(1));
        assert!(memberships.has(&name) && memberships.programs(&name).is_empty());
        let said = Statement::new(NOW, 60_000, Vec::new());
        let record = memberships.sign(&name, &host, &said).unwrap().unwrap();
        assert_eq!(record.verify(NOW), Ok(()));
        assert_eq!(record.expires_ms(), NOW + 3_600_000);
        memberships
            .set(App::Inner(2), admission, MembershipChange::Leave)
            .unwrap();
        assert!(!memberships.has(&name));
        let record = memberships.sign(&name, &host, &said).unwrap().unwrap();
        assert!(record.is_removal() && record.verify(NOW) == Ok(()));
        assert_eq!(memberships.programs(&name), [(App::Inner(2), group.guid())]);
        memberships.note_outcome(&name, ControlCode::Registered);
        assert!(memberships.programs(&name).is_empty());
        let mut joined = 0;
        for secret in 10..110 {
            let group = KeyPair::from_secret(&[secret; 32]);
            let admission = GroupAdmission::sign(&group, None, NOW + 1);
            let change = MembershipChange::JoinAsGroup;
            let set = memberships.set(App::Inner(1), admission, change);
            joined += usize::from(set.is_some());
        }
        assert_eq!(joined, MAX_GROUPS);
    }
}
