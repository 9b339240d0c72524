//! Changes of the configuration that a running node applies.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use whimbrel_io::LoopHandle;
use whimbrel_ndn_packet::Name;

use crate::config::{Config, NdnPlan, Plan};
use crate::ndn::NdnRouter;

/// The keys that a running node can change.
const RELOADABLE: [&str; 4] = [
    "ndn.strategy",
    "ndn_strategy",
    "ndn.anchors",
    "ndn.content_store",
];

/// Applies a changed configuration to a running node.
#[derive(Debug)]
pub struct Reloader {
    /// The configuration in force.
    config: Config,
    ndn: Option<RunningNdn>,
}

/// An NDN router, and the strategies that its configuration has set. Strategies that commands have
/// set stay.
#[derive(Debug)]
struct RunningNdn {
    handle: LoopHandle<NdnRouter>,
    strategies: Vec<(Name, Name)>,
}

/// The changed keys, by outcome.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reloaded {
    /// They are in force.
    pub taken: Vec<String>,
    /// They take effect after a restart.
    pub restart: Vec<String>,
}

impl Reloader {
    pub(crate) fn new(
        config: Config,
        handle: Option<LoopHandle<NdnRouter>>,
        strategies: Vec<(Name, Name)>,
    ) -> Reloader {
        let ndn = handle.map(|handle| RunningNdn { handle, strategies });
        Reloader { config, ndn }
    }

    /// Applies what can be changed of a configuration and its plan. The anchors' certificates are
    /// read from their files again.
    pub fn reload(&mut self, config: &Config, plan: Plan) -> Reloaded {
        let ndn = match plan {
            Plan::Router(plan) => plan.ndn,
            Plan::Host(_) | Plan::NameServer(_) => None,
        };
        let running = self.ndn.as_mut().zip(ndn);
        let can = |key: &String| running.is_some() && RELOADABLE.contains(&key.as_str());
        let (taken, restart): (Vec<String>, Vec<String>) =
            changes(&self.config, config).into_iter().partition(can);
        if let Some((running, plan)) = running {
            let strategies = plan.forwarder.strategies.clone();
            let before = core::mem::replace(&mut running.strategies, strategies);
            let task = move |router: &mut NdnRouter, _| apply(router, plan, &before);
            let posted = running.handle.post(task);
            if let Err(error) = posted {
                tracing::error!(%error, "the NDN router did not apply the changes");
            }
            // The rest stays as it was at the start, and is reported again the next time.
            self.config.ndn.strategy.clone_from(&config.ndn.strategy);
            self.config.ndn_strategy.clone_from(&config.ndn_strategy);
            self.config.ndn.anchors.clone_from(&config.ndn.anchors);
            self.config.ndn.content_store = config.ndn.content_store;
        }
        Reloaded { taken, restart }
    }
}

fn apply(router: &mut NdnRouter, plan: NdnPlan, before: &[(Name, Name)]) {
    let forwarder = router.forwarder_mut();
    let wanted = plan.forwarder.strategies;
    let strategies = forwarder.strategies_mut();
    for (prefix, _) in before {
        if !wanted.iter().any(|(kept, _)| kept == prefix) {
            // The root's strategy cannot be unset; it is always among the wanted ones.
            let _ = strategies.unset(prefix.as_ref());
        }
    }
    for choice in wanted.iter().filter(|choice| !before.contains(choice)) {
        // A plan contains only strategies that exist.
        let _ = strategies.set(choice.0.as_ref(), choice.1.as_ref());
    }
    let store = plan.forwarder.content_store;
    forwarder
        .cs_mut()
        .set_capacity(store.capacity, store.max_packets);
    forwarder.set_command_verifier(Box::new(plan.anchors));
}

/// Returns the keys whose values differ: `section.key`, or the section where it is a list.
fn changes(old: &Config, new: &Config) -> Vec<String> {
    let mut changed = Vec::new();
    for ((section, old), (_, new)) in sections(old).into_iter().zip(sections(new)) {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => {
                let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                let differ = keys
                    .into_iter()
                    .filter(|key| old.get(*key) != new.get(*key));
                changed.extend(differ.map(|key| format!("{section}.{key}")));
            }
            (old, new) if old != new => changed.push(section.to_owned()),
            _ => {}
        }
    }
    changed
}

fn sections(config: &Config) -> [(&'static str, Value); 11] {
    fn value(section: &impl Serialize) -> Value {
        serde_json::to_value(section).unwrap_or(Value::Null)
    }
    [
        ("router", value(&config.router)),
        ("host", value(&config.host)),
        ("gnrs", value(&config.gnrs)),
        ("link", value(&config.link)),
        ("route", value(&config.route)),
        ("hop", value(&config.hop)),
        ("storage", value(&config.storage)),
        ("ndn", value(&config.ndn)),
        ("ndn_face", value(&config.ndn_face)),
        ("ndn_route", value(&config.ndn_route)),
        ("ndn_strategy", value(&config.ndn_strategy)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Draft;
    use std::path::Path;

    fn config(text: &str) -> Config {
        Draft::parse(Path::new("a.toml"), text).unwrap().config
    }

    #[test]
    fn changed_keys_are_told_by_name_and_equal_values_are_not() {
        let old = config("[ndn]\nmtu = 1400\nstrategy = \"asf\"\n[hop]\nmin_timeout = \"10 ms\"\n");
        let new = config(
            "[ndn]\nstrategy = \"random\"\n[hop]\nmin_timeout = \"0.01 s\"\n[[ndn_face]]\nuri = \"udp://192.0.2.1\"\n",
        );
        assert_eq!(changes(&old, &new), ["ndn.mtu", "ndn.strategy", "ndn_face"]);
        assert!(changes(&old, &old).is_empty());
    }

    #[test]
    fn a_node_without_ndn_takes_nothing_over() {
        let new = config("[host]\nnack_timeout = \"1 s\"\n");
        let mut reloader = Reloader::new(Config::default(), None, Vec::new());
        let plan = Draft::from(new.clone()).embedded_host().unwrap();
        for _ in 0..2 {
            let reloaded = reloader.reload(&new, Plan::Host(plan.clone()));
            assert_eq!(reloaded.restart, ["host.nack_timeout"]);
            assert!(reloaded.taken.is_empty());
        }
    }
}
