//! NDN programs, and commands that manage an NDN forwarder.

pub(crate) mod cs;
mod describe;
pub(crate) mod face;
mod face_text;
mod fetch_options;
mod get;
mod manage;
mod output;
mod path_report;
mod paths;
mod patient;
mod peek;
mod ping;
mod pingserver;
mod poke;
pub(crate) mod route;
mod serve;
mod signing;
mod source;
pub(crate) mod status;
pub(crate) mod strategy;
mod traffic;
mod traffic_file;
pub(crate) mod verify;
mod words;

use std::ops::ControlFlow;
use std::time::Duration;

use clap::{Args, Subcommand};
use whimbrel_core::{Time, units};
use whimbrel_io::Clock;
use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::client::{Client, ClientError, End, Told, Uplink, UplinkError, failed};
use whimbrel_transport::{Application, RegistrationEvent};

use super::Outcome;
use crate::exit::{self, Exit, Failure, NDN_HELP};
use crate::logging::note;

#[derive(Subcommand, Debug)]
pub(crate) enum NdnCommand {
    /// Fetch segmented content by its name
    #[command(after_help = format!(
        "Examples:\n  whimbrel ndn get /example/film -o film.mkv\n  whimbrel ndn get /example/log | less\n\n{NDN_HELP}"
    ))]
    Get(Box<get::Get>),
    /// Serve a file, or standard input, in segments until Ctrl-C
    #[command(after_help = format!(
        "Examples:\n  whimbrel ndn serve /example/film film.mkv\n  date | whimbrel ndn serve /example/date\n\n{NDN_HELP}"
    ))]
    Serve(serve::Serve),
    /// Send one Interest and print the Data that answers
    #[command(after_help = format!("Example:\n  whimbrel ndn peek -p /example/hello\n\n{NDN_HELP}"))]
    Peek(peek::Peek),
    /// Answer one Interest with standard input as Data
    #[command(after_help = format!("Example:\n  echo hello | whimbrel ndn poke /example/hello\n\n{NDN_HELP}"))]
    Poke(poke::Poke),
    /// Measure round trips to a ping server
    #[command(after_help = format!(
        "Example:\n  whimbrel ndn ping -c 4 /example\n\nSends Interests for /example/ping/NUMBER. \
         3: a ping was not answered; 4: a ping got a Nack.\n\n{NDN_HELP}"
    ))]
    Ping(ping::Ping),
    /// Find the paths to a name, and measure their round trips
    #[command(after_help = format!(
        "Example:\n  whimbrel ndn paths /example/film\n\nSends probes, which take any path and are answered by \
         producers, not by caches. Routers record the path: a label for each.\n\n{NDN_HELP}"
    ))]
    Paths(paths::Paths),
    /// Answer pings until Ctrl-C
    #[command(after_help = format!("Example:\n  whimbrel ndn pingserver /example\n\n{NDN_HELP}"))]
    Pingserver(pingserver::Pingserver),
    /// Generate or answer traffic for many names, according to a configuration file
    #[command(subcommand)]
    Traffic(traffic::TrafficCommand),
}

/// How a program reaches its forwarder.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct Reach {
    /// The forwarder: unix:///PATH, tcp://HOST[:PORT] or udp://HOST[:PORT]. By default
    /// $NDN_CLIENT_TRANSPORT, "transport" in ~/.ndn/client.conf or /etc/ndn/client.conf,
    /// unix:///run/nfd/nfd.sock, or this user's router
    #[arg(long, value_name = "FACE-URI")]
    transport: Option<String>,
}

impl Reach {
    fn uplink(&self) -> Result<Uplink, Failure> {
        Ok(Uplink::find(self.transport.as_deref())?)
    }

    /// Connects `application` to the forwarder.
    fn client<A: Application + 'static>(
        &self,
        clock: Clock,
        application: A,
    ) -> Result<Client<A>, Failure> {
        Ok(Client::new(self.uplink()?, clock, application)?)
    }
}

impl From<UplinkError> for Failure {
    fn from(error: UplinkError) -> Failure {
        Failure::new(Exit::Usage, error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let exit = match error {
            ClientError::Nobody { .. } | ClientError::NotPermitted { .. } => Exit::NoDaemon,
            ClientError::Loop(_) | ClientError::System(_) => Exit::Other,
        };
        Failure::new(exit, error)
    }
}

pub(crate) fn run(command: NdnCommand) -> Outcome {
    match command {
        NdnCommand::Get(arguments) => get::run(*arguments),
        NdnCommand::Serve(arguments) => serve::run(arguments),
        NdnCommand::Peek(arguments) => peek::run(arguments),
        NdnCommand::Poke(arguments) => poke::run(arguments),
        NdnCommand::Ping(arguments) => ping::run(arguments),
        NdnCommand::Paths(arguments) => paths::run(arguments),
        NdnCommand::Pingserver(arguments) => pingserver::run(arguments),
        NdnCommand::Traffic(command) => traffic::run(command),
    }
}

/// What a program does when its forwarder closes the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Exit.
    Ends,
    /// Wait for the forwarder to come back.
    Waits,
}

/// Runs `client` until `on_event` breaks with a result; `None` at Ctrl-C.
fn converse<A: Application + 'static, T>(
    client: &mut Client<A>,
    loss: Loss,
    mut on_event: impl FnMut(&mut A, Time, A::Event) -> ControlFlow<Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    exit::note_signals()?;
    let uplink = client.uplink().clone();
    let mut gone = false;
    let end = client.run(|application, now, told| match told {
        Told::Event(event) => on_event(application, now, event),
        Told::Connected => {
            if std::mem::take(&mut gone) {
                note(&format!("the forwarder on {uplink} is back"));
            }
            ControlFlow::Continue(())
        }
        Told::Gone if loss == Loss::Waits => {
            gone = true;
            note(&format!(
                "the forwarder on {uplink} closed the connection; waiting for it"
            ));
            ControlFlow::Continue(())
        }
        Told::Gone => {
            let text = format!("the forwarder on {uplink} closed the connection");
            ControlFlow::Break(Err(Failure::new(Exit::NoDaemon, text)))
        }
        // The first connection must succeed; later ones may wait for a forwarder that restarts.
        Told::Unreachable(_) if gone => ControlFlow::Continue(()),
        Told::Unreachable(error) => ControlFlow::Break(Err(failed(&uplink, error).into())),
    })?;
    match end {
        End::Done(result) => result.map(Some),
        End::Interrupted => Ok(None),
    }
}

/// Reports a registration. A failure that is permanent is an error.
fn registration(event: &RegistrationEvent) -> Result<(), Failure> {
    match event {
        RegistrationEvent::Registered(prefix) => tracing::info!(%prefix, "registered"),
        RegistrationEvent::Failed {
            prefix,
            reason,
            retry_in: Some(wait),
        } => {
            note(&format!(
                "{prefix} is not registered yet: {reason}; trying again in {:.1} s",
                wait.as_secs_f64()
            ));
        }
        RegistrationEvent::Failed {
            prefix,
            reason,
            retry_in: None,
        } => {
            return Err(Failure::new(
                Exit::Nack,
                format!("{prefix} cannot be registered: {reason}"),
            ));
        }
    }
    Ok(())
}

/// Parses a name in URI syntax.
pub(crate) fn name(text: &str) -> Result<Name, String> {
    let path = text.strip_prefix("ndn:").unwrap_or(text);
    if !path.starts_with('/') {
        return Err(format!("a name begins with '/': /{path}"));
    }
    path.parse()
        .map_err(|error: whimbrel_ndn_packet::ParseNameError| error.to_string())
}

/// Parses a duration: a plain number is milliseconds, as in other NDN programs.
fn millis(text: &str) -> Result<Duration, String> {
    units::parse_millis(text)
        .map_err(|error| format!("{error}; a number without a unit is milliseconds"))
}

/// Returns the time of day, as seconds since 1970 with six digits after the point, as ndn-tools
/// print it with -t.
fn timestamp() -> String {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    format!("{}.{:06}", since.as_secs(), since.subsec_micros())
}

/// Milliseconds as a number for scripts.
fn in_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_milliseconds() {
        assert_eq!(millis("4000"), Ok(Duration::from_secs(4)));
        assert_eq!(millis("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(millis("2min"), Ok(Duration::from_secs(120)));
        assert!(millis("-1").is_err() && millis("soon").is_err() && millis("").is_err());
    }

    #[test]
    fn names_may_have_the_scheme_of_other_programs() {
        assert_eq!(name("ndn:/a/b"), name("/a/b"));
        assert_eq!(name("/").map(|name| name.len()), Ok(0));
        assert!(name("a/b").is_err() && name("").is_err() && name("/a//b").is_err());
    }
}
