//! Which node has which slots.

use redis::Value;

use crate::keys::SLOTS;

/// Host and port of a node.
pub(crate) type NodeAddress = (String, u16);

/// The primaries of a cluster, by slot, as one of its nodes sees them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Topology {
    pub(crate) primaries: Vec<Primary>,
    /// Addresses of the replicas.
    pub(crate) replicas: Vec<NodeAddress>,
    /// For each slot the index of its primary.
    by_slot: Vec<Option<u16>>,
    /// The epoch of the view: the greater the newer.
    pub(crate) epoch: u64,
    /// True if the node considers the cluster as working.
    pub(crate) works: bool,
}

/// A primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Primary {
    /// Its permanent name.
    pub(crate) id: String,
    pub(crate) address: NodeAddress,
}

impl Topology {
    /// Reads the answers to `CLUSTER SLOTS` and `CLUSTER INFO` of the node at `asked`.
    pub(crate) fn read(slots: &Value, info: &str, asked: &NodeAddress) -> Option<Topology> {
        let mut topology = Topology {
            by_slot: vec![None; SLOTS],
            works: said(info, "cluster_state") == Some("ok"),
            epoch: said(info, "cluster_current_epoch")?.parse().ok()?,
            ..Topology::default()
        };
        for range in list(slots)? {
            let [first, last, nodes @ ..] = &list(range)?[..] else {
                return None;
            };
            let mut nodes = nodes.iter().filter_map(|node| read_node(node, asked));
            let primary = nodes.next()?;
            topology.replicas.extend(nodes.map(|node| node.address));
            let known = topology.primaries.iter();
            let index = known.clone().position(|it| it.id == primary.id);
            let index = index.unwrap_or(topology.primaries.len());
            if index == topology.primaries.len() {
                topology.primaries.push(primary);
            }
            let (first, last) = (number(first)?, number(last)?);
            let range = topology.by_slot.get_mut(first..=last)?;
            range.fill(Some(u16::try_from(index).ok()?));
        }
        topology.replicas.sort();
        topology.replicas.dedup();
        Some(topology)
    }

    pub(crate) fn primary(&self, slot: u16) -> Option<&Primary> {
        let index = self.by_slot.get(usize::from(slot)).copied().flatten()?;
        self.primaries.get(usize::from(index))
    }

    /// Returns the slots that have another primary than in an older view.
    pub(crate) fn moved_since(&self, older: &Topology) -> Vec<u16> {
        let moved = |slot: &u16| {
            let before = older.primary(*slot);
            before.is_some_and(|before| self.primary(*slot).is_some_and(|now| now.id != before.id))
        };
        (0..SLOTS as u16).filter(moved).collect()
    }

    /// Notes that a node said where a slot has moved.
    pub(crate) fn note_moved(&mut self, slot: u16, address: NodeAddress) {
        let known = self.primaries.iter().position(|it| it.address == address);
        let index = known.unwrap_or_else(|| {
            // Its name is not known yet.
            let id = format!("{}:{}", address.0, address.1);
            self.primaries.push(Primary { id, address });
            self.primaries.len() - 1
        });
        if let Some(of) = self.by_slot.get_mut(usize::from(slot)) {
            *of = u16::try_from(index).ok();
        }
    }

    /// Returns the number of slots that no primary has.
    pub(crate) fn uncovered(&self) -> usize {
        self.by_slot.iter().filter(|it| it.is_none()).count()
    }
}

fn read_node(node: &Value, asked: &NodeAddress) -> Option<Primary> {
    let [host, port, id, ..] = &list(node)?[..] else {
        return None;
    };
    // A node that does not know its own address leaves it out: it is the one that was asked.
    let host = text(host).filter(|host| !host.is_empty() && host != "?");
    Some(Primary {
        id: text(id)?,
        address: (
            host.unwrap_or_else(|| asked.0.clone()),
            u16::try_from(number(port)?).ok()?,
        ),
    })
}

/// Reads `host:port` as nodes write it: without a host, it is that of the node that was asked.
pub(crate) fn node_of(text: &str, asked: &NodeAddress) -> Option<NodeAddress> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    let host = match host {
        "" | "?" => asked.0.clone(),
        host => host.to_owned(),
    };
    Some((host, port.parse().ok()?))
}

/// Returns a line of an answer in lines of `name:value`.
pub(crate) fn said<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(of, _)| *of == name)
        .map(|(_, value)| value.trim())
}

fn list(value: &Value) -> Option<&Vec<Value>> {
    match value {
        Value::Array(list) => Some(list),
        _ => None,
    }
}

fn number(value: &Value) -> Option<usize> {
    match value {
        Value::Int(number) => usize::try_from(*number).ok(),
        _ => None,
    }
}

pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "cluster_state:ok\r\ncluster_current_epoch:7\r\n";

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, nodes: &[(&str, i64, &str)]) -> Value {
        let nodes = nodes.iter().map(|(host, port, id)| {
            Value::Array(vec![
                bulk(host),
                Value::Int(*port),
                bulk(id),
                Value::Array(vec![]),
            ])
        });
        let numbers = [Value::Int(first), Value::Int(last)];
        Value::Array(numbers.into_iter().chain(nodes).collect())
    }

    fn view(second: &str) -> Topology {
        let slots = Value::Array(vec![
            range(0, 8000, &[("", 7000, "one"), ("10.0.0.2", 7003, "copy")]),
            range(8001, 16_383, &[("10.0.0.3", 7001, second)]),
        ]);
        let asked = ("seed".to_owned(), 7000);
        Topology::read(&slots, INFO, &asked).unwrap_or_else(|| panic!("not read"))
    }

    #[test]
    fn the_primaries_of_slots_are_known_and_a_failover_is_noticed() {
        let (before, after) = (view("two"), view("three"));
        let one = before.primary(8000).map(|it| it.address.clone());
        assert_eq!(one, Some(("seed".to_owned(), 7000)));
        assert_eq!(
            (before.epoch, before.works, before.uncovered()),
            (7, true, 0)
        );
        assert_eq!(before.replicas, [("10.0.0.2".to_owned(), 7003)]);
        assert_eq!(before.moved_since(&before), []);
        let moved = after.moved_since(&before);
        assert_eq!((moved.len(), moved[0]), (16_384 - 8001, 8001));
        let mut told = before.clone();
        told.note_moved(9, ("10.0.0.9".to_owned(), 1));
        assert_eq!(told.moved_since(&before), [9]);
    }

    #[test]
    fn what_is_no_topology_is_not_read() {
        let asked = ("seed".to_owned(), 1);
        let too_far = Value::Array(vec![range(0, 20_000, &[("a", 1, "one")])]);
        for slots in [Value::Nil, Value::Array(vec![Value::Int(1)]), too_far] {
            assert_eq!(Topology::read(&slots, INFO, &asked), None);
        }
        assert_eq!(Topology::read(&Value::Array(vec![]), "", &asked), None);
    }
}
