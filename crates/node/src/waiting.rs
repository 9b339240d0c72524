//! Why a program waits, in words: from the state of its transfer and from its host's status.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use whimbrel_mobilityfirst::local::LocalRequest;

use crate::fetch::State;

/// How long a program waits before it looks for the reason.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// How often it looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long an error message of the network may take.
const ERROR_PATIENCE: Duration = Duration::from_millis(100);
/// The request number of questions for the host's status; transfers have smaller ones.
const STATUS: u32 = u32::MAX;
/// Smaller differences of clocks are tolerated everywhere.
const TOLERATED_CLOCK_MS: i64 = 30_000;

/// A wait and its reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Waiting {
    /// The reason, for a person.
    pub reason: String,
    /// How long it has lasted, in seconds.
    pub seconds: u64,
}

/// The part of a host's status that explains waits.
#[derive(Debug, Deserialize)]
struct HostView {
    links: Vec<LinkView>,
    clock: Option<ClockView>,
}

#[derive(Debug, Deserialize)]
struct LinkView {
    peer: String,
    neighbour: Option<String>,
    up: bool,
    caller: bool,
}

#[derive(Debug, Deserialize)]
struct ClockView {
    router_ahead_ms: i64,
    adopted: bool,
}

/// Follows one program's wait.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Option<State>,
    since: Instant,
    asked: Option<Instant>,
    reason: Option<String>,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch {
            state: None,
            since: Instant::now(),
            asked: None,
            reason: None,
        }
    }

    /// What is to be asked of the host now.
    pub(crate) fn due(&mut self, state: State) -> Option<LocalRequest> {
        if self.state != Some(state) {
            (self.state, self.since) = (Some(state), Instant::now());
            (self.asked, self.reason) = (None, None);
        }
        if matches!(state, State::Flowing | State::NoHost) {
            return None;
        }
        let due = match self.asked {
            Some(asked) => asked.elapsed() >= LOOK_AGAIN,
            None => self.since.elapsed() >= FIRST_LOOK,
        };
        due.then(|| {
            self.asked = Some(Instant::now());
            LocalRequest::Status { request: STATUS }
        })
    }

    /// The host has answered [`Watch::due`].
    pub(crate) fn note_status(&mut self, json: &str) {
        if let (Some(state), Ok(view)) = (self.state, serde_json::from_str::<HostView>(json)) {
            self.reason = Some(explain(state, &view));
        }
    }

    /// The host has answered [`Watch::due`] to a program that waits for nothing but its links.
    pub(crate) fn note_uplinks(&mut self, json: &str) {
        let Ok(view) = serde_json::from_str::<HostView>(json) else {
            return;
        };
        let mut uplinks = view.links;
        uplinks.retain(|link| !link.caller);
        let alone = uplinks.is_empty() || uplinks.iter().any(|link| link.up);
        let clock = view.clock.as_ref().and_then(wrong_clock);
        self.reason = if alone {
            clock
        } else {
            Some(not_connected(&uplinks))
        };
    }

    /// The wait, if there is one that has lasted.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        let reason = match self.state? {
            State::Flowing => return None,
            State::NoHost => String::from("the host daemon has gone; it is tried again"),
            _ => self.reason.clone()?,
        };
        Some(Waiting {
            reason,
            seconds: self.since.elapsed().as_secs(),
        })
    }
}

/// Why a program that is in `state` waits.
fn explain(state: State, view: &HostView) -> String {
    let responsive: Vec<&str> = view
        .links
        .iter()
        .filter(|link| link.up)
        .map(|link| link.peer.as_str())
        .collect();
    let reason = match state {
        _ if responsive.is_empty() => not_connected(&view.links),
        State::Stalled => format!(
            "no data comes over {}: the path or its other end is silent",
            responsive.join(", ")
        ),
        _ => format!(
            "asked {}; nobody has answered yet: who has it may be away",
            responsive.join(", ")
        ),
    };
    match view.clock.as_ref().and_then(wrong_clock) {
        Some(clock) => format!("{reason}; {clock}"),
        None => reason,
    }
}

/// What keeps a host without a responsive neighbour from each of them.
fn not_connected(links: &[LinkView]) -> String {
    let of_link = |link: &LinkView| {
        let why = match &link.neighbour {
            Some(_) => "it has fallen silent",
            None => "no answer",
        };
        format!(
            "not connected to {}: {}",
            link.peer,
            network_error(&link.peer).unwrap_or(why)
        )
    };
    match links {
        [] => String::from("not connected: the host has no link to a router"),
        links => links.iter().map(of_link).collect::<Vec<_>>().join("; "),
    }
}

/// What the network says of datagrams to this address, if it says anything. An empty datagram is
/// sent: no protocol takes it for anything.
fn network_error(peer: &str) -> Option<&'static str> {
    let peer: SocketAddr = peer.parse().ok()?;
    let any = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let ask = || {
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(ERROR_PATIENCE))?;
        socket.connect(peer)?;
        socket.send(&[])?;
        socket.recv(&mut [0; 1])
    };
    match ask().err()?.kind() {
        ErrorKind::ConnectionRefused => Some("connection refused, nobody listens on that port"),
        ErrorKind::NetworkUnreachable => Some("network is unreachable"),
        ErrorKind::HostUnreachable => Some("no route to host"),
        ErrorKind::PermissionDenied => Some("a firewall of this machine forbids it"),
        _ => None,
    }
}

fn wrong_clock(clock: &ClockView) -> Option<String> {
    let ahead = clock.router_ahead_ms;
    (ahead.abs() > TOLERATED_CLOCK_MS && !clock.adopted).then(|| {
        let seconds = ahead.unsigned_abs() / 1000;
        let way = if ahead > 0 { "behind" } else { "ahead of" };
        format!("this machine's clock is {seconds} s {way} its router's")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(json: &str) -> HostView {
        serde_json::from_str(json).expect("a status")
    }

    #[test]
    fn a_host_without_an_answer_says_to_whom_it_is_not_connected() {
        let silent = view(
            r#"{"links": [{"peer": "192.0.2.1:4711", "neighbour": "ab", "up": false, "caller": false}], "clock": null}"#,
        );
        let text = explain(State::Disconnected, &silent);
        assert!(
            text.starts_with("not connected to 192.0.2.1:4711: "),
            "{text}"
        );
        let none = view(r#"{"links": [], "clock": null}"#);
        assert!(explain(State::Disconnected, &none).contains("no link to a router"));
    }

    #[test]
    fn a_port_without_a_listener_is_told_from_a_silent_one() {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let silent = silent.local_addr().expect("its address").to_string();
        // Nobody listens there any more.
        assert!(network_error(&silent).is_some_and(|why| why.contains("refused")));
        let bound = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = bound.local_addr().expect("its address").to_string();
        assert_eq!(network_error(&address), None);
    }

    #[test]
    fn a_clock_that_is_off_is_named_with_its_seconds() {
        let link = r#"{"peer": "192.0.2.1:4711", "neighbour": "ab", "up": true, "caller": false}"#;
        let clock = r#"{"router_ahead_ms": -312000, "adopted": false}"#;
        let off = view(&format!(r#"{{"links": [{link}], "clock": {clock}}}"#));
        let text = explain(State::Requested, &off);
        assert!(
            text.contains("clock is 312 s ahead of its router's"),
            "{text}"
        );
        assert!(text.contains("asked 192.0.2.1:4711"), "{text}");
    }
}
