//! The reasons, and their texts.

use core::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_core::Guid;
use whimbrel_core::units::format_duration;

/// The number of digits of a node's GUID in a line.
const SHORT_GUID: usize = 8;

fn short(guid: &Guid) -> String {
    let mut text = guid.to_string();
    text.truncate(SHORT_GUID);
    text
}

/// The reason why a program waits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Wait {
    /// The host daemon has ended.
    NoHost,
    /// No router, or no host that is asked directly, responds.
    NotConnected {
        /// The neighbours that were tried.
        to: Vec<Tried>,
        /// Seconds since one of them was last heard, or since the start.
        for_s: u64,
    },
    /// No router has an address yet: their host names cannot be looked up.
    NoAddress {
        /// A host name.
        host: String,
        /// The reason why it cannot be looked up.
        error: String,
        /// Seconds until it is looked up again.
        again_in_s: u64,
    },
    /// A router, or the name service behind it, does not accept records by this host's clock.
    ClockRefused {
        /// Milliseconds by which the router's clock is ahead; negative if it is behind.
        #[serde(skip_serializing_if = "Option::is_none")]
        router_ahead_ms: Option<i64>,
    },
    /// The router reaches no name server.
    NameServerSilent,
    /// A router keeps the request: no holder of the content can be reached.
    ProviderAway {
        /// The router.
        kept_by: Guid,
        /// Seconds since it first said so.
        for_s: u64,
    },
    /// Nothing has arrived, and no holder of the content has announced it.
    Unannounced {
        /// The neighbours that were asked.
        asked: Vec<String>,
        /// True if they use no name service: only their own hosts can be found.
        without_name_service: bool,
        /// Seconds since one of them first said so.
        for_s: u64,
    },
    /// A part has arrived, and nobody is known any more who has the rest.
    NoHolder {
        /// The neighbours that were asked.
        asked: Vec<String>,
        /// Seconds since one of them first said so.
        for_s: u64,
    },
    /// A path drops large packets without notice; smaller ones are tried.
    Mtu {
        /// The neighbour's address.
        peer: String,
        /// Bytes of the largest frame that is sent now.
        largest_frame: u64,
    },
    /// What arrives for the transfer does not fit the content's name, and is refused.
    FalseData {
        /// The node that sends it.
        from: Guid,
        /// The neighbour over which it comes, if it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<String>,
        /// True if that neighbour is the node itself.
        direct: bool,
        /// Chunks that were refused since the last true one.
        refused: u64,
    },
    /// An NDN forwarder answers with a Nack of a kind that may pass.
    Nack {
        /// The forwarder.
        from: String,
        /// The reason in the Nack.
        reason: String,
        /// Seconds after which a fetch no longer goes on in spite of it, if it is a matter of time.
        #[serde(skip_serializing_if = "Option::is_none")]
        gives_up_after_s: Option<u64>,
    },
    /// Requested, and nothing has arrived yet.
    NoAnswer {
        /// The neighbours that respond.
        asked: Vec<String>,
        /// Seconds since the request.
        for_s: u64,
    },
    /// The host is connected, and no sender of a spoken code answers.
    NoSender {
        /// The number of the code.
        number: u16,
        /// The neighbours that respond.
        asked: Vec<String>,
        /// Seconds since the sender could have answered.
        for_s: u64,
    },
    /// A part has arrived, and then nothing more.
    Stalled {
        /// Seconds since the last chunk.
        for_s: u64,
    },
}

/// A neighbour that does not respond.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tried {
    /// Its address, or its name.
    pub peer: String,
    /// Why this host sends nothing to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shut: Option<Shut>,
    /// True if this machine has no route to it, or the interface of the route does not work.
    pub no_way: bool,
    /// True if its machine answers that no program receives there.
    pub refused: bool,
    /// Why it does not talk with this node, if it has said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwilling: Option<String>,
}

/// Why a host carries nothing over one of its links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shut {
    /// Its quota is used up until the next period.
    Quota,
    /// It is switched off.
    Off,
}

impl Wait {
    /// Returns true at the start of every host, which has no connection for a moment.
    pub fn begins(&self) -> bool {
        let has_said =
            |it: &Tried| it.refused || it.no_way || it.shut.is_some() || it.unwilling.is_some();
        matches!(self, Wait::NotConnected { for_s: 0, to } if !to.is_empty() && !to.iter().any(has_said))
    }

    /// Returns true if both are the same reason, even at different times.
    pub fn is_same_reason(&self, other: &Wait) -> bool {
        match (self, other) {
            (Wait::NotConnected { to: one, .. }, Wait::NotConnected { to: two, .. }) => one == two,
            (Wait::Mtu { peer: one, .. }, Wait::Mtu { peer: two, .. })
            | (Wait::NoAddress { host: one, .. }, Wait::NoAddress { host: two, .. }) => one == two,
            (Wait::Nack { reason: one, .. }, Wait::Nack { reason: two, .. }) => one == two,
            (Wait::FalseData { from: one, .. }, Wait::FalseData { from: two, .. }) => one == two,
            (one, two) => core::mem::discriminant(one) == core::mem::discriminant(two),
        }
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match (&self.unwilling, self.shut) {
            (_, Some(Shut::Quota)) => {
                "its quota is used up for this period (`whimbrel host interfaces` shows and changes it)"
            }
            (_, Some(Shut::Off)) => {
                "it is switched off (`whimbrel host interfaces set LABEL --on`)"
            }
            (Some(why), None) => why,
            _ if self.no_way => "no route, or its interface is down",
            _ if self.refused => "Connection refused",
            _ => "no answer",
        };
        write!(f, "{}: {answer}", self.peer)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |s: &u64| format_duration(Duration::from_secs(*s));
        match self {
            Wait::NoHost => f.write_str("the host daemon has ended"),
            Wait::NotConnected { to, .. } if to.is_empty() => {
                f.write_str("not connected: the host has no link")
            }
            Wait::NotConnected { to, for_s } => {
                let to: Vec<String> = to.iter().map(Tried::to_string).collect();
                write!(
                    f,
                    "not connected for {} ({})",
                    seconds(for_s),
                    to.join("; ")
                )
            }
            Wait::NoAddress {
                host,
                error,
                again_in_s,
            } => write!(
                f,
                "cannot look up {host}: {error}; trying again in {}",
                seconds(again_in_s)
            ),
            Wait::ClockRefused { router_ahead_ms } => clock_refused(f, *router_ahead_ms),
            Wait::NameServerSilent => f.write_str("the router's name server is silent"),
            Wait::ProviderAway { kept_by, for_s } => {
                write!(
                    f,
                    "no way to a provider for {}; router {} keeps the request (`whimbrel router status` there says why)",
                    seconds(for_s),
                    short(kept_by)
                )
            }
            Wait::Unannounced {
                asked,
                without_name_service,
                for_s,
            } => unannounced(f, asked, *without_name_service, &seconds(for_s).to_string()),
            Wait::NoHolder { asked, for_s } => write!(
                f,
                "nobody serves the rest for {} (asked {})",
                seconds(for_s),
                asked.join(", ")
            ),
            Wait::Mtu {
                peer,
                largest_frame,
            } => write!(
                f,
                "large packets to {peer} vanish (MTU); trying {largest_frame} bytes"
            ),
            Wait::NoAnswer { asked, for_s } => {
                write!(
                    f,
                    "asked {}, no answer for {}",
                    asked.join(", "),
                    seconds(for_s)
                )
            }
            Wait::FalseData {
                from,
                at,
                direct,
                refused,
            } => {
                let place = if *direct { "at" } else { "behind" };
                false_data(
                    f,
                    from,
                    at.as_ref().map(|at| format!(" {place} {at}")),
                    *refused,
                )
            }
            Wait::Nack {
                from,
                reason,
                gives_up_after_s,
            } => {
                write!(f, "{from} answers with a Nack ({reason}); trying again")?;
                match gives_up_after_s {
                    Some(after) => write!(f, ", for {} in all", seconds(after)),
                    None => Ok(()),
                }
            }
            Wait::NoSender {
                number,
                asked,
                for_s,
            } => write!(
                f,
                "no sender with number {number} answers for {} (asked {}): check the number, and that `send` still runs",
                seconds(for_s),
                asked.join(", ")
            ),
            Wait::Stalled { for_s } => write!(f, "no data for {}", seconds(for_s)),
        }
    }
}

fn clock_refused(f: &mut fmt::Formatter<'_>, router_ahead_ms: Option<i64>) -> fmt::Result {
    let Some(ahead) = router_ahead_ms else {
        return f.write_str("clock refused: the router's and its name server's differ");
    };
    let direction = if ahead < 0 { "ahead of" } else { "behind" };
    let by = match ahead.unsigned_abs() / 1000 {
        seconds if seconds > 2 * 86_400 => format!("{} d", seconds / 86_400),
        seconds => format!("{seconds} s"),
    };
    write!(
        f,
        "clock refused: this machine's is {by} {direction} the router's; set the wrong one of the two"
    )
}

fn unannounced(
    f: &mut fmt::Formatter<'_>,
    asked: &[String],
    without_name_service: bool,
    waited: &str,
) -> fmt::Result {
    f.write_str("nobody has announced this name")?;
    if !asked.is_empty() {
        write!(f, " to {}", asked.join(", "))?;
    }
    if without_name_service {
        f.write_str(", which uses no name service and knows its own hosts alone,")?;
    }
    write!(
        f,
        " for {waited}: its sender is away or has not begun, or the name is wrong"
    )
}

fn false_data(
    f: &mut fmt::Formatter<'_>,
    from: &Guid,
    place: Option<String>,
    refused: u64,
) -> fmt::Result {
    let place = place.unwrap_or_default();
    write!(
        f,
        "{}{place} sends data that does not fit its name; {refused} refused",
        short(from)
    )
}
