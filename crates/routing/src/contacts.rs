//! Known contacts: a plan in the text form of ION, and the earliest way over it.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap};

use whimbrel_core::Guid;

/// The longest plan, in bytes.
pub const MAX_PLAN: usize = 4 << 20;
/// Maximum of contacts and of ranges in a plan.
const MAX_CONTACTS: usize = 16_384;
/// Maximum of nodes in a plan.
const MAX_NODES: usize = 1_024;
/// The chunk whose way over the plan is sought, in bytes.
const CHUNK: u64 = 64 << 10;
/// Times are below this: the year 9999, in milliseconds.
const MAX_MS: u64 = 253_402_300_800_000;

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ContactPlanError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
}

/// A time in which one node can send to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contact {
    from: Guid,
    to: Guid,
    // Unix times in milliseconds.
    start: u64,
    end: u64,
    // Octets per second.
    rate: u64,
    // One way, in milliseconds.
    delay: u64,
}

impl Contact {
    /// Returns when a chunk that is there at a moment arrives at the other end, if it passes.
    fn arrival(&self, there: u64) -> Option<u64> {
        let leaves = there.max(self.start);
        let sent = leaves.checked_add(CHUNK * 1000 / self.rate.max(1))?;
        (sent <= self.end).then_some(sent + self.delay)
    }
}

/// When two nodes can talk. The text form is that of `ionrc(5)`: `a contact +0 +60 1 2 100000`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContactPlan {
    // By sender, in the order of their starts.
    by_sender: BTreeMap<Guid, Vec<Contact>>,
    // The moments at which a contact starts or ends, in order.
    changes: Vec<u64>,
}

/// The earliest way to a node over a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earliest {
    /// When a chunk arrives there, Unix time in milliseconds.
    pub arrives: u64,
    /// When it leaves here, ...
    pub leaves: u64,
    /// ... and to which node.
    pub next: Guid,
}

/// A plan while it is read.
#[derive(Default)]
struct PlanDraft {
    nodes: BTreeMap<u64, Guid>,
    reference: u64,
    contacts: Vec<(u64, u64, Contact)>,
    ranges: Vec<(u64, u64, Contact)>,
}

impl ContactPlan {
    /// Reads a plan. Times such as `+60` count from `reference_ms`, or from the last line `@ TIME`. A comment
    /// `# node 1 NAME` says which router a number stands for.
    pub fn parse(text: &str, reference_ms: u64) -> Result<ContactPlan, ContactPlanError> {
        let mut draft = PlanDraft {
            reference: reference_ms,
            ..PlanDraft::default()
        };
        if text.len() > MAX_PLAN {
            let reason = format!("the plan has more than {MAX_PLAN} bytes");
            return Err(ContactPlanError { line: 1, reason });
        }
        for (line, text) in (1..).zip(text.lines()) {
            draft
                .read(text)
                .map_err(|reason| ContactPlanError { line, reason })?;
        }
        draft.finish()
    }

    /// Returns the number of contacts.
    pub fn len(&self) -> usize {
        self.by_sender.values().map(Vec::len).sum()
    }

    /// Returns true if there is no contact.
    pub fn is_empty(&self) -> bool {
        self.by_sender.is_empty()
    }

    /// Returns the next moment after this one at which a contact starts or ends.
    pub fn next_change(&self, now_ms: u64) -> Option<u64> {
        let at = self.changes.partition_point(|at| *at <= now_ms);
        self.changes.get(at).copied()
    }

    /// Returns the earliest ways of a chunk that is at `own` now, by its destinations.
    pub fn earliest(&self, own: &Guid, now_ms: u64) -> BTreeMap<Guid, Earliest> {
        let mut found: BTreeMap<Guid, Earliest> = BTreeMap::new();
        let mut next = BinaryHeap::from([Reverse((now_ms, *own))]);
        while let Some(Reverse((there, at))) = next.pop() {
            if found.get(&at).is_some_and(|known| known.arrives < there) {
                continue;
            }
            for contact in self.by_sender.get(&at).into_iter().flatten() {
                let Some(arrives) = contact.arrival(there).filter(|_| contact.to != *own) else {
                    continue;
                };
                let is_better = found
                    .get(&contact.to)
                    .is_none_or(|known| arrives < known.arrives);
                if is_better {
                    let first = found.get(&at).copied();
                    let way = first.map_or(
                        Earliest {
                            arrives,
                            leaves: there.max(contact.start),
                            next: contact.to,
                        },
                        |first| Earliest { arrives, ..first },
                    );
                    found.insert(contact.to, way);
                    next.push(Reverse((arrives, contact.to)));
                }
            }
        }
        found
    }
}

impl PlanDraft {
    fn read(&mut self, text: &str) -> Result<(), String> {
        let words: Vec<&str> = text.split_whitespace().take(9).collect();
        match words.as_slice() {
            ["#", "node", number, name, ..] => {
                let name = name
                    .parse()
                    .map_err(|_| format!("'{name}' is not a router's name"))?;
                if self.nodes.len() >= MAX_NODES {
                    return Err(format!("more than {MAX_NODES} nodes"));
                }
                self.nodes.insert(count(number)?, name);
                Ok(())
            }
            ["@", time, ..] => {
                self.reference = self.time(time)?;
                Ok(())
            }
            ["a", "contact", start, end, from, to, rate, ..] => {
                let contact = self.contact([start, end], count(rate)?, 0)?;
                if contact.rate == 0 {
                    return Err(String::from(
                        "a contact has a rate above 0, in bytes per second",
                    ));
                }
                full(&self.contacts)?;
                self.contacts.push((count(from)?, count(to)?, contact));
                Ok(())
            }
            ["a", "range", start, end, from, to, seconds, ..] => {
                let delay = count(seconds)?.saturating_mul(1000).min(MAX_MS);
                let range = self.contact([start, end], 0, delay)?;
                full(&self.ranges)?;
                self.ranges.push((count(from)?, count(to)?, range));
                Ok(())
            }
            ["a", what, ..] => Err(format!(
                "'a {what}' is neither 'a contact' nor 'a range' with its five values"
            )),
            ["d", ..] => Err(String::from("contacts are not deleted: leave the line out")),
            // The other commands of ionrc are about the node that reads it.
            _ => Ok(()),
        }
    }

    fn contact(&self, times: [&str; 2], rate: u64, delay: u64) -> Result<Contact, String> {
        let [start, end] = [self.time(times[0])?, self.time(times[1])?];
        if start >= end {
            return Err(String::from("it ends before it starts"));
        }
        Ok(Contact {
            from: Guid::NONE,
            to: Guid::NONE,
            start,
            end,
            rate,
            delay,
        })
    }

    /// Reads `+60` or `2026/11/29-06:00:00`, as Unix time in milliseconds.
    fn time(&self, text: &str) -> Result<u64, String> {
        let refused = || format!("'{text}' is no time: write +SECONDS or YYYY/MM/DD-HH:MM:SS");
        let at = match text.strip_prefix('+') {
            Some(seconds) => {
                let seconds: u64 = seconds.parse().map_err(|_| refused())?;
                self.reference.checked_add(seconds.saturating_mul(1000))
            }
            None => unix_ms(text),
        };
        at.filter(|at| *at < MAX_MS).ok_or_else(refused)
    }

    fn finish(self) -> Result<ContactPlan, ContactPlanError> {
        let mut plan = ContactPlan::default();
        let name = |number: &u64| {
            self.nodes
                .get(number)
                .copied()
                .ok_or_else(|| ContactPlanError {
                    line: 1,
                    reason: format!("node {number} has no name: add a line '# node {number} NAME'"),
                })
        };
        let mut ranges: BTreeMap<(u64, u64), Vec<&Contact>> = BTreeMap::new();
        for (from, to, range) in &self.ranges {
            let ends = (*from.min(to), *from.max(to));
            ranges.entry(ends).or_default().push(range);
        }
        for (from, to, contact) in &self.contacts {
            let ends = (*from.min(to), *from.max(to));
            let of_pair = ranges.get(&ends).into_iter().flatten();
            let mut of_time =
                of_pair.filter(|it| it.start <= contact.start && contact.start < it.end);
            let delay = of_time.next().map_or(0, |it| it.delay);
            let contact = Contact {
                from: name(from)?,
                to: name(to)?,
                delay,
                ..*contact
            };
            plan.changes.extend([contact.start, contact.end]);
            plan.by_sender
                .entry(contact.from)
                .or_default()
                .push(contact);
        }
        for contacts in plan.by_sender.values_mut() {
            contacts.sort_by_key(|it| (it.start, it.end, it.to));
        }
        plan.changes.sort_unstable();
        plan.changes.dedup();
        Ok(plan)
    }
}

fn full<T>(lines: &[T]) -> Result<(), String> {
    match lines.len() < MAX_CONTACTS {
        true => Ok(()),
        false => Err(format!("more than {MAX_CONTACTS} contacts or ranges")),
    }
}

fn count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is not a whole number"))
}

/// Returns the Unix time of `YYYY/MM/DD-HH:MM:SS`, in milliseconds.
fn unix_ms(text: &str) -> Option<u64> {
    let (date, time) = text.split_once('-')?;
    let three = |text: &str, by: char| -> Option<[u64; 3]> {
        let mut parts = text.split(by).map(|part| part.parse::<u64>().ok());
        let three = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(three)
    };
    let ([year, month, day], [hour, minute, second]) = (three(date, '/')?, three(time, ':')?);
    let is_date =
        (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days from civil: years begin in March, so that the leap day is the last one.
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // The first of January 1970.
    let days = days.checked_sub(719_468)?;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1000)
}

/// Returns the time from now to a moment of a plan.
pub(crate) fn until(at_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis(at_ms.saturating_sub(now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_000_000_000;

    fn name(number: u8) -> Guid {
        Guid([number; 32])
    }

    fn plan(lines: &str) -> ContactPlan {
        let names: String = (1..6)
            .map(|number| format!("# node {number} {}\n", name(number)))
            .collect();
        ContactPlan::parse(&(names + lines), NOW).expect("a plan")
    }

    #[test]
    fn a_date_is_a_unix_time() {
        assert_eq!(unix_ms("1970/01/01-00:00:00"), Some(0));
        assert_eq!(unix_ms("2000/02/29-12:00:01"), Some(951_825_601_000));
        assert_eq!(unix_ms("2026/11/29-06:00:00"), Some(1_795_932_000_000));
        for odd in [
            "2026/13/01-00:00:00",
            "2026/11/29",
            "x",
            "1969/12/31-23:59:59",
        ] {
            assert_eq!(unix_ms(odd), None);
        }
    }

    #[test]
    fn the_earliest_way_may_wait_and_take_more_hops() {
        // 64 KiB take 65.536 s at 1,000 octets per second, and 0.655 s at 100,000.
        let plan = plan(
            "1 1 ''\nm horizon +0\n\
             a contact +0 +600 1 3 1000\na contact +10 +20 1 2 100000\na contact +30 +40 2 3 100000\n\
             a range +0 +600 1 2 2\na contact +50 +60 3 4 100000\n",
        );
        let found = plan.earliest(&name(1), NOW);
        let way = |to: u8| {
            found
                .get(&name(to))
                .map(|it| (it.arrives - NOW, it.leaves - NOW, it.next))
        };
        assert_eq!(way(2), Some((12_655, 10_000, name(2))));
        assert_eq!(way(3), Some((30_655, 10_000, name(2))));
        assert_eq!(way(4), Some((50_655, 10_000, name(2))));
        assert_eq!(way(5), None);
        // That bus has left: the thin way is the next best one, and too late for node 4.
        let found = plan.earliest(&name(1), NOW + 21_000);
        let way = found.get(&name(3)).expect("a way");
        assert_eq!((way.arrives - NOW, way.next), (86_536, name(3)));
        assert_eq!(found.get(&name(4)), None);
        assert_eq!(plan.next_change(NOW + 21_000), Some(NOW + 30_000));
    }

    #[test]
    fn faults_name_their_line() {
        for (text, said) in [
            ("a contact +0 +60 1 2", "line 1: 'a contact'"),
            ("\na contact +60 +0 1 2 9", "line 2: it ends before"),
            ("a contact +0 +60 1 2 0", "above 0"),
            ("a contact soon +60 1 2 9", "'soon' is no time"),
            ("a contact +0 +60 1 2 9", "node 1 has no name"),
            ("# node 1 abc", "'abc' is not a router's name"),
        ] {
            let fault = ContactPlan::parse(text, NOW).expect_err(text).to_string();
            assert!(fault.contains(said), "{fault}");
        }
    }

    proptest! {
        /// The model tries every sequence of contacts.
        #[test]
        fn the_earliest_way_is_that_of_a_search(
            contacts in prop::collection::vec((0u64..50, 1u64..60, 1u8..6, 1u8..6, 1u64..200_000), 0..12),
        ) {
            let lines: String = contacts
                .iter()
                .filter(|it| it.2 != it.3)
                .map(|(start, lasts, from, to, rate)| {
                    format!("a contact +{start} +{} {from} {to} {rate}\n", start + lasts)
                })
                .collect();
            let plan = plan(&lines);
            let found = plan.earliest(&name(1), NOW);
            let mut best: BTreeMap<Guid, u64> = BTreeMap::from([(name(1), NOW)]);
            for _ in 0..6 {
                for contact in plan.by_sender.values().flatten() {
                    if let Some(there) = best.get(&contact.from).copied()
                        && let Some(arrives) = contact.arrival(there)
                    {
                        let known = best.entry(contact.to).or_insert(u64::MAX);
                        *known = arrives.min(*known);
                    }
                }
            }
            best.remove(&name(1));
            let found: BTreeMap<Guid, u64> = found.iter().map(|(to, it)| (*to, it.arrives)).collect();
            prop_assert_eq!(found, best);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}", line in "(a contact|a range|@|# node)( [+0-9/:-]{1,12}){1,6}") {
            let _ = ContactPlan::parse(&text, NOW);
            let _ = ContactPlan::parse(&line, NOW);
        }
    }
}
