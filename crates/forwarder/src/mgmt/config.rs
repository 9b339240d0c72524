//! The configuration of management.

use super::authority::CommandPolicy;
use crate::rib::RibLimits;

/// The configuration of management.
#[derive(Clone, Debug)]
pub struct ManagementConfig {
    /// The policy for commands.
    pub policy: CommandPolicy,
    /// The limits of the RIB.
    pub routes: RibLimits,
    /// Maximum of FIB prefixes added by commands; `fib/add-nexthop` beyond it is refused.
    pub fib_entries: usize,
    /// Maximum of strategy choices made by commands.
    pub strategy_choices: usize,
    /// The NfdVersion in `status/general`.
    pub version: String,
}

impl Default for ManagementConfig {
    fn default() -> ManagementConfig {
        ManagementConfig {
            policy: CommandPolicy::default(),
            routes: RibLimits::default(),
            fib_entries: 1 << 20,
            strategy_choices: 1 << 16,
            version: concat!("whimbrel-", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}
