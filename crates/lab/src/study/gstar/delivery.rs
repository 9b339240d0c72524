//! Messages over contacts that come and go, by several protocols.

use whimbrel_core::SeededRng;

use super::super::Progress;
use super::super::result::mean;
use super::parameters::Contacts;
use crate::dtn::{
    self, ContactTerms, DeliveryLog, Direct, DtnProtocol, Epidemic, Gstar, Prophet, SprayAndWait,
};

/// Names of protocols.
pub(super) const GSTAR: &str = "Whimbrel, one copy";
pub(super) const DIRECT: &str = "direct";
pub(super) const EPIDEMIC: &str = "epidemic";
const SPRAY: &str = "spray and wait";
const PROPHET: &str = "PRoPHET";
const POSSIBLE: &str = "possible at best";

/// What a protocol did, as the mean of all runs.
pub(super) struct ProtocolResult {
    pub(super) name: String,
    /// The share of messages that arrived.
    pub(super) share: f64,
    /// Their delay in seconds: the median, and that of 95 %.
    pub(super) median: f64,
    pub(super) late: f64,
    /// Messages passed from node to node, for each that arrived.
    pub(super) passes: f64,
    /// Copies that full nodes dropped.
    pub(super) dropped: f64,
}

impl ProtocolResult {
    fn of(name: &str, runs: &[DeliveryLog]) -> ProtocolResult {
        let mean_of = |value: &dyn Fn(&DeliveryLog) -> f64| mean(runs.iter().map(value));
        let passes = |run: &DeliveryLog| {
            let arrived = run.delays.iter().flatten().count();
            run.passed as f64 / arrived.max(1) as f64
        };
        ProtocolResult {
            name: name.to_owned(),
            share: mean_of(&DeliveryLog::share),
            median: mean_of(&|run| run.percentile(50.0)),
            late: mean_of(&|run| run.percentile(95.0)),
            passes: mean_of(&passes),
            dropped: mean_of(&|run| run.dropped as f64),
        }
    }
}

/// Runs all protocols on the same contacts and messages.
pub(super) fn run(
    contacts: &Contacts,
    seed: u64,
    runs: u32,
    progress: Progress<'_>,
) -> Result<Vec<ProtocolResult>, String> {
    let names = [DIRECT, GSTAR, SPRAY, PROPHET, EPIDEMIC];
    let mut found: Vec<Vec<DeliveryLog>> = vec![Vec::new(); names.len()];
    let mut possible = Vec::new();
    let (nodes, rate) = (contacts.drive.nodes, contacts.rate.0 / 8);
    let all = names.len() * runs as usize;
    for run in 0..runs {
        let seed = seed.wrapping_add(run.into());
        let mut rng = SeededRng::stream(seed, "vehicles");
        let terms = ContactTerms {
            nodes,
            contacts: contacts.drive.encounters(&mut rng)?,
            messages: ContactTerms::messages(nodes, contacts.messages, contacts.within, seed),
            size: contacts.size.0,
            rate,
            buffer: contacts.buffer.0,
            lifetime: contacts.lifetime,
        };
        for (number, name) in names.iter().enumerate() {
            progress(run as usize * names.len() + number, all, name);
            let mut protocol: Box<dyn DtnProtocol> = match *name {
                DIRECT => Box::new(Direct),
                GSTAR => Box::new(Gstar::new(nodes, rate)),
                SPRAY => Box::new(SprayAndWait::new(contacts.copies)),
                PROPHET => Box::new(Prophet::new(nodes)),
                _ => Box::new(Epidemic),
            };
            found[number].push(dtn::run(&terms, protocol.as_mut()));
        }
        possible.push(DeliveryLog {
            delays: terms.possible(),
            ..DeliveryLog::default()
        });
    }
    let found = names.iter().zip(&found);
    let mut all: Vec<ProtocolResult> = found
        .map(|(name, runs)| ProtocolResult::of(name, runs))
        .collect();
    all.push(ProtocolResult::of(POSSIBLE, &possible));
    Ok(all)
}
