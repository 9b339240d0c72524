//! Attacks on real daemons: their cost, and the harm to honest users.
//!
//! A target runs a router of both planes. An attacker and an honest host are beside it, each on a
//! wire of its own. What the honest host gets is measured before an attack, during it, and two
//! seconds after its end.
//!
//! All of them share the processors of one machine, and a flood takes its part of these wherever it
//! goes. So floods of strangers of the native plane go to a socket that nobody reads first: what is left of the
//! rate then is what the router can keep at best. Or the honest host's wire has a rate, as a card has
//! one, so that its transfers do not need all of the processors.

mod arena;
mod honest;
mod native;
mod ndn;
mod proven;
mod socket;

use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;

use crate::LabError;
use arena::Arena;
use honest::Honest;

/// The plane of the router that an attack is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plane {
    /// Hosts and routers of MobilityFirst.
    Native,
    /// NDN.
    Ndn,
}

/// An attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// As on the command line.
    pub name: &'static str,
    /// What is done.
    pub what: &'static str,
    /// What it is done to.
    pub plane: Plane,
    /// True if the attacker proves a name first.
    pub is_proven: bool,
    run: fn(&Assault<'_>) -> Result<Sent, LabError>,
}

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    native::REFLECTOR,
    native::CALLS,
    native::SESSIONS,
    proven::REQUESTS,
    proven::SOURCES,
    proven::ATTACHMENTS,
    proven::REPETITIONS,
    proven::BEGINNINGS,
    ndn::FORGED_SOURCES,
    ndn::IDLE_STREAMS,
    ndn::SLOW_READERS,
    ndn::LARGE_INTERESTS,
    ndn::WEB_PAGE,
];

/// Returns the attack of that name.
pub fn find(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

/// How to run attacks.
#[derive(Clone, Debug)]
pub struct AttackOptions {
    /// The program whose daemons are attacked, and which the honest host uses.
    pub program: PathBuf,
    /// How long each attack lasts.
    pub lasts: Duration,
    /// The most that an attacker sends, bit/s; one with a proven name no more than [`PROVEN_RATE`].
    pub rate: u64,
    /// The rate of the honest host's wire in each direction, bit/s; `None`: as much as the
    /// processors carry.
    pub wire: Option<u64>,
}

/// An attack under way.
struct Assault<'a> {
    arena: &'a Arena,
    rate: u64,
    end: std::time::Instant,
    /// Where its datagrams go instead of to the router.
    elsewhere: Option<SocketAddr>,
}

/// The attacker's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Packets, or connections.
    pub packets: u64,
    /// Their octets, without headers of IP and below.
    pub octets: u64,
    /// Octets that came back.
    pub drawn: u64,
    /// True if the router did what it must not do, whatever honest users notice of it.
    pub obeyed: bool,
}

/// What honest users and the router's memory were like at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Of a transfer over MobilityFirst from its first data on, bit/s; of NDN, exchanges a second.
    pub rate: f64,
    /// Newcomers that got what they asked for within a second and a half, the start of a program
    /// included, of [`NEWCOMERS`].
    pub newcomers: u32,
    /// How long those took, the median, milliseconds; `None` if there were none.
    pub entry_ms: Option<f64>,
    /// Memory of the router, octets.
    pub memory: u64,
}

/// The most that an attacker with a proven name sends, bit/s.
pub const PROVEN_RATE: u64 = 10_000_000;
/// Newcomers in each sample.
pub const NEWCOMERS: u32 = 3;
/// Rates go down by no more than this part during an attack, and memory grows by no more than this:
/// the content store and the queues of all faces, 64 MiB each, and some.
const KEPT: f64 = 0.8;
const GROWTH: u64 = 160 << 20;
/// All is as before so long after the end of an attack.
const RECOVERY: Duration = Duration::from_secs(2);

/// The outcome of one attack.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The attack.
    pub name: &'static str,
    /// What is done.
    pub what: &'static str,
    /// The plane.
    pub plane: Plane,
    /// What the attacker sent and got.
    pub sent: Sent,
    /// Before, during and after it.
    pub samples: [Sample; 3],
    /// The rate while the same goes to a socket of the target that nobody reads; floods of strangers of
    /// the native plane alone have it.
    pub elsewhere: Option<f64>,
    /// The harm beyond what is accepted; empty if there is none.
    pub harm: Vec<String>,
}

/// Runs an attack against fresh daemons.
pub fn run(attack: &Attack, options: &AttackOptions) -> Result<Finding, LabError> {
    let arena = Arena::build(options, attack.plane)?;
    let honest = Honest::new(&arena, attack.plane, options.lasts);
    let before = honest.sample()?;
    let assail = |elsewhere| assail(attack, options, &arena, &honest, elsewhere);
    let elsewhere = match attack.plane {
        Plane::Native if !attack.is_proven => {
            let sink = arena.sink()?;
            let (_, sample) = assail(Some(sink.address))?;
            drop(sink);
            std::thread::sleep(RECOVERY);
            Some(sample.rate)
        }
        _ => None,
    };
    let (sent, during) = assail(None)?;
    std::thread::sleep(RECOVERY);
    let samples = [before, during, honest.sample()?];
    Ok(Finding {
        name: attack.name,
        what: attack.what,
        plane: attack.plane,
        sent,
        samples,
        elsewhere,
        harm: harm(attack.is_proven, &sent, &samples, elsewhere),
    })
}

/// Runs an attack once, and says what it was like for honest users.
fn assail(
    attack: &Attack,
    options: &AttackOptions,
    arena: &Arena,
    honest: &Honest<'_>,
    elsewhere: Option<SocketAddr>,
) -> Result<(Sent, Sample), LabError> {
    let end = std::time::Instant::now() + options.lasts;
    let (sent, during) = std::thread::scope(|scope| {
        let assault = Assault {
            arena,
            rate: match attack.is_proven {
                true => options.rate.min(PROVEN_RATE),
                false => options.rate,
            },
            end,
            elsewhere,
        };
        let attacker = scope.spawn(move || (attack.run)(&assault));
        // What it does at once is done.
        std::thread::sleep(Duration::from_millis(500));
        let during = honest.sample();
        let sent = attacker
            .join()
            .unwrap_or_else(|_| Err(LabError::attacker()));
        (sent, during)
    });
    Ok((sent?, during?))
}

fn harm(
    is_proven: bool,
    sent: &Sent,
    [before, during, after]: &[Sample; 3],
    elsewhere: Option<f64>,
) -> Vec<String> {
    let mut harm = Vec::new();
    // Who has proven its address draws on nobody else.
    if sent.drawn > sent.octets && !is_proven {
        harm.push(format!("{} octets drew {}", sent.octets, sent.drawn));
    }
    if sent.obeyed {
        harm.push(String::from("the router obeyed"));
    }
    for (when, sample) in [("during", during), ("after", after)] {
        if sample.rate < KEPT * before.rate {
            let part = |of: f64| 100.0 * sample.rate / of.max(f64::MIN_POSITIVE);
            let mut text = format!("{:.0} % of the rate {when} it", part(before.rate));
            if let Some(rate) = elsewhere.filter(|_| when == "during") {
                let part = part(rate);
                text +=
                    &format!(", {part:.0} % of what a flood to a socket that nobody reads leaves");
            }
            harm.push(text);
        }
        if sample.newcomers < NEWCOMERS {
            let (out, all) = (NEWCOMERS - sample.newcomers, NEWCOMERS);
            harm.push(format!("{out} of {all} newcomers do not get in {when} it"));
        }
        if sample.memory > before.memory + GROWTH {
            let more = (sample.memory - before.memory) >> 20;
            harm.push(format!("{more} MiB more memory {when} it"));
        }
    }
    harm
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, newcomers: u32, memory: u64) -> Sample {
        Sample {
            rate,
            newcomers,
            entry_ms: None,
            memory,
        }
    }

    #[test]
    fn each_kind_of_harm_is_named() {
        let before = sample(100.0, NEWCOMERS, 1 << 20);
        let none = harm(false, &Sent::default(), &[before; 3], None);
        assert!(none.is_empty(), "{none:?}");
        let sent = Sent {
            packets: 1,
            octets: 1,
            drawn: 2,
            obeyed: true,
        };
        let during = sample(79.0, NEWCOMERS, 1 << 20);
        let after = sample(100.0, 0, 1 << 30);
        let all = harm(false, &sent, &[before, during, after], Some(100.0));
        assert_eq!(
            all,
            [
                "1 octets drew 2",
                "the router obeyed",
                "79 % of the rate during it, 79 % of what a flood to a socket that nobody reads leaves",
                "3 of 3 newcomers do not get in after it",
                "1023 MiB more memory after it",
            ]
        );
        let proven = harm(true, &sent, &[before; 3], None);
        assert_eq!(proven, ["the router obeyed"]);
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> = ATTACKS.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), ATTACKS.len());
        assert!(names.iter().all(|name| find(name).is_some()));
    }
}
