//! `ndn poke`.

use std::io::Read;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use whimbrel_io::Clock;
use whimbrel_ndn_packet::{MAX_PACKET, Name};
use whimbrel_node::ndn::client::seeded;
use whimbrel_transport::{PokeEvent, PokeOptions, RegistrationEvent};

use super::signing::SigningArguments;
use super::{Loss, Reach, converse, millis, name, registration};
use crate::command::{Outcome, json_line};
use crate::exit::{Exit, Failure};

#[derive(Args, Debug)]
pub(crate) struct Poke {
    /// The name of the Data
    #[arg(value_parser = name)]
    name: Name,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    signing: SigningArguments,
    /// The content; by default standard input
    #[arg(long, value_name = "TEXT")]
    content: Option<String>,
    /// How long the Data is fresh, in milliseconds or with a unit
    #[arg(short = 'x', long, value_name = "TIME", default_value = "0", value_parser = millis)]
    freshness: Duration,
    /// Make the last component of the name the FinalBlockId
    #[arg(short = 'F', long)]
    final_block: bool,
    /// Send the Data unsolicited; forwarders keep it only if they are configured to
    #[arg(short = 'f', long, alias = "force")]
    unsolicited: bool,
    /// Give up after this time without an Interest; in milliseconds or with a unit
    #[arg(short = 'w', long, value_name = "TIME", value_parser = millis)]
    timeout: Option<Duration>,
    /// Print events as lines of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Poke) -> Outcome {
    let content = match &arguments.content {
        Some(text) => Bytes::from(text.clone().into_bytes()),
        None => from_stdin()?,
    };
    let chosen = arguments.signing.choose()?;
    let options = PokeOptions {
        freshness: arguments.freshness,
        final_block: arguments.final_block,
        unsolicited: arguments.unsolicited,
        timeout: arguments.timeout,
    };
    let clock = Clock::start();
    let poke = whimbrel_transport::Poke::new(
        arguments.name.clone(),
        content,
        &chosen.signer,
        options,
        chosen.registration(clock.wall_clock()),
        seeded()?,
        clock.now(),
    );
    let mut client = arguments.reach.client(clock, poke)?;
    let end = converse(&mut client, Loss::Ends, |_, _, event| match event {
        PokeEvent::Registration(event) => {
            if arguments.json
                && let RegistrationEvent::Registered(prefix) = &event
            {
                json_line(&json!({ "event": "registered", "prefix": prefix.to_string() }));
            }
            registration(&event).map_or_else(
                |failure| ControlFlow::Break(Err(failure)),
                |()| ControlFlow::Continue(()),
            )
        }
        PokeEvent::Sent => ControlFlow::Break(Ok(true)),
        PokeEvent::Timeout => ControlFlow::Break(Ok(false)),
    })?;
    match end {
        Some(true) => {
            if arguments.json {
                json_line(&json!({ "event": "sent", "name": arguments.name.to_string() }));
            }
            Ok(Exit::Done)
        }
        Some(false) => Err(Failure::new(
            Exit::NoAnswer,
            format!("{}: timed out without an Interest", arguments.name),
        )),
        None => Ok(Exit::Interrupted),
    }
}

/// Reads at most one packet.
fn from_stdin() -> Result<Bytes, Failure> {
    let mut content = Vec::new();
    std::io::stdin()
        .take(MAX_PACKET as u64 + 1)
        .read_to_end(&mut content)?;
    if content.len() >= MAX_PACKET {
        let text =
            "standard input exceeds one packet; `whimbrel ndn serve` serves content of any size";
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(content.into())
}
