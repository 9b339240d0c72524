//! What management is told at its start.

use super::authority::CommandPolicy;
use crate::rib::RibLimits;

/// What management is told at its start.
#[derive(Clone, Debug)]
pub struct ManagementConfig {
    /// Whose commands are carried out.
    pub policy: CommandPolicy,
    /// How many routes there may be.
    pub routes: RibLimits,
    /// Most prefixes in the FIB by commands; `fib/add-nexthop` beyond is refused.
    pub fib_entries: usize,
    /// Most prefixes with a strategy of their own by commands.
    pub strategy_choices: usize,
    /// What `status/general` gives as NfdVersion.
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
