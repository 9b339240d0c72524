//! `ndn serve`.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use whimbrel_core::Time;
use whimbrel_core::units::ByteSize;
use whimbrel_io::Clock;
use whimbrel_ndn_packet::{Certificate, InterestRef, Name};
use whimbrel_node::ndn::client::seeded;
use whimbrel_transport::register::{Registrar, RouteParameters};
use whimbrel_transport::serve::SegmentResponder;
use whimbrel_transport::{
    Answer, ProducerEvent, ProducerOptions, RegistrationEvent, Responder, Service, ServiceEvent,
};

use super::signing::{Chosen, SigningArguments};
use super::source::FileSource;
use super::{Loss, Reach, converse, millis, name, note, registration};
use crate::command::{Outcome, json_line, out, tell_json};
use crate::exit::{Exit, Failure};
use crate::logging::say;

/// Bytes of a packet beside content, name and signature.
const PACKET_OVERHEAD: usize = 64;
/// Bytes of a signature and its key's name.
const SIGNATURE_ROOM: usize = 256;

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The name, as /example/film; without a version at its end (v=NUMBER), the time is appended as its version. With
    /// one, fetches in progress continue when this command is started again
    #[arg(value_parser = name)]
    name: Name,
    /// The file; by default standard input
    file: Option<PathBuf>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    signing: SigningArguments,
    /// Bytes of content in each segment
    #[arg(short, long, value_name = "BYTES", default_value_t = 8000, value_parser = clap::value_parser!(u32).range(1..=8700))]
    size: u32,
    /// How long a segment is fresh, in milliseconds or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "10000", value_parser = millis)]
    freshness: Duration,
    /// Memory for signed segments, to answer retransmissions and other consumers
    #[arg(long, value_name = "SIZE", default_value = "32 MiB")]
    cache: ByteSize,
    /// Sign as many segments as the memory holds before the first Interest
    #[arg(long)]
    sign_ahead: bool,
    /// Do not serve the certificates of the signing key
    #[arg(long)]
    no_certificates: bool,
    /// Print the name with its version on standard output
    #[arg(short, long)]
    print_data_version: bool,
    /// Print events as lines of JSON on standard output
    #[arg(long, conflicts_with = "print_data_version")]
    json: bool,
}

pub(crate) fn run(arguments: Serve) -> Outcome {
    let chosen = arguments.signing.choose()?;
    let segment_size = arguments.size as usize;
    check_size(&arguments.name, segment_size, &chosen)?;
    let source = match &arguments.file {
        Some(path) if path.as_os_str() != "-" => FileSource::open(path, segment_size)?,
        _ => FileSource::stdin(segment_size)?,
    };
    let length = source.length();
    let clock = Clock::start();
    let options = ProducerOptions {
        freshness: arguments.freshness,
        cache_bytes: arguments.cache.as_usize(),
        sign_ahead: arguments.sign_ahead,
        ..ProducerOptions::new(clock.wall_clock(), clock.now())
    };
    let certificates = if arguments.no_certificates {
        Vec::new()
    } else {
        certificates(&chosen)
    };
    let register = chosen.registration(clock.wall_clock());
    let segments = SegmentResponder::new(
        arguments.name.clone(),
        source,
        chosen.signer.clone(),
        options,
    );
    let (versioned, count) = (segments.versioned_name().clone(), segments.segment_count());
    let routes = routes(segments.name(), &certificates);
    let registrar = Registrar::new(register, routes);
    let service = Service::new(
        Shelf {
            segments,
            certificates,
        },
        registrar,
        seeded()?,
    );
    let mut client = arguments.reach.client(clock, service)?;
    if arguments.json {
        json_line(&json!({
            "event": "serving", "name": versioned.to_string(), "bytes": length, "segments": count,
            "signing": chosen.description,
        }));
    } else {
        let by = &chosen.description;
        if versioned
            .as_ref()
            .components()
            .next()
            .is_some_and(|it| it.value() == b"localhost")
        {
            note("names that begin with /localhost never leave this machine");
        }
        note(&format!(
            "serving {versioned}: {length} bytes, {count} segments, {by}; Ctrl-C stops it"
        ));
        if arguments.print_data_version {
            out(&format!("{versioned}\n"));
        }
    }
    let mut told = Told::default();
    let served = converse(
        &mut client,
        Loss::Waits,
        |_, _, event| -> ControlFlow<Result<(), Failure>> {
            match event {
                ServiceEvent::Registration(event) => tell_registration(&arguments, &event),
                ServiceEvent::Producer(event) => {
                    told.tell(&arguments, &event);
                    ControlFlow::Continue(())
                }
            }
        },
    )?;
    let counters = client.application().counters();
    if arguments.json {
        tell_json(&json!({
            "event": "summary", "interests": counters.interests, "data": counters.data, "nacks": counters.nacks,
        }));
    } else {
        note(&format!(
            "{} Interests, {} Data sent",
            counters.interests, counters.data
        ));
    }
    Ok(served.map_or(Exit::Done, |()| Exit::Done))
}

/// Refuses a packet larger than forwarders accept.
fn check_size(name: &Name, segment_size: usize, chosen: &Chosen) -> Result<(), Failure> {
    let key = chosen
        .key
        .as_ref()
        .map_or(0, |key| key.as_ref().encoded_len());
    let beside = name.as_ref().encoded_len() + key + SIGNATURE_ROOM + PACKET_OVERHEAD;
    let room = whimbrel_ndn_packet::MAX_PACKET.saturating_sub(beside);
    if segment_size <= room {
        return Ok(());
    }
    let text = format!(
        "--size {segment_size} is too large: a packet has at most {} bytes, which leaves {room} for content",
        whimbrel_ndn_packet::MAX_PACKET
    );
    Err(Failure::new(Exit::Usage, text))
}

/// Returns the certificates that a consumer needs to verify this key's signatures.
fn certificates(chosen: &Chosen) -> Vec<Certificate> {
    let Some(keychain) = &chosen.keychain else {
        return Vec::new();
    };
    let Some(locator) = &chosen.key else {
        return Vec::new();
    };
    let key = keychain
        .certificate(locator)
        .map_or(locator, |certificate| certificate.key_name());
    let mut found: Vec<Certificate> = Vec::new();
    let mut wanted = VecDeque::from([key.clone()]);
    while let Some(key) = wanted.pop_front() {
        for certificate in keychain.certificates_of(&key) {
            if found.iter().any(|known| known.name() == certificate.name()) {
                continue;
            }
            // Those of the issuers, if the keychain has them.
            if let Some(whimbrel_ndn_packet::KeyLocator::Name(issuer)) = certificate.locator() {
                let issuer = keychain
                    .certificate(issuer)
                    .map_or(issuer, |issuer| issuer.key_name());
                wanted.push_back(issuer.clone());
            }
            found.push(certificate.clone());
        }
    }
    found
}

/// Returns the content's prefix first, then those of keys.
fn routes(content: &Name, certificates: &[Certificate]) -> Vec<RouteParameters> {
    let mut names = vec![content.clone()];
    for certificate in certificates {
        if !names
            .iter()
            .any(|name| name.as_ref().is_prefix_of(certificate.name().as_ref()))
        {
            names.push(certificate.key_name().clone());
        }
    }
    names.into_iter().map(RouteParameters::new).collect()
}

fn tell_registration(
    arguments: &Serve,
    event: &RegistrationEvent,
) -> ControlFlow<Result<(), Failure>> {
    if arguments.json {
        match event {
            RegistrationEvent::Registered(prefix) => {
                tell_json(&json!({ "event": "registered", "prefix": prefix.to_string() }));
            }
            RegistrationEvent::Failed { prefix, reason, .. } => tell_json(&json!({
                "event": "not registered", "prefix": prefix.to_string(), "error": reason.to_string(),
            })),
        }
    }
    match registration(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(failure) => ControlFlow::Break(Err(failure)),
    }
}

/// The complaints that were printed. Each Interest may make another one, and anyone can send Interests.
#[derive(Default)]
struct Told {
    unreadable: bool,
    too_large: bool,
}

impl Told {
    fn tell(&mut self, arguments: &Serve, event: &ProducerEvent) {
        let (is_told, text) = match event {
            ProducerEvent::Unreadable(error) => (&mut self.unreadable, error.to_string()),
            ProducerEvent::TooLarge { segment, size } => (
                &mut self.too_large,
                format!(
                    "the packet of segment {segment} is too large ({size} bytes): use a smaller --size"
                ),
            ),
        };
        if std::mem::replace(is_told, true) {
            tracing::debug!("{text}");
        } else if arguments.json {
            tell_json(&json!({ "event": "unreadable", "error": text }));
        } else {
            say(&text);
        }
    }
}

/// The content, and its signer's certificates.
struct Shelf {
    segments: SegmentResponder<FileSource>,
    certificates: Vec<Certificate>,
}

impl Responder for Shelf {
    type Event = ProducerEvent;

    fn respond(&mut self, now: Time, interest: &InterestRef<'_>) -> Answer {
        if !self.certificates.is_empty()
            && let Some(wire) = self.certificate(interest)
        {
            return Answer::Data(wire);
        }
        self.segments.respond(now, interest)
    }

    fn prepare(&mut self) -> bool {
        self.segments.prepare()
    }

    fn poll_event(&mut self) -> Option<ProducerEvent> {
        self.segments.poll_event()
    }
}

impl Shelf {
    fn certificate(&self, interest: &InterestRef<'_>) -> Option<Bytes> {
        let fits = |certificate: &&Certificate| {
            let name = certificate.name().as_ref();
            // A key's name requests one of its certificates; a shorter name requests content.
            interest.name == name
                || (interest.can_be_prefix
                    && certificate.key_name().as_ref().is_prefix_of(interest.name)
                    && interest.name.is_prefix_of(name))
        };
        self.certificates
            .iter()
            .find(fits)
            .map(|certificate| certificate.wire().clone())
    }
}
