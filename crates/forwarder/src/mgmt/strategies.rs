//! `strategy-choice/...`: the strategies by prefix.

use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse, StrategyChoice};

use super::verb::{Context, Outcome};
use crate::forwarder::Forwarder;
use crate::strategy::StrategyError;

pub(crate) fn set(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let prefix = parameters.name.clone().unwrap_or_default();
    let strategy = parameters.strategy.clone().unwrap_or_default();
    let most = context.config.strategy_choices;
    let strategies = context.forwarder.strategies_mut();
    if strategies.len() >= most && !strategies.has_own(prefix.as_ref()) {
        let text =
            format!("{most} prefixes have a strategy of their own, the maximum: unset some first");
        return ControlResponse::new(503, text).into();
    }
    match strategies.set(prefix.as_ref(), strategy.as_ref()) {
        Ok(full_name) => {
            let chosen = ControlParameters {
                strategy: Some(full_name),
                ..parameters
            };
            ControlResponse::success(&chosen).into()
        }
        Err(error) => refusal(&error).into(),
    }
}

pub(crate) fn unset(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let prefix = parameters.name.clone().unwrap_or_default();
    match context.forwarder.strategies_mut().unset(prefix.as_ref()) {
        // Unsetting a prefix without a strategy of its own succeeds, as the protocol requires.
        Ok(_) => ControlResponse::success(&parameters).into(),
        Err(error) => refusal(&error).into(),
    }
}

fn refusal(error: &StrategyError) -> ControlResponse {
    let code = match error {
        StrategyError::Unknown { .. } => 404,
        StrategyError::Parameter { .. } => 409,
        StrategyError::TooDeep(_) => 414,
        StrategyError::Root => 400,
    };
    ControlResponse::new(code, error.to_string())
}

pub(crate) fn list(forwarder: &Forwarder) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, strategy) in forwarder.strategies().entries() {
        StrategyChoice { name, strategy }.encode(&mut out);
    }
    out
}
