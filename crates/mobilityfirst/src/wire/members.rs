//! The members of a group that a copy of a chunk is for [MFTP §3.5].

use std::collections::BTreeMap;

use whimbrel_core::Guid;

use super::{Reader, WireError};

/// Maximum of members that one copy is for; a router sends several copies where there are more.
pub const MAX_LISTED_MEMBERS: usize = 1024;
/// Maximum of networks of these.
pub const MAX_LISTED_NETWORKS: usize = 512;

/// Members that are attached at one router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembersAt {
    /// The router; [`Guid::NONE`] if the source does not know it.
    pub network: Guid,
    /// The members.
    pub members: Vec<Guid>,
}

/// The members that a chunk is still to reach, by the routers where they are attached. Each router divides
/// the list among its next hops, so that a member is named in one copy only.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemberList(Vec<MembersAt>);

impl MemberList {
    /// Returns a list of members whose networks are not known, as many as a list may have.
    pub fn unplaced(members: impl IntoIterator<Item = Guid>) -> MemberList {
        let members: Vec<Guid> = members.into_iter().take(MAX_LISTED_MEMBERS).collect();
        let all = MembersAt {
            network: Guid::NONE,
            members,
        };
        MemberList(
            vec![all]
                .into_iter()
                .filter(|at| !at.members.is_empty())
                .collect(),
        )
    }

    /// Returns the lists for these members by their networks: one, unless there are more than fit.
    pub fn of(by_network: BTreeMap<Guid, Vec<Guid>>) -> Vec<MemberList> {
        let mut lists = Vec::new();
        let mut list = MemberList::default();
        let mut room = MAX_LISTED_MEMBERS;
        for (network, members) in by_network {
            let mut left = &members[..];
            while !left.is_empty() {
                if room == 0 || list.0.len() == MAX_LISTED_NETWORKS {
                    lists.push(core::mem::take(&mut list));
                    room = MAX_LISTED_MEMBERS;
                }
                let (part, rest) = left.split_at(left.len().min(room));
                let members = part.to_vec();
                list.0.push(MembersAt { network, members });
                room -= part.len();
                left = rest;
            }
        }
        lists.push(list);
        lists.retain(|list| !list.is_empty());
        lists
    }

    /// Returns true if it names nobody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.iter().map(|at| at.members.len()).sum()
    }

    /// Returns the members by network.
    pub fn networks(&self) -> impl Iterator<Item = &MembersAt> {
        self.0.iter()
    }

    /// Returns all members.
    pub fn members(&self) -> impl Iterator<Item = Guid> {
        self.0.iter().flat_map(|at| at.members.iter().copied())
    }

    /// Returns true if each member's network is known.
    pub fn is_placed(&self) -> bool {
        self.0.iter().all(|at| !at.network.is_none())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for at in &self.0 {
            out.extend_from_slice(at.network.as_bytes());
            out.extend_from_slice(&(at.members.len() as u16).to_be_bytes());
            for member in &at.members {
                out.extend_from_slice(member.as_bytes());
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<MemberList, WireError> {
        let mut reader = Reader(bytes);
        let mut list: Vec<MembersAt> = Vec::new();
        let mut total = 0;
        while !reader.0.is_empty() {
            let network = reader.guid()?;
            let count = usize::from(reader.u16()?);
            total += count;
            let is_known = list.iter().any(|at| at.network == network);
            if count == 0
                || is_known
                || total > MAX_LISTED_MEMBERS
                || list.len() >= MAX_LISTED_NETWORKS
            {
                return Err(WireError::Invalid("members"));
            }
            let members = (0..count)
                .map(|_| reader.guid())
                .collect::<Result<_, _>>()?;
            list.push(MembersAt { network, members });
        }
        match list.is_empty() {
            true => Err(WireError::Invalid("members")),
            false => Ok(MemberList(list)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_members() -> impl Strategy<Value = MemberList> {
        prop::collection::vec((0u8..4, any::<[u8; 32]>()), 0..9).prop_map(|all| {
            let mut by_network: BTreeMap<Guid, Vec<Guid>> = BTreeMap::new();
            for (network, member) in all {
                let network = by_network.entry(Guid([network; 32])).or_default();
                network.push(Guid(member));
            }
            MemberList::of(by_network).pop().unwrap_or_default()
        })
    }

    proptest! {
        #[test]
        fn a_list_round_trips(list in any_members()) {
            let mut out = Vec::new();
            list.encode(&mut out);
            match list.is_empty() {
                true => prop_assert!(MemberList::decode(&out).is_err()),
                false => prop_assert_eq!(MemberList::decode(&out), Ok(list)),
            }
        }

        #[test]
        fn any_bytes_are_a_list_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(list) = MemberList::decode(&bytes) {
                let mut out = Vec::new();
                list.encode(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }

    #[test]
    fn lists_have_bounds_and_name_each_member_once() {
        let numbered = |number: u16| {
            let mut name = [1; 32];
            name[..2].copy_from_slice(&number.to_be_bytes());
            Guid(name)
        };
        for (networks, members, lists) in [(1, 1024, 1), (1, 1025, 2), (600, 600, 2), (3, 3000, 3)]
        {
            let mut by_network: BTreeMap<Guid, Vec<Guid>> = BTreeMap::new();
            for number in 0..members {
                let network = numbered(number % networks);
                by_network
                    .entry(network)
                    .or_default()
                    .push(numbered(number));
            }
            let all = MemberList::of(by_network);
            assert_eq!(all.len(), lists, "{networks} {members}");
            let mut named = Vec::new();
            for list in &all {
                let mut out = Vec::new();
                list.encode(&mut out);
                assert_eq!(MemberList::decode(&out).as_ref(), Ok(list));
                named.extend(list.members());
            }
            named.sort();
            named.dedup();
            assert_eq!(named.len(), usize::from(members));
        }
        let mut out = Vec::new();
        MemberList(vec![MembersAt {
            network: Guid::NONE,
            members: (0..1025).map(numbered).collect(),
        }])
        .encode(&mut out);
        assert!(MemberList::decode(&out).is_err());
        assert_eq!(MemberList::unplaced((0..2000).map(numbered)).len(), 1024);
        assert!(MemberList::unplaced([]).is_empty());
    }
}
