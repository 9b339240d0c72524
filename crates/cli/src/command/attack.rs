//! `lab attack`.

use std::fmt::Write as _;

use clap::Args;
use whimbrel_core::units::{Rate, Span};
use whimbrel_lab::LabError;
use whimbrel_lab::attack::{self, ATTACKS, AttackOptions, Finding, NEWCOMERS, Plane};

use super::{Outcome, json_line, out};
use crate::exit::{Exit, Failure};
use crate::progress::Progress;

/// Of an attack, bit/s.
const MIN_RATE: u64 = 1_000;
/// Of the honest host's wire, bit/s.
const MIN_WIRE: u64 = 10_000_000;

#[derive(Args, Debug)]
pub(crate) struct Attack {
    /// The attacks; by default all
    #[arg(value_name = "NAME", value_parser = attack_name)]
    names: Vec<&'static attack::Attack>,
    /// List the attacks and end
    #[arg(long)]
    list: bool,
    /// How long each attack lasts
    #[arg(long = "for", value_name = "DURATION", default_value = "6 s", value_parser = Span::with_unit)]
    lasts: Span,
    /// The most that an attacker sends; one that has proven a name sends no more than 10 Mbit/s
    #[arg(long, value_name = "RATE", default_value = "100 Mbit/s")]
    rate: Rate,
    /// Rate of the honest host's wire in each direction [default: as much as the processors carry]
    #[arg(long, value_name = "RATE")]
    wire: Option<Rate>,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

fn attack_name(name: &str) -> Result<&'static attack::Attack, String> {
    attack::find(name).ok_or_else(|| {
        let known: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        format!("there is no such attack; known are: {}", known.join(", "))
    })
}

pub(super) fn run(arguments: &Attack) -> Outcome {
    if arguments.list {
        for attack in ATTACKS {
            out(&format!("{:18} {}\n", attack.name, attack.what));
        }
        return Ok(Exit::Done);
    }
    if arguments.rate.0 < MIN_RATE {
        let message = format!("an attack at {} is none: at least 1 kbit/s", arguments.rate);
        return Err(Failure::new(Exit::Usage, message));
    }
    if let Some(wire) = arguments.wire.filter(|wire| wire.0 < MIN_WIRE) {
        let message = format!("a wire of {wire} measures nothing but itself: at least 10 Mbit/s");
        return Err(Failure::new(Exit::Usage, message));
    }
    // Before any thread starts.
    whimbrel_lab::ensure_privileges().map_err(failure)?;
    let options = AttackOptions {
        program: std::env::current_exe()?,
        lasts: arguments.lasts.0,
        rate: arguments.rate.0,
        wire: arguments.wire.map(|wire| wire.0),
    };
    let chosen: Vec<&attack::Attack> = match arguments.names.is_empty() {
        true => ATTACKS.iter().collect(),
        false => arguments.names.clone(),
    };
    let mut progress = Progress::new("attack", arguments.json);
    let (mut findings, all) = (Vec::new(), chosen.len() as u64);
    for (done, attack) in chosen.into_iter().enumerate() {
        progress.set(done as u64, Some(all), attack.name);
        let finding = attack::run(attack, &options).map_err(failure)?;
        if arguments.json {
            json_line(&finding);
        }
        findings.push(finding);
    }
    progress.end();
    if !arguments.json {
        out(&table(&findings));
    }
    let harmless = findings.iter().all(|finding| finding.harm.is_empty());
    Ok(if harmless { Exit::Done } else { Exit::Missed })
}

fn failure(error: LabError) -> Failure {
    Failure::new(Exit::Other, error.to_string())
}

/// One line for each attack, and the harm that it did.
fn table(findings: &[Finding]) -> String {
    let mut text = format!(
        "{:18} {:>10} {:>10} {:>9}  {:>24} {:>9} {:>14} {:>15}\n",
        "attack",
        "packets",
        "octets",
        "drawn",
        "rate: before/during/after",
        "newcomers",
        "after, ms",
        "memory, MiB"
    );
    for finding in findings {
        let each = |value: fn(&attack::Sample) -> String| {
            let values: Vec<String> = finding.samples.iter().map(value).collect();
            values.join("/")
        };
        let rates = match finding.plane {
            Plane::Native => each(|it| format!("{:.0}", it.rate / 1e6)) + " Mbit/s",
            Plane::Ndn => each(|it| format!("{:.0}", it.rate)) + " /s",
        };
        let _ = writeln!(
            text,
            "{:18} {:>10} {:>10} {:>9}  {rates:>24} {:>9} {:>14} {:>15}",
            finding.name,
            finding.sent.packets,
            finding.sent.octets,
            finding.sent.drawn,
            each(|it| it.newcomers.to_string()),
            each(|it| it.entry_ms.map_or("-".to_owned(), |ms| format!("{ms:.0}"))),
            each(|it| (it.memory >> 20).to_string()),
        );
        if let Some(rate) = finding.elsewhere {
            let rate = rate / 1e6;
            let _ = writeln!(
                text,
                "  {rate:.0} Mbit/s while the same goes to a socket that nobody reads"
            );
        }
        for harm in &finding.harm {
            let _ = writeln!(text, "  harm: {harm}");
        }
    }
    let _ = writeln!(
        text,
        "Newcomers: of {NEWCOMERS} that come before, during and after the attack, those that get in within 1.5 s, and the median of their times."
    );
    text
}
