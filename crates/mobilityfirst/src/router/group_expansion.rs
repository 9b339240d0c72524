//! Groups of groups: who the members of a group are, when some of them are groups [MFTP §3.5].
//!
//! "We can exploit in-network transport proxies to build multiple levels of multicast group GUID to a set of GUIDs
//! mappings recursively." A member that is a group may be attached to a router, which is its proxy: it gets one
//! copy, and looks up the members itself. Otherwise the router that finds the group looks them up. Each group is
//! looked up once for a chunk, so that members of several groups are named once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::{Kind, Lookup, Record};

use super::Timer;
use super::binding::Binding;
use super::effects::{Action, Effects};
use crate::links::Links;
use crate::next_hops::Branch;
use crate::wire::{MAX_GROUPS_ABOVE, MemberList, NetworkHeader};

/// Groups that one look at a group leads to.
const MAX_GROUPS: usize = 64;
/// Members that one look at a group finds, of all groups below it.
const MAX_FOUND: usize = 4096;

/// Why the members of a group are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MembersUnknown {
    /// The answer about this name is on its way.
    Pending(Guid),
    /// The name service cannot be asked now.
    Busy,
    /// There are none.
    Absent,
}

/// Groups below that are attached to other routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyRule {
    /// These routers look up their members.
    Serve,
    /// All members are looked up here.
    Ignore,
}

/// A look at a group's members.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupQuery<'a> {
    /// The name of its memberships.
    pub(super) group: Guid,
    /// Groups that the chunk has come through.
    pub(super) above: &'a [Guid],
    /// The members that are meant; all if empty.
    pub(super) listed: &'a MemberList,
    pub(super) from: Option<PortId>,
    pub(super) proxies: ProxyRule,
}

impl<'a> GroupQuery<'a> {
    /// Returns the look that a chunk for a group needs, whose groups above are these.
    pub(super) fn of_chunk(
        header: &NetworkHeader,
        above: &'a [Guid],
        listed: &'a MemberList,
        from: Option<PortId>,
    ) -> GroupQuery<'a> {
        GroupQuery {
            group: header.destination,
            above,
            listed,
            from,
            proxies: ProxyRule::Serve,
        }
    }
}

/// A group whose members another router looks up.
#[derive(Clone, Debug)]
pub(super) struct ProxiedGroup {
    /// The name of its memberships.
    pub(super) group: Guid,
    /// The way to its router.
    pub(super) way: Branch,
}

/// The members of a group, and of groups below it.
#[derive(Debug, Default)]
pub(super) struct FoundMembers {
    pub(super) hosts: BTreeSet<Guid>,
    pub(super) proxied: Vec<ProxiedGroup>,
    /// There may be others: the name service could not be asked about a group.
    pub(super) is_partial: bool,
}

/// The memberships of a group.
struct GroupRecords {
    records: Vec<Record>,
    // There may be others.
    is_partial: bool,
}

/// A group that is still to be looked at.
struct GroupBelow {
    // The member that it is, and the name of its memberships.
    holder: Guid,
    group: Guid,
    // It, and those by which it was found.
    path: Vec<Guid>,
    // Its members are meant, whether they are listed or not.
    is_meant: bool,
}

/// The state of a look.
struct Expansion {
    found: FoundMembers,
    seen: BTreeSet<Guid>,
    left: VecDeque<GroupBelow>,
    // A name whose answer is on its way.
    pending: Option<Guid>,
    proxies: ProxyRule,
}

impl Binding {
    /// Looks up the members of a group, and those of groups that are its members.
    pub(super) fn find_members(
        &mut self,
        now: Time,
        query: GroupQuery<'_>,
        links: &Links,
        effects: &mut Effects,
    ) -> Result<FoundMembers, MembersUnknown> {
        let listed: BTreeSet<Guid> = query.listed.members().collect();
        let mut path = query.above.to_vec();
        path.push(query.group);
        let mut all = Expansion {
            found: FoundMembers::default(),
            seen: BTreeSet::from([query.group]),
            left: VecDeque::from([GroupBelow {
                holder: Guid::NONE,
                group: query.group,
                path,
                is_meant: listed.is_empty(),
            }]),
            pending: None,
            proxies: query.proxies,
        };
        while let Some(below) = all.left.pop_front() {
            let found = self.memberships(now, below.group, query.from, links, effects);
            let GroupRecords {
                records,
                is_partial,
            } = match found {
                Ok(memberships) => memberships,
                Err(unknown) if below.group == query.group => return Err(unknown),
                Err(MembersUnknown::Absent) => continue,
                Err(MembersUnknown::Busy) => {
                    all.found.is_partial = true;
                    continue;
                }
                Err(MembersUnknown::Pending(name)) => {
                    all.pending.get_or_insert(name);
                    continue;
                }
            };
            all.found.is_partial |= is_partial;
            for record in &records {
                let holder = record.holder();
                let name = match record.joins_as_group() {
                    true => Record::group_of(&holder),
                    false => holder,
                };
                let is_meant = below.is_meant || listed.contains(&name);
                if record.joins_as_group() {
                    let path = below.path.clone();
                    let group = GroupBelow {
                        holder,
                        group: name,
                        path,
                        is_meant,
                    };
                    self.note_group(now, group, &mut all, links, effects);
                } else if is_meant && all.found.hosts.len() < MAX_FOUND {
                    all.found.hosts.insert(name);
                }
            }
        }
        match all.pending {
            Some(name) => Err(MembersUnknown::Pending(name)),
            None => Ok(all.found),
        }
    }

    /// A member is a group: its router looks up the members, or this one does.
    fn note_group(
        &mut self,
        now: Time,
        mut below: GroupBelow,
        all: &mut Expansion,
        links: &Links,
        effects: &mut Effects,
    ) {
        let holder = below.holder;
        if below.path.contains(&below.group) {
            effects.counters.groups_in_themselves += 1;
            return;
        }
        below.path.push(below.group);
        if below.path.len() > MAX_GROUPS_ABOVE || all.seen.len() >= MAX_GROUPS {
            effects.counters.groups_too_deep += 1;
            return;
        }
        if !all.seen.insert(below.group) {
            return;
        }
        if all.proxies == ProxyRule::Serve && !self.attachments.contains(&holder) {
            match self.names.look_up(now, holder) {
                Lookup::Pending => {
                    all.pending.get_or_insert(holder);
                    return;
                }
                Lookup::Resolved(answer) => {
                    let hops = self.routes.towards_binding(&answer, links);
                    let way = hops.and_then(|hops| hops.best().copied());
                    if let Some(way) = way.filter(|way| way.address != Some(self.own)) {
                        if below.is_meant {
                            let group = below.group;
                            all.found.proxied.push(ProxiedGroup { group, way });
                        }
                        return;
                    }
                }
                Lookup::NotFound | Lookup::Busy => {}
            }
        }
        all.left.push_back(below);
    }

    /// Returns the memberships of a group, by their name.
    fn memberships(
        &mut self,
        now: Time,
        group: Guid,
        from: Option<PortId>,
        links: &Links,
        effects: &mut Effects,
    ) -> Result<GroupRecords, MembersUnknown> {
        let own = self.names.look_up_own(now, &group).providers;
        if !self.names.may_ask(now, &group, from) {
            effects.counters.lookups_deferred += 1;
            return Err(MembersUnknown::Busy);
        }
        // While something is sent to it, those that join and leave are known at once.
        let at = from.map(|from| links.source_of(from));
        if let Some(idle_at) = self.names.follow(now, at, group) {
            effects.push(Action::SetEarlier(Timer::Followed, idle_at));
        }
        let (records, is_partial) = match self.names.look_up(now, group) {
            Lookup::Resolved(answer) => (answer.providers, false),
            Lookup::Pending => return Err(MembersUnknown::Pending(group)),
            Lookup::NotFound => (Vec::new(), false),
            Lookup::Busy => (Vec::new(), true),
        };
        let mut by_holder: BTreeMap<Guid, Record> = BTreeMap::new();
        let memberships = own.into_iter().chain(records);
        for record in memberships.filter(|record| record.kind() == Kind::Membership) {
            by_holder.entry(record.holder()).or_insert(record);
        }
        match by_holder.is_empty() {
            true if is_partial => Err(MembersUnknown::Busy),
            true => Err(MembersUnknown::Absent),
            false => Ok(GroupRecords {
                records: by_holder.into_values().collect(),
                is_partial,
            }),
        }
    }
}
