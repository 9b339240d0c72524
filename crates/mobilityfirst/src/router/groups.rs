//! Groups: a chunk for many hosts leaves once on each link [MFTP §3.5].
//!
//! "A dynamically formed multicast group is explicitly identified by a GUID, which can be mapped into a set of
//! individual clients' GUIDs or network addresses." The first router looks the members up, and the networks of
//! each. A copy names the members that it is for, and each router divides the list among its next hops, so that
//! no member is named in two copies. A member that is attached here gets a copy of its own; one that is away or
//! has left is sent its copy as any host, which may be stored. A member that is a group
//! ([`super::group_expansion`]) is in the list of the copy to its router, which looks up the members of that one.

use std::collections::BTreeMap;

use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::Lookup;

use super::Router;
use super::binding::{Binding, BindingOutcome};
use super::effects::Effects;
use super::group_expansion::{FoundMembers, GroupQuery, MembersUnknown, ProxyRule};
use crate::chunk::Chunk;
use crate::links::{ChunkToSend, Links};
use crate::next_hops::Spread;
use crate::wire::{
    Control, MAX_LISTED_MEMBERS, MemberList, ServiceId, TransportKind, UpperProtocol,
};

/// Look-ups of members that one look at a group causes; the others follow when an answer is there.
const MAX_LOOK_UPS: usize = 256;

/// The members that a chunk is for, by the way to them.
#[derive(Debug, Default)]
struct GroupBranches {
    // Attached here.
    here: Vec<Guid>,
    // By the port that leads to them, and their network.
    ways: BTreeMap<PortId, BTreeMap<Guid, Vec<Guid>>>,
    // No next hop to their networks answers.
    unreachable: Vec<Guid>,
    // They are attached nowhere, or not where they were said to be.
    away: Vec<Guid>,
}

impl GroupBranches {
    fn is_empty(&self) -> bool {
        let lists = [&self.here, &self.unreachable, &self.away];
        self.ways.is_empty() && lists.iter().all(|list| list.is_empty())
    }
}

impl Router {
    /// Sends a chunk to the members of its group that it lists, or to all.
    pub(super) fn forward_to_group(&mut self, now: Time, mut outgoing: ChunkToSend) {
        if !is_for_groups(&outgoing.chunk) {
            return self.effects.drop("bad-multicast");
        }
        let header = &mut outgoing.chunk.header;
        header.destination_address = Guid::NONE;
        let listed = core::mem::take(&mut header.extensions.members);
        let (links, effects) = (&self.links, &mut self.effects);
        // Networks in a list are those that another router has looked up; whoever is no router of the
        // configuration could name anybody.
        let neighbour = outgoing.from.and_then(|from| links.neighbour(from));
        let is_router = neighbour.is_some_and(|name| self.sources.believes(&name));
        let is_believed = is_router && listed.is_placed() && !listed.is_empty();
        let branches = match is_believed {
            true => Ok(self.binding.place_by_network(&listed, links)),
            false => (self.binding).place_members(now, &outgoing, &listed, links, effects),
        };
        let branches = match branches {
            Ok(branches) => branches,
            Err(unknown) => {
                outgoing.chunk.header.extensions.members = listed;
                return match unknown {
                    MembersUnknown::Pending(name) => self.binding.names.wait(name, outgoing),
                    MembersUnknown::Absent | MembersUnknown::Busy => {
                        self.store_or_give_up(now, outgoing);
                    }
                };
            }
        };
        if branches.is_empty() && !listed.is_empty() {
            // None of them is a member. Stored without a list it would be for all.
            return self.effects.drop("not-for-members");
        }
        self.send_copies(now, outgoing, branches);
    }

    /// Forwards a chunk for a group, or for a member that is attached here. Returns the copy for a member that
    /// is not, or not any more.
    pub(super) fn forward_multicast(
        &mut self,
        now: Time,
        outgoing: ChunkToSend,
    ) -> Option<ChunkToSend> {
        let Some(member) = outgoing.chunk.header.extensions.via else {
            self.forward_to_group(now, outgoing);
            return None;
        };
        let here = self.binding.attachments.hops_to(&member, &self.links);
        if here.best().is_none() {
            return Some(outgoing.for_member(member));
        }
        self.send_or_store(now, outgoing, &here);
        None
    }

    fn send_copies(&mut self, now: Time, outgoing: ChunkToSend, branches: GroupBranches) {
        let GroupBranches {
            here,
            ways,
            unreachable,
            away,
        } = branches;
        let copies = here.len() + away.len() + ways.len();
        if copies == 0 && unreachable.is_empty() {
            // A group of its own source alone: those that join later ask for it.
            return self.effects.drop("no-other-member");
        }
        self.effects.counters.group_chunks += 1;
        self.effects.counters.group_copies += copies as u64;
        let (links, attachments) = (&self.links, &self.binding.attachments);
        let with_port = |member: Guid| {
            let hops = attachments.hops_to(&member, links);
            (member, hops.best().map(|branch| branch.port))
        };
        let here: Vec<(Guid, Option<PortId>)> = here.into_iter().map(with_port).collect();
        let ports = here.iter().filter_map(|(_, port)| *port);
        let ports = ways.keys().copied().chain(ports);
        let slow = links.slow_ports(ports.collect(), &outgoing);
        for (port, networks) in ways {
            if slow.contains(&port)
                && let Some(member) = only_member(&networks)
                && self.send_apart(now, &outgoing, member)
            {
                continue;
            }
            for list in MemberList::of(networks) {
                let mut copy = outgoing.clone();
                copy.chunk.header.extensions.members = list;
                if let Err(copy) = self.links.enqueue(port, copy) {
                    self.store_or_give_up(now, copy);
                }
            }
        }
        for (member, port) in here {
            if port.is_some_and(|port| slow.contains(&port))
                && self.send_apart(now, &outgoing, member)
            {
                continue;
            }
            let mut copy = outgoing.clone();
            copy.chunk.header.extensions.via = Some(member);
            self.forward(now, copy);
        }
        for member in away {
            // A neighbour that takes it to be here is told where it is.
            if let Some(from) = outgoing.from {
                let (links, effects) = (&self.links, &mut self.effects);
                self.binding.correct(now, from, member, links, effects);
            }
            let copy = outgoing.clone().for_member(member);
            self.forward(now, copy);
        }
        if !unreachable.is_empty() {
            let mut rest = outgoing;
            rest.chunk.header.extensions.members = MemberList::unplaced(unreachable);
            self.store_or_give_up(now, rest);
        }
    }

    /// Stores a copy for a slow member alone, which leaves as its next hop has room. Returns false if the storage
    /// has none.
    fn send_apart(&mut self, now: Time, outgoing: &ChunkToSend, member: Guid) -> bool {
        let mut copy = outgoing.clone().for_member(member);
        if !self.proxy.takes(&copy.chunk) {
            return false;
        }
        let (links, effects) = (&self.links, &mut self.effects);
        match self.binding.decide(now, &mut copy, links, effects) {
            BindingOutcome::Send(hops) if hops.best().is_some() => {
                self.store_to_leave(now, copy, &hops);
            }
            outcome => self.carry_on(now, copy, outcome),
        }
        true
    }

    /// Tells a host who the members of a group are. If the answer is on its way, the host asks again.
    pub(super) fn answer_members(&mut self, now: Time, from: PortId, group: Guid) {
        let neighbour = self.links.neighbour(from);
        let (binding, links, effects) = (&mut self.binding, &self.links, &mut self.effects);
        if !neighbour.is_some_and(|name| binding.attachments.is_on(&name, from)) {
            return effects.drop("members-for-a-stranger");
        }
        let query = GroupQuery {
            group,
            above: &[],
            listed: &MemberList::default(),
            from: Some(from),
            proxies: ProxyRule::Ignore,
        };
        // A source forgets those that are not named, and calls a content delivered without them: it asks again.
        let members: Vec<Guid> = match binding.find_members(now, query, links, effects) {
            Ok(found) if found.is_partial => return,
            Ok(found) => (found.hosts.into_iter().take(MAX_LISTED_MEMBERS)).collect(),
            Err(MembersUnknown::Absent) => Vec::new(),
            Err(MembersUnknown::Pending(_) | MembersUnknown::Busy) => return,
        };
        self.tell(from, &Control::Members { group, members });
    }
}

impl Binding {
    fn answers_here(&self, member: &Guid, links: &Links) -> bool {
        self.attachments.hops_to(member, links).best().is_some()
    }

    fn place_by_network(&self, listed: &MemberList, links: &Links) -> GroupBranches {
        let mut branches = GroupBranches::default();
        for at in listed.networks() {
            if at.network == self.own || self.is_host_here(&at.network, links) {
                let members = at.members.iter();
                let (here, away): (Vec<Guid>, Vec<Guid>) =
                    members.partition(|member| self.answers_here(member, links));
                branches.here.extend(here);
                branches.away.extend(away);
                continue;
            }
            match self.routes.towards(&at.network, links).best() {
                Some(branch) => {
                    let by_network = branches.ways.entry(branch.port).or_default();
                    by_network.insert(at.network, at.members.clone());
                }
                None => branches.unreachable.extend(&at.members),
            }
        }
        branches
    }

    /// Looks up the members of a chunk's group and where they are. Who sends a list may choose among them only.
    fn place_members(
        &mut self,
        now: Time,
        outgoing: &ChunkToSend,
        listed: &MemberList,
        links: &Links,
        effects: &mut Effects,
    ) -> Result<GroupBranches, MembersUnknown> {
        let header = &outgoing.chunk.header;
        let above = header.groups_above();
        let query = GroupQuery::of_chunk(header, &above, listed, outgoing.from);
        let FoundMembers {
            hosts: mut members,
            proxied,
            is_partial: _,
        } = self.find_members(now, query, links, effects)?;
        members.remove(&header.source);
        let mut branches = GroupBranches::default();
        for below in proxied {
            let network = below.way.address.unwrap_or(Guid::NONE);
            let by_network = branches.ways.entry(below.way.port).or_default();
            by_network.entry(network).or_default().push(below.group);
        }
        let (mut asked, mut pending) = (0, None);
        for member in members {
            if self.answers_here(&member, links) {
                branches.here.push(member);
                continue;
            }
            if self.attachments.contains(&member) {
                branches.away.push(member);
                continue;
            }
            let known = self.names.remembered(now, &member);
            if known.is_none() && asked >= MAX_LOOK_UPS {
                continue;
            }
            let answer = match (self.names.look_up(now, member), known) {
                (Lookup::Resolved(answer), _) | (Lookup::Pending, Some(answer)) => answer,
                (Lookup::Pending, None) => {
                    asked += 1;
                    pending.get_or_insert(member);
                    continue;
                }
                (Lookup::NotFound | Lookup::Busy, _) => {
                    branches.away.push(member);
                    continue;
                }
            };
            let Some(hops) = self.routes.towards_binding(&answer, links) else {
                branches.away.push(member);
                continue;
            };
            let hops = self.answered_or_first(now, member, hops, Spread::Best, links, effects);
            match hops.best() {
                Some(branch) => {
                    let network = branch.address.unwrap_or(Guid::NONE);
                    let by_network = branches.ways.entry(branch.port).or_default();
                    by_network.entry(network).or_default().push(member);
                }
                None => branches.unreachable.push(member),
            }
        }
        pending.map_or(Ok(branches), |member| Err(MembersUnknown::Pending(member)))
    }
}

/// Returns the member of a list that has one alone.
fn only_member(networks: &BTreeMap<Guid, Vec<Guid>>) -> Option<Guid> {
    let mut members = networks.values().flatten();
    let first = members.next().copied();
    first.filter(|_| members.next().is_none())
}

/// Returns true for a chunk that several hosts may get.
fn is_for_groups(chunk: &Chunk) -> bool {
    let kind = chunk.message.head.first();
    let is = |meant: TransportKind| kind == Some(&(meant as u8));
    chunk.header.upper == UpperProtocol::Transport
        && !chunk.header.service.has(ServiceId::CONTENT_REQUEST)
        && (is(TransportKind::Data) || is(TransportKind::Message) || is(TransportKind::Lost))
}

impl ChunkToSend {
    /// Returns the copy for a group that was listed as a member: it is for the members of that one.
    pub(super) fn for_group_below(mut self) -> ChunkToSend {
        let header = &mut self.chunk.header;
        header.service = header.service.with(ServiceId::MULTICAST);
        self
    }

    /// Returns the copy for one member, which it reaches as any host: its flow is held back nowhere.
    pub(super) fn for_member(self, member: Guid) -> ChunkToSend {
        ChunkToSend {
            chunk: self.chunk.for_member(member),
            from: None,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use whimbrel_gnrs::{GroupAdmission, Record, Statement};

    use super::super::hostile::{keys, name, net_of_callers, register};
    use super::super::tests::{Net, SOURCE, UNIX_MS, config, data, join, port};
    use super::*;
    use crate::wire::ControlCode;

    /// Sends a chunk for a group, whose only member is at port 2, with this list.
    fn send(list: MemberList) -> Net {
        let mut net = Net::new(&[*SOURCE, name(3), name(4)]);
        let group = join(&mut net, &[2]);
        net.with_router(|it, _| {
            it.sources.disbelieve(&SOURCE);
            let attachments = &mut it.binding.attachments;
            assert!(attachments.insert(name(8), port(3), 1));
        });
        let mut chunk = data(ServiceId::MULTICAST, group, 5, 1_000);
        chunk.header.extensions.members = list;
        net.send(1, chunk);
        net.run(Duration::from_secs(1));
        net
    }

    /// The router knows one member itself; others may be with the name service, which it cannot ask.
    #[test]
    fn members_are_not_told_while_the_name_service_cannot_be_asked() {
        let silent = crate::router::RouterConfig {
            name_servers: vec![99],
            ..config()
        };
        let mut net = Net::with_config(&[*SOURCE, name(3), name(4)], silent);
        let group = join(&mut net, &[2]);
        let found = net.with_router(|it, now| {
            let is_busy = |number: u32| {
                let mut asked = name(77);
                asked.0[..4].copy_from_slice(&number.to_be_bytes());
                matches!(it.binding.names.look_up(now, asked), Lookup::Busy)
            };
            assert!((0..100_000).any(is_busy));
            let none = MemberList::default();
            let query = |group| GroupQuery {
                group,
                above: &[],
                listed: &none,
                from: None,
                proxies: ProxyRule::Ignore,
            };
            let (links, effects) = (&it.links, &mut it.effects);
            let mut find = |group| it.binding.find_members(now, query(group), links, effects);
            let unknown = find(name(9)).err();
            (find(group), unknown)
        });
        let (found, unknown) = found;
        let found = found.expect("the one at its port");
        assert_eq!((found.hosts.len(), found.is_partial), (1, true));
        assert_eq!(unknown, Some(MembersUnknown::Busy));
    }

    #[test]
    fn a_list_of_a_stranger_reaches_members_only() {
        let member = whimbrel_gnrs::KeyPair::from_secret(&[72; 32]).guid();
        let placed = |network| {
            let by_network = BTreeMap::from([(network, vec![member, name(8)])]);
            MemberList::of(by_network).remove(0)
        };
        let own = send(MemberList::default()).router().guid();
        let unplaced = MemberList::unplaced([member, name(8)]);
        for list in [
            MemberList::default(),
            unplaced,
            placed(own),
            placed(name(4)),
        ] {
            let net = send(list);
            assert_eq!(net.received(2).len(), 1);
            assert!(net.received(3).is_empty());
        }
        // Nobody is left.
        let net = send(MemberList::unplaced([name(8)]));
        assert!(net.received(2).is_empty() && net.received(3).is_empty());
    }

    /// The group has admitted another host, or somebody else has signed the admission.
    #[test]
    fn a_forged_membership_is_refused_and_counts_for_nobody() {
        let (group, attacker, member) = (keys(7), keys(1), keys(2));
        let mut net = net_of_callers(&[attacker.guid()], config());
        let others = GroupAdmission::sign(&group, Some(member.guid()), u64::MAX);
        let forged = GroupAdmission {
            group: group.public(),
            ..GroupAdmission::sign(&attacker, None, u64::MAX)
        };
        let own = GroupAdmission::sign(&group, Some(attacker.guid()), u64::MAX);
        let (invalid, registered) = (ControlCode::Invalid, ControlCode::Registered);
        for (admission, code, members) in [
            (others, invalid, 0),
            (forged, invalid, 0),
            (own, registered, 1),
        ] {
            let said = Statement::new(UNIX_MS, 60_000, Vec::new());
            let record = Record::membership(&attacker, &admission, &said).expect("a record");
            let told = register(&mut net, 1, attacker.guid(), &record);
            assert_eq!(told, Some(code));
            let found = net.with_router(|it, now| {
                let name = Record::group_of(&group.guid());
                it.binding.names.look_up_own(now, &name).providers.len()
            });
            assert_eq!(found, members);
        }
    }

    #[test]
    fn requests_and_control_messages_are_not_for_groups() {
        let mut net = send(MemberList::default());
        let group = join(&mut net, &[2]);
        let mut chunk = data(ServiceId::MULTICAST, group, 6, 1_000);
        chunk.header.service = chunk.header.service.with(ServiceId::CONTENT_REQUEST);
        net.send(1, chunk);
        net.run(Duration::from_secs(1));
        assert_eq!(net.router().effects.counters.drops["bad-multicast"], 1);
        assert_eq!(net.received(2).len(), 1);
    }
}
