//! `ndn pingserver`.

use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use whimbrel_io::Clock;
use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::client::seeded;
use whimbrel_transport::ping::PingServerEvent;
use whimbrel_transport::{PingServer, PingServerOptions, RegistrationEvent, ServiceEvent};

use super::signing::SigningArguments;
use super::{Loss, Reach, converse, millis, name, note, registration, timestamp};
use crate::command::keys::KeychainPlace;
use crate::command::{Outcome, tell, tell_json};
use crate::exit::Exit;

#[derive(Args, Debug)]
pub(crate) struct Pingserver {
    /// The prefix; Interests below PREFIX/ping are answered
    #[arg(value_parser = name)]
    prefix: Name,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    keychain: KeychainPlace,
    /// How long an answer is fresh, in milliseconds or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "1000", value_parser = millis)]
    freshness: Duration,
    /// Stop after this many answers; 0 for no limit
    #[arg(
        short = 'p',
        long,
        alias = "satisfy",
        value_name = "N",
        default_value_t = 0
    )]
    count: u64,
    /// Bytes of payload
    #[arg(short, long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=8000))]
    size: u32,
    /// Print the time with each line
    #[arg(short, long)]
    timestamp: bool,
    /// Do not print each ping
    #[arg(long)]
    no_log: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Pingserver) -> Outcome {
    let clock = Clock::start();
    let options = PingServerOptions {
        freshness: arguments.freshness,
        count: (arguments.count > 0).then_some(arguments.count),
        payload: arguments.size as usize,
        log: !arguments.no_log,
        ..PingServerOptions::new(arguments.prefix.clone())
    };
    let register = SigningArguments::auto(&arguments.keychain)
        .choose()?
        .registration(clock.wall_clock());
    let server = PingServer::pings(options, register, seeded()?);
    let mut client = arguments.reach.client(clock, server)?;
    if !arguments.json {
        tell(&format!("PING SERVER {}\n", arguments.prefix));
    }
    let base = arguments.prefix.len() + 1;
    let ended = converse(&mut client, Loss::Waits, |_, _, event| match event {
        ServiceEvent::Registration(event) => {
            if arguments.json
                && let RegistrationEvent::Registered(prefix) = &event
            {
                tell_json(&json!({ "event": "registered", "prefix": prefix.to_string() }));
            }
            registration(&event).map_or_else(
                |failure| ControlFlow::Break(Err(failure)),
                |()| ControlFlow::Continue(()),
            )
        }
        ServiceEvent::Producer(PingServerEvent::Ping(name)) => {
            let number = name.as_ref().suffix(base).to_string();
            let number = number.trim_start_matches('/');
            if arguments.json {
                tell_json(&json!({ "event": "ping", "seq": number }));
            } else {
                let at = if arguments.timestamp {
                    format!("{} - ", timestamp())
                } else {
                    String::new()
                };
                tell(&format!("{at}interest received: seq={number}\n"));
            }
            ControlFlow::Continue(())
        }
        ServiceEvent::Producer(PingServerEvent::Finished) => ControlFlow::Break(Ok(())),
    })?;
    let answered = client.application().responder().answered();
    if arguments.json {
        tell_json(&json!({ "event": "summary", "answered": answered }));
    } else {
        tell(&format!(
            "\n--- ping server {} ---\n{answered} packets processed\n",
            arguments.prefix
        ));
    }
    if ended.is_none() {
        note("interrupted");
    }
    Ok(Exit::Done)
}
