//! Frames of the adaptive profile.
//!
//! ```text
//! 10kkwwar | number (1..4) | [r: distance] | [a: report] | [kk=3: form] | packet
//! 1000wwa0 | [ww=1: lowest number (4)]     | [a: report]
//! ```
//! `kk` is the [`Kind`]; `ww` the octets of the number less one. An Interest or Data lacks its type
//! and length; the form of kind 3 is 0 for a whole element, else the number of fragments, followed
//! by the index. The distance is a variable number: twice the count of numbers since the first
//! transmission of the packet, plus one if the sender requests a report at once. A report lists the
//! latest numbers that arrived: see [`Report`].

use core::time::Duration;

use crate::ndnlp::compact::{ADAPTIVE, Kind, PROFILE_MASK};

/// Maximum of runs in one report.
pub(crate) const MAX_RUNS: usize = 15;
/// Maximum of octets in a report: first octet, number, and three octets for each run.
pub(crate) const MAX_REPORT_LEN: usize = 1 + 4 + 3 * MAX_RUNS;
/// Maximum of octets of a frame beyond the packet, without its report: with this room left, a
/// packet can be sent and retransmitted.
pub(crate) const MAX_HEADER_LEN: usize = 1 + 4 + 5;
/// The longest run that can be encoded: three octets.
pub(crate) const MAX_RUN_LEN: u64 = (1 << 21) - 1;

/// A frame that is late by more than this may be mistaken for another one.
pub(crate) const MAX_REORDERING: Duration = Duration::from_millis(100);
/// After a number of more than one octet, no number of one octet is used for this long.
pub(crate) const HOLD_WIDE: Duration = Duration::from_millis(200);

const REPORT: u8 = 2;
const RESENT: u8 = 1;

/// The low octets of a frame's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortNumber {
    pub(crate) low: u32,
    /// 1 to 4.
    pub(crate) width: u8,
}

impl ShortNumber {
    pub(crate) fn new(number: u64, width: u8) -> ShortNumber {
        let width = width.clamp(1, 4);
        ShortNumber {
            low: (number & mask(width)) as u32,
            width,
        }
    }

    /// Returns the number nearest to `expected` that ends in these octets.
    pub(crate) fn expand(self, expected: u64) -> u64 {
        let window = mask(self.width) + 1;
        let candidate = (expected & !mask(self.width)) | u64::from(self.low);
        if candidate + window / 2 <= expected {
            candidate + window
        } else if candidate > expected + window / 2 && candidate >= window {
            candidate - window
        } else {
            candidate
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        let octets = self.low.to_be_bytes();
        out.extend_from_slice(
            octets
                .get(4 - usize::from(self.width)..)
                .unwrap_or_default(),
        );
    }
}

/// Returns the mask of a number of this many octets.
pub(crate) fn mask(width: u8) -> u64 {
    (1 << (8 * u32::from(width))) - 1
}

/// The numbers that arrived: the top one did, and then, downwards, runs of numbers that arrived and
/// that did not alternate.
///
/// ```text
/// wwddcccc | top number (1..4) | run x cccc
/// ```
/// `ww` octets of the number less one; `dd` the delay of the report since the top number arrived,
/// in thirds of the agreed maximum; `cccc` runs, each a variable number. The first one is of
/// arrivals and may be 0; the others are written less one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report<'a> {
    pub(crate) top: ShortNumber,
    pub(crate) waited: u8,
    runs: &'a [u8],
}

impl Report<'_> {
    /// Returns the runs downwards from just below the top, and whether they arrived.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, bool)> + use<'_> {
        let mut rest = self.runs;
        let mut index = 0u64;
        core::iter::from_fn(move || {
            let (run, after) = read_var(rest)?;
            rest = after;
            index += 1;
            Some((run + u64::from(index > 1), index % 2 == 1))
        })
    }
}

/// Writes a report: its runs as [`Report::runs`] yields them.
pub(crate) fn write_report(out: &mut Vec<u8>, top: ShortNumber, waited: u8, runs: &[u64]) {
    let runs = runs.get(..MAX_RUNS).unwrap_or(runs);
    out.push((top.width - 1) << 6 | waited.min(3) << 4 | runs.len() as u8);
    top.write(out);
    for (index, run) in runs.iter().enumerate() {
        write_var(
            out,
            run.saturating_sub(u64::from(index > 0)).min(MAX_RUN_LEN),
        );
    }
}

/// Marks a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resent {
    /// The count of numbers since the first transmission.
    pub(crate) back: u64,
    /// The sender requests a report at once.
    pub(crate) ask: bool,
}

/// The payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    /// The value of an Interest or Data.
    Value(Kind, &'a [u8]),
    /// A whole element.
    Whole(&'a [u8]),
    /// A fragment of an element.
    Fragment {
        index: u8,
        count: u8,
        bytes: &'a [u8],
    },
}

/// A received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdaptiveFrame<'a> {
    /// A packet under a number.
    Packet {
        number: ShortNumber,
        resent: Option<Resent>,
        report: Option<Report<'a>>,
        payload: Payload<'a>,
    },
    /// A report, or a request for a report of everything from the number in `ask` upwards.
    Control {
        ask: Option<u32>,
        report: Option<Report<'a>>,
    },
}

impl<'a> AdaptiveFrame<'a> {
    /// Decodes a frame. Returns `None` if it is not valid.
    pub(crate) fn decode(frame: &'a [u8]) -> Option<AdaptiveFrame<'a>> {
        let (&first, rest) = frame.split_first()?;
        if first & PROFILE_MASK != ADAPTIVE {
            return None;
        }
        let width = (first >> 2 & 3) + 1;
        let kind = Kind::from_bits(first >> 4);
        if kind == Kind::Nothing {
            return decode_control(first, rest);
        }
        let (number, mut rest) = read_short(rest, width)?;
        let mut resent = None;
        if first & RESENT != 0 {
            let (distance, after) = read_var(rest)?;
            resent = Some(Resent {
                back: distance >> 1,
                ask: distance & 1 == 1,
            });
            rest = after;
        }
        let (report, rest) = if first & REPORT != 0 {
            read_report(rest)?
        } else {
            (None, rest)
        };
        let payload = match kind {
            Kind::Other => match *rest {
                [0, ref whole @ ..] => Payload::Whole(whole),
                [1, ..] | [] | [_] => return None,
                [count, index, ref bytes @ ..] => Payload::Fragment {
                    index,
                    count,
                    bytes,
                },
            },
            kind => Payload::Value(kind, rest),
        };
        Some(AdaptiveFrame::Packet {
            number,
            resent,
            report,
            payload,
        })
    }
}

fn decode_control(first: u8, rest: &[u8]) -> Option<AdaptiveFrame<'_>> {
    let (ask, rest) = match first >> 2 & 3 {
        0 => (None, rest),
        1 => {
            let (lowest, rest) = rest.split_first_chunk::<4>()?;
            (Some(u32::from_be_bytes(*lowest)), rest)
        }
        _ => return None,
    };
    let (report, padding) = if first & REPORT != 0 {
        read_report(rest)?
    } else {
        (None, rest)
    };
    let fits = first & RESENT == 0 && padding.iter().all(|octet| *octet == 0);
    fits.then_some(AdaptiveFrame::Control { ask, report })
}

fn read_short(bytes: &[u8], width: u8) -> Option<(ShortNumber, &[u8])> {
    let (octets, rest) = bytes.split_at_checked(usize::from(width))?;
    let low = octets
        .iter()
        .fold(0, |low, octet| low << 8 | u32::from(*octet));
    Some((ShortNumber { low, width }, rest))
}

fn read_report(bytes: &[u8]) -> Option<(Option<Report<'_>>, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (top, runs) = read_short(rest, (first >> 6) + 1)?;
    let mut rest = runs;
    for _ in 0..first & 15 {
        rest = read_var(rest)?.1;
    }
    let runs = runs.get(..runs.len() - rest.len())?;
    Some((
        Some(Report {
            top,
            waited: first >> 4 & 3,
            runs,
        }),
        rest,
    ))
}

/// Reads a variable number: seven bits in each octet, the lowest first; the top bit marks that more
/// follow.
fn read_var(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (index, octet) in bytes.iter().take(5).enumerate() {
        number |= u64::from(octet & 0x7f) << (7 * index);
        if octet & 0x80 == 0 {
            return Some((number, bytes.get(index + 1..)?));
        }
    }
    None
}

fn write_var(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the octets before the report and the packet. `report` is true if a report follows.
pub(crate) fn write_packet_start(
    out: &mut Vec<u8>,
    kind: Kind,
    number: ShortNumber,
    resent: Option<Resent>,
    report: bool,
) {
    let flags = if report { REPORT } else { 0 } | if resent.is_some() { RESENT } else { 0 };
    out.push(ADAPTIVE | (kind as u8) << 4 | (number.width - 1) << 2 | flags);
    number.write(out);
    if let Some(resent) = resent {
        write_var(out, resent.back << 1 | u64::from(resent.ask));
    }
}

/// Appends the octets before the report of a frame without a packet.
pub(crate) fn write_control_start(out: &mut Vec<u8>, ask: Option<u32>, report: bool) {
    let flags = if report { REPORT } else { 0 };
    match ask {
        None => out.push(ADAPTIVE | flags),
        Some(lowest) => {
            out.push(ADAPTIVE | 1 << 2 | flags);
            out.extend_from_slice(&lowest.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_short_number_is_expanded_to_the_nearest(
            expected in 1u64 << 33..1 << 40, width in 1u8..5, distance in any::<u32>(), below: bool,
        ) {
            let half = mask(width) / 2;
            let distance = u64::from(distance) % half;
            let number = if below { expected - distance } else { expected + distance };
            prop_assert_eq!(ShortNumber::new(number, width).expand(expected), number);
        }

        #[test]
        fn encoded_frames_decode_to_the_same_values(
            kind in prop_oneof![Just(Kind::Interest), Just(Kind::Data)],
            number: u32, width in 1u8..5,
            resent in prop::option::of((0u64..1 << 30, any::<bool>())),
            report in prop::option::of((any::<u32>(), 1u8..5, 0u8..4, prop::collection::vec(1u64..5000, 0..16))),
            value in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let number = ShortNumber::new(u64::from(number), width);
            let resent = resent.map(|(back, ask)| Resent { back, ask });
            let mut frame = Vec::new();
            write_packet_start(&mut frame, kind, number, resent, report.is_some());
            if let Some((top, width, waited, runs)) = &report {
                write_report(&mut frame, ShortNumber::new(u64::from(*top), *width), *waited, runs);
            }
            frame.extend_from_slice(&value);
            let Some(AdaptiveFrame::Packet { number: n, resent: r, report: p, payload }) =
                AdaptiveFrame::decode(&frame) else { panic!("{frame:02x?}") };
            prop_assert_eq!((n, r, payload), (number, resent, Payload::Value(kind, &value)));
            prop_assert_eq!(p.is_some(), report.is_some());
            if let (Some(read), Some((top, width, waited, runs))) = (p, report) {
                prop_assert_eq!(read.top, ShortNumber::new(u64::from(top), width));
                prop_assert_eq!(read.waited, waited);
                let expected: Vec<_> =
                    runs.iter().enumerate().map(|(index, run)| (*run, index % 2 == 0)).collect();
                prop_assert_eq!(read.runs().collect::<Vec<_>>(), expected);
            }
        }

        #[test]
        fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(AdaptiveFrame::Packet { report: Some(report), .. }) = AdaptiveFrame::decode(&octets) {
                prop_assert!(report.runs().count() <= MAX_RUNS);
            }
        }
    }
}
