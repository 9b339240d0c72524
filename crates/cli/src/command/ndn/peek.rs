//! `ndn peek`.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use whimbrel_io::Clock;
use whimbrel_ndn_packet::{DataRef, Name};
use whimbrel_node::diagnostics;
use whimbrel_node::ndn::client::seeded;
use whimbrel_transport::exchange::nack_text;
use whimbrel_transport::{PeekEvent, PeekOptions};

use super::describe::{content_text, data_json, data_text};
use super::{Loss, Reach, converse, in_millis, millis, name, note};
use crate::command::{Outcome, json_line};
use crate::exit::{Exit, Failure};

#[derive(Args, Debug)]
pub(crate) struct Peek {
    /// The name of the Interest
    #[arg(value_parser = name)]
    name: Name,
    #[command(flatten)]
    reach: Reach,
    /// Accept any Data under this prefix (CanBePrefix)
    #[arg(short = 'P', long)]
    prefix: bool,
    /// Accept only fresh Data (MustBeFresh)
    #[arg(short, long)]
    fresh: bool,
    /// Lifetime of the Interest, in milliseconds or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "4000", value_parser = millis)]
    lifetime: Duration,
    /// Give up after this time, if it is shorter than the lifetime; in milliseconds or with a unit
    #[arg(short = 'w', long, value_name = "TIME", value_parser = millis)]
    timeout: Option<Duration>,
    /// Hop limit
    #[arg(short = 'L', long, value_name = "N")]
    hop_limit: Option<u8>,
    /// A forwarding hint: where routers may find it if they have no route for its name; may be
    /// given several times
    #[arg(long, value_name = "NAME", value_parser = name)]
    hint: Vec<Name>,
    /// Application parameters of the Interest
    #[arg(
        short = 'A',
        long,
        value_name = "TEXT",
        conflicts_with = "app_params_file"
    )]
    app_params: Option<String>,
    /// Application parameters from a file
    #[arg(long, value_name = "FILE")]
    app_params_file: Option<PathBuf>,
    /// Print the content only, not the whole packet
    #[arg(short, long)]
    payload: bool,
    /// Print the Data as a line of JSON
    #[arg(long, conflicts_with = "payload")]
    json: bool,
}

pub(crate) fn run(arguments: Peek) -> Outcome {
    let parameters = match (&arguments.app_params, &arguments.app_params_file) {
        (Some(text), _) => Some(Bytes::from(text.clone().into_bytes())),
        (None, Some(path)) => Some(Bytes::from(std::fs::read(path).map_err(|error| {
            Failure::new(
                Exit::Usage,
                format!("cannot read {}: {error}", path.display()),
            )
        })?)),
        (None, None) => None,
    };
    let options = PeekOptions {
        can_be_prefix: arguments.prefix,
        must_be_fresh: arguments.fresh,
        lifetime: arguments.lifetime,
        hop_limit: arguments.hop_limit,
        forwarding_hint: arguments.hint.clone(),
        parameters,
        timeout: arguments.timeout,
    };
    let clock = Clock::start();
    let peek =
        whimbrel_transport::Peek::new(arguments.name.clone(), options, seeded()?, clock.now());
    let mut client = arguments.reach.client(clock, peek)?;
    let answer = converse(&mut client, Loss::Ends, |_, _, event| {
        ControlFlow::Break(Ok(event))
    })?;
    match answer {
        None => Ok(Exit::Interrupted),
        Some(PeekEvent::Data { packet, rtt }) => show(&arguments, &packet, rtt),
        Some(PeekEvent::Nack { reason, rtt }) => Err(Failure::new(
            Exit::Nack,
            format!(
                "{}: Nack ({}) after {:.3} ms",
                arguments.name,
                nack_text(reason),
                in_millis(rtt)
            ),
        )),
        Some(PeekEvent::Timeout) => Err(Failure::new(
            Exit::NoAnswer,
            format!("{}: timed out without an answer", arguments.name),
        )),
    }
}

fn show(arguments: &Peek, packet: &Bytes, rtt: Duration) -> Outcome {
    let data = DataRef::decode(packet).map_err(|error| Failure::new(Exit::Other, error))?;
    let is_terminal = std::io::stdout().is_terminal();
    if arguments.json {
        let mut value = data_json(&data);
        if let Some(fields) = value.as_object_mut() {
            fields.insert("rtt_ms".into(), json!(in_millis(rtt)));
        }
        json_line(&value);
        return Ok(Exit::Done);
    }
    let written = if arguments.payload {
        diagnostics::write_result(data.content)
    } else if is_terminal {
        // A packet on a terminal would be unreadable.
        let text = format!("{}\n{}", data_text(&data), content_text(data.content));
        diagnostics::write_result(text.as_bytes())
    } else {
        diagnostics::write_result(packet)
    };
    written.map_err(|error| Failure::unwritten_result(&error))?;
    if arguments.payload && is_terminal {
        note(&format!(
            "{} bytes after {:.3} ms",
            data.content.len(),
            in_millis(rtt)
        ));
    }
    Ok(Exit::Done)
}
