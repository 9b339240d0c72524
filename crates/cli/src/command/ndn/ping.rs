//! `ndn ping`.

use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use whimbrel_io::Clock;
use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::client::seeded;
use whimbrel_transport::exchange::nack_text;
use whimbrel_transport::{PingEvent, PingOptions, PingStats};

use super::{Loss, Reach, converse, in_millis, millis, name, timestamp};
use crate::command::{Outcome, json_line, out};
use crate::exit::Exit;

#[derive(Args, Debug)]
pub(crate) struct Ping {
    /// The server's prefix
    #[arg(value_parser = name)]
    prefix: Name,
    #[command(flatten)]
    reach: Reach,
    /// Stop after this many pings
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Interval between pings, in milliseconds or with a unit; at least 1 ms
    #[arg(short, long, value_name = "TIME", default_value = "1000", value_parser = millis)]
    interval: Duration,
    /// How long to wait for an answer, in milliseconds or with a unit
    #[arg(short = 'o', long, value_name = "TIME", default_value = "4000", value_parser = millis)]
    timeout: Duration,
    /// The first number; by default a random one
    #[arg(short = 'n', long, value_name = "N")]
    start: Option<u64>,
    /// A component before the number, to distinguish this client: letters and digits
    #[arg(short = 'p', long, value_name = "WORD", value_parser = word)]
    identifier: Option<String>,
    /// Allow routers to answer from their content store
    #[arg(short = 'a', long)]
    cache: bool,
    /// Print the time with each line
    #[arg(short = 't', long)]
    timestamp: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

fn word(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_alphanumeric()) {
        Ok(text.to_owned())
    } else {
        Err(String::from("letters and digits only"))
    }
}

pub(crate) fn run(arguments: Ping) -> Outcome {
    let options = PingOptions {
        prefix: arguments.prefix.clone(),
        interval: arguments.interval,
        timeout: arguments.timeout,
        count: arguments.count,
        start: arguments.start,
        identifier: arguments.identifier.clone(),
        allow_stale: arguments.cache,
    };
    let ping = whimbrel_transport::Ping::new(options, seeded()?);
    let mut client = arguments.reach.client(Clock::start(), ping)?;
    if !arguments.json {
        out(&format!("PING {}\n", arguments.prefix));
    }
    let stats = converse(&mut client, Loss::Ends, |_, _, event| {
        if let PingEvent::Finished(stats) = event {
            return ControlFlow::Break(Ok(stats));
        }
        tell(&arguments, &event);
        ControlFlow::Continue(())
    })?;
    let stats = stats.unwrap_or(*client.application().stats());
    summarise(&arguments, &stats);
    Ok(
        if stats.timeouts > 0 || (stats.received == 0 && stats.nacks == 0) {
            Exit::NoAnswer
        } else if stats.nacks > 0 {
            Exit::Nack
        } else {
            Exit::Done
        },
    )
}

fn tell(arguments: &Ping, event: &PingEvent) {
    let prefix = &arguments.prefix;
    let at = if arguments.timestamp {
        format!("{} - ", timestamp())
    } else {
        String::new()
    };
    match event {
        PingEvent::Reply { number, rtt } if arguments.json => {
            json_line(&json!({ "event": "reply", "seq": number, "ms": in_millis(*rtt) }));
        }
        PingEvent::Nack {
            number,
            reason,
            rtt,
        } if arguments.json => json_line(&json!({
            "event": "nack", "seq": number, "ms": in_millis(*rtt), "reason": nack_text(*reason),
        })),
        PingEvent::Timeout { number } if arguments.json => {
            json_line(&json!({ "event": "timeout", "seq": number }));
        }
        PingEvent::Reply { number, rtt } => {
            out(&format!(
                "{at}content from {prefix}: seq={number} time={:.3} ms\n",
                in_millis(*rtt)
            ));
        }
        PingEvent::Nack {
            number,
            reason,
            rtt,
        } => {
            let reason = nack_text(*reason);
            out(&format!(
                "{at}nack from {prefix}: seq={number} time={:.3} ms reason={reason}\n",
                in_millis(*rtt)
            ));
        }
        PingEvent::Timeout { number } => out(&format!("{at}timeout from {prefix}: seq={number}\n")),
        PingEvent::Finished(_) => {}
    }
}

fn summarise(arguments: &Ping, stats: &PingStats) {
    let rtt = &stats.rtt;
    let times = (rtt.min_ms(), rtt.mean_ms(), rtt.max_ms(), rtt.stddev_ms());
    if arguments.json {
        let times = match times {
            (Some(min), Some(mean), Some(max), Some(deviation)) => {
                Some(json!({ "min": min, "mean": mean, "max": max, "stddev": deviation }))
            }
            _ => None,
        };
        return json_line(&json!({
            "event": "summary", "sent": stats.sent, "received": stats.received, "nacks": stats.nacks,
            "timeouts": stats.timeouts, "ms": times,
        }));
    }
    let mut text = format!(
        "\n--- {} ping statistics ---\n{} packets transmitted, {} received, {} nacked, {:.2} % lost, total {:.3} ms\n",
        arguments.prefix,
        stats.sent,
        stats.received,
        stats.nacks,
        stats.loss() * 100.0,
        rtt.total_ms()
    );
    if let (Some(min), Some(mean), Some(max), Some(deviation)) = times {
        text += &format!("rtt min/avg/max/mdev = {min:.3}/{mean:.3}/{max:.3}/{deviation:.3} ms\n");
    }
    out(&text);
}
