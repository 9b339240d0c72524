//! The parameters of the study, `studies/gnrs-scale/scenario.toml`.

use serde::Deserialize;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct NameServiceParameters {
    /// What it is about.
    pub(super) title: String,
    pub(super) internet: InternetModel,
    pub(super) placement: PlacementModel,
    pub(super) demand: DemandModel,
    pub(super) rates: RateTrials,
    pub(super) failover: FailoverTrial,
}

/// Networks and the delays between them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InternetModel {
    pub(super) networks: usize,
    /// Links between networks, all together.
    pub(super) links: usize,
    /// Length of a way, as a multiple of the distance of its ends.
    pub(super) detour: f64,
    /// Delay of each link between networks besides the distance, ms.
    pub(super) link_ms: f64,
    /// Mean delay within a network, ms; exponentially distributed.
    pub(super) inside_ms: f64,
    pub(super) region: Vec<Region>,
}

/// A part of the world.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Region {
    /// For readers of the file.
    #[serde(rename = "name")]
    pub(super) _name: String,
    /// Degrees.
    pub(super) latitude: f64,
    pub(super) longitude: f64,
    pub(super) radius_km: f64,
    /// Of all networks, in any unit.
    pub(super) share: f64,
}

/// Look-ups of any name from any network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlacementModel {
    /// Networks that ask, drawn in proportion to their links.
    pub(super) askers: usize,
    /// Names that each of them asks for.
    pub(super) names: usize,
    pub(super) copies: Vec<usize>,
}

/// Look-ups that come from where a name is of interest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DemandModel {
    pub(super) names: usize,
    pub(super) lookups: usize,
    /// Look-ups a second, all together.
    pub(super) lookups_per_s: f64,
    /// Updates for each look-up.
    pub(super) updates_per_lookup: f64,
    /// The exponent of the names' popularity (Zipf).
    pub(super) popularity: f64,
    /// The share of look-ups that come from the networks around a name's own.
    pub(super) locality: f64,
    /// The number of networks around it.
    pub(super) neighbourhood: usize,
    /// Copies by hash.
    pub(super) copies: usize,
    /// Names that a server follows at a time.
    pub(super) followed: usize,
    /// Copies by full knowledge of the demand, on average for each name: as Auspice's placement.
    pub(super) known_copies: usize,
}

/// Rates and delays of real name servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateTrials {
    pub(super) names: usize,
    /// Versions of each name.
    pub(super) versions: u64,
    /// Requests under way.
    pub(super) window: usize,
    /// Look-ups for the rate.
    pub(super) lookups: usize,
    /// Look-ups and updates, one after the other, for the latency.
    pub(super) single: usize,
    /// Numbers of primaries of the clusters.
    pub(super) primaries: Vec<usize>,
    /// Updates of watched names, and their rate.
    pub(super) watched_updates: usize,
    pub(super) watched_updates_per_s: f64,
}

/// A primary is killed under load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FailoverTrial {
    pub(super) primaries: usize,
    pub(super) names: usize,
    pub(super) updates_per_s: f64,
    /// Seconds of load before the kill, and after it.
    pub(super) before_s: f64,
    pub(super) after_s: f64,
    /// Seconds from the kill until it is counted what is missing.
    pub(super) count_after_s: f64,
}

impl NameServiceParameters {
    pub(in super::super) fn parse(text: &str) -> Result<NameServiceParameters, String> {
        let parameters: NameServiceParameters =
            toml::from_str(text).map_err(|fault| fault.to_string())?;
        parameters.check().map(|()| parameters)
    }

    fn check(&self) -> Result<(), String> {
        let (internet, demand) = (&self.internet, &self.demand);
        let most_copies = self.placement.copies.iter().max().copied().unwrap_or(0);
        let bounds = [
            (
                internet.networks >= 2 && internet.networks <= 100_000,
                "internet.networks is 2 to 100,000",
            ),
            (
                internet.links >= internet.networks && internet.links <= 20 * internet.networks,
                "internet.links is 1 to 20 for each network",
            ),
            (
                internet.region.iter().map(|it| it.share).sum::<f64>() > 0.0,
                "internet.region needs shares",
            ),
            (
                (1..=internet.networks).contains(&self.placement.askers),
                "placement.askers is 1 to the number of networks",
            ),
            (
                most_copies > 0 && most_copies <= internet.networks,
                "placement.copies is 1 to the number of networks",
            ),
            (
                (1..=internet.networks).contains(&demand.copies),
                "demand.copies is 1 to the number of networks",
            ),
            (
                demand.names > 0 && demand.lookups > 0 && demand.lookups_per_s > 0.0,
                "demand needs names and look-ups",
            ),
            (
                (1..=self.placement.askers).contains(&demand.neighbourhood),
                "demand.neighbourhood is 1 to placement.askers",
            ),
            (
                self.rates.names > 0 && self.rates.window > 0 && self.rates.single > 0,
                "rates needs names, a window and single requests",
            ),
            (
                self.rates.names <= 65_536,
                "rates.names is at most 65,536: what a name server keeps at hand",
            ),
            (
                self.failover.primaries >= 3 && self.failover.names > 0,
                "failover needs three primaries and names",
            ),
        ];
        match bounds.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err((*rule).to_owned()),
            None => Ok(()),
        }
    }
}
