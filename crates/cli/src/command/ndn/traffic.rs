//! `ndn traffic client|server`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use whimbrel_io::Clock;
use whimbrel_node::ndn::client::seeded;
use whimbrel_transport::exchange::nack_text;
use whimbrel_transport::traffic::TrafficStats;
use whimbrel_transport::{
    Gaps, RegistrationEvent, ServiceEvent, TrafficClient, TrafficEvent, TrafficOptions,
    TrafficServer,
};

use super::signing::SigningArguments;
use super::{
    Loss, Reach, converse, in_millis, millis, note, registration, timestamp, traffic_file,
};
use crate::command::{Outcome, json_line, out, tell_json};
use crate::exit::{Exit, Failure, NDN_HELP};

#[derive(Subcommand, Debug)]
pub(crate) enum TrafficCommand {
    /// Send Interests of several patterns in proportions, at a rate
    #[command(after_help = format!(
        "Example:\n  printf 'TrafficPercentage=100\\nName=/example\\nNameAppendSequenceNumber=0\\n' > client.conf\n  \
         whimbrel ndn traffic client client.conf -c 100 -i 10\n\n\
         Keys: Name, TrafficPercentage, NameAppendBytes, NameAppendSequenceNumber, CanBePrefix, MustBeFresh,\n\
         NonceDuplicationPercentage, InterestLifetime, NextHopFaceId, ExpectedContent; a line that does not begin with a letter\n\
         ends a block.\n\n{NDN_HELP}"
    ))]
    Client(ClientArguments),
    /// Answer such Interests
    #[command(after_help = format!(
        "Example:\n  printf 'Name=/example\\nContentBytes=1000\\n' > server.conf\n  \
         whimbrel ndn traffic server server.conf\n\n\
         Keys: Name, ContentDelay, FreshnessPeriod, ContentType, ContentBytes, Content, SigningInfo (as --signing).\n\n{NDN_HELP}"
    ))]
    Server(ServerArguments),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Spacing {
    /// Always the same
    Constant,
    /// Uniform, up to twice the mean
    Uniform,
    /// Exponential, as of many independent senders (Poisson)
    Exponential,
}

#[derive(Args, Debug)]
pub(crate) struct ClientArguments {
    /// The configuration, in the format of ndn-traffic-client
    config: PathBuf,
    #[command(flatten)]
    reach: Reach,
    /// Stop after this many Interests
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// Mean interval, in milliseconds or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "1000", value_parser = millis)]
    interval: Duration,
    /// Distribution of the intervals
    #[arg(long, value_enum, default_value = "constant")]
    gaps: Spacing,
    /// Print the time with each line
    #[arg(short, long)]
    timestamp: bool,
    /// Do not print each Interest
    #[arg(long)]
    no_log: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ServerArguments {
    /// The configuration, in the format of ndn-traffic-server
    config: PathBuf,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    signing: SigningArguments,
    /// Stop answering after this many Interests
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: TrafficCommand) -> Outcome {
    match command {
        TrafficCommand::Client(arguments) => client(&arguments),
        TrafficCommand::Server(arguments) => server(&arguments),
    }
}

fn client(arguments: &ClientArguments) -> Outcome {
    let patterns = traffic_file::load(&arguments.config, traffic_file::client)?;
    let names: Vec<String> = patterns
        .iter()
        .map(|pattern| pattern.name.to_string())
        .collect();
    let options = TrafficOptions {
        patterns,
        interval: arguments.interval,
        gaps: match arguments.gaps {
            Spacing::Constant => Gaps::Constant,
            Spacing::Uniform => Gaps::Uniform,
            Spacing::Exponential => Gaps::Exponential,
        },
        count: arguments.count,
        log: !arguments.no_log,
    };
    let mut client = arguments
        .reach
        .client(Clock::start(), TrafficClient::new(options, seeded()?))?;
    let finished = converse(&mut client, Loss::Ends, |_, _, event| {
        if let TrafficEvent::Finished(stats) = event {
            return ControlFlow::Break(Ok(stats));
        }
        tell(arguments, &names, &event);
        ControlFlow::Continue(())
    })?;
    let stats = finished.unwrap_or_else(|| client.application().stats());
    for (name, stats) in names.iter().zip(&stats) {
        summarise(arguments.json, name, stats);
    }
    let sum = |count: fn(&TrafficStats) -> u64| stats.iter().map(count).sum::<u64>();
    Ok(if sum(|stats| stats.timeouts) > 0 {
        Exit::NoAnswer
    } else if sum(|stats| stats.nacks) > 0 {
        Exit::Nack
    } else if sum(|stats| stats.inconsistent) > 0 {
        Exit::NotVerified
    } else {
        Exit::Done
    })
}

fn tell(arguments: &ClientArguments, names: &[String], event: &TrafficEvent) {
    let (pattern, what, detail, rtt) = match event {
        TrafficEvent::Data {
            pattern,
            rtt,
            consistent,
        } => (
            *pattern,
            "data",
            (!consistent).then(|| String::from("unexpected content")),
            Some(*rtt),
        ),
        TrafficEvent::Nack { pattern, reason } => {
            (*pattern, "nack", Some(nack_text(*reason)), None)
        }
        TrafficEvent::Timeout { pattern } => (*pattern, "timeout", None, None),
        TrafficEvent::Finished(_) => return,
    };
    let name = names.get(pattern).map(String::as_str).unwrap_or_default();
    let millis = rtt.map(in_millis);
    if arguments.json {
        return json_line(
            &json!({ "event": what, "pattern": name, "ms": millis, "detail": detail }),
        );
    }
    let at = if arguments.timestamp {
        format!("{} - ", timestamp())
    } else {
        String::new()
    };
    let millis = millis.map_or(String::new(), |millis| format!(" time={millis:.3} ms"));
    let detail = detail.map_or(String::new(), |detail| format!(" ({detail})"));
    out(&format!("{at}{what} {name}{millis}{detail}\n"));
}

fn summarise(as_json: bool, name: &str, stats: &TrafficStats) {
    let rtt = &stats.rtt;
    if as_json {
        return json_line(&json!({
            "event": "summary", "pattern": name, "sent": stats.sent, "received": stats.received, "nacks": stats.nacks,
            "timeouts": stats.timeouts, "inconsistent": stats.inconsistent,
            "ms": { "min": rtt.min_ms(), "mean": rtt.mean_ms(), "max": rtt.max_ms() },
        }));
    }
    let mut text = format!(
        "--- {name} ---\n{} sent, {} answered, {} Nacks, {} timeouts, {} with unexpected content\n",
        stats.sent, stats.received, stats.nacks, stats.timeouts, stats.inconsistent
    );
    if let (Some(min), Some(mean), Some(max)) = (rtt.min_ms(), rtt.mean_ms(), rtt.max_ms()) {
        text += &format!("round trip min/mean/max = {min:.3}/{mean:.3}/{max:.3} ms\n");
    }
    out(&text);
}

fn server(arguments: &ServerArguments) -> Outcome {
    let patterns = traffic_file::load(&arguments.config, traffic_file::server)?;
    let names: Vec<String> = patterns
        .iter()
        .map(|pattern| pattern.name.to_string())
        .collect();
    let mut rules = Vec::new();
    for pattern in patterns {
        let signing = match &pattern.signing {
            None => arguments.signing.clone(),
            Some(text) => {
                let signing = text.parse().map_err(|why| {
                    Failure::new(Exit::Usage, format!("SigningInfo '{text}': {why}"))
                })?;
                SigningArguments {
                    signing,
                    ..arguments.signing.clone()
                }
            }
        };
        rules.push(pattern.rule(signing.choose()?.signer));
    }
    let clock = Clock::start();
    let register = arguments.signing.choose()?.registration(clock.wall_clock());
    let server = TrafficServer::rules(rules, arguments.count, register, seeded()?);
    let mut client = arguments.reach.client(clock, server)?;
    let ended = converse(&mut client, Loss::Waits, |_, _, event| match event {
        ServiceEvent::Registration(event) => {
            if arguments.json
                && let RegistrationEvent::Registered(prefix) = &event
            {
                tell_json(&json!({ "event": "registered", "prefix": prefix.to_string() }));
            }
            registration(&event).map_or_else(
                |failure| ControlFlow::Break(Err::<(), _>(failure)),
                |()| ControlFlow::Continue(()),
            )
        }
        ServiceEvent::Producer(never) => match never {},
    })?;
    debug_assert!(ended.is_none(), "nothing but Ctrl-C ends it");
    for (name, answered) in names
        .iter()
        .zip(client.application().responder().answered())
    {
        if arguments.json {
            tell_json(&json!({ "event": "summary", "prefix": name, "answered": answered }));
        } else {
            note(&format!("{name}: {answered} Interests answered"));
        }
    }
    Ok(Exit::Done)
}
