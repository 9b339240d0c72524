//! Named links with published numbers, each with its source.
//!
//! All delays are **one-way**: where a source gives a round trip, each direction has half of it,
//! and the preset says so. The two directions are independent, so contention between them on a
//! half-duplex radio is not modelled. A queue holds one round trip's worth of data unless the
//! source gives its size; sources seldom do. Jitter is uniform here, whatever its distribution in the source, and a link has
//! none if its source gives none.

use core::time::Duration;

use super::{Change, LinkSpec, Loss, QueueLimit};

/// Two directions of an access link.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// The name in a scenario.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The source of the numbers, and the numbers that it gives.
    pub source: &'static str,
    /// From the subscriber or station to the network.
    pub uplink: LinkSpec,
    /// From the network to the subscriber or station.
    pub downlink: LinkSpec,
}

/// The per-frame overhead of 802.11g beyond the IP packet, as bytes at 54 Mbit/s.
///
/// After J. Jun, P. Peddabachagari and M. Sichitiu, "Theoretical Maximum Throughput of IEEE 802.11
/// and its Applications", NCA 2003, with the ERP-OFDM times of IEEE 802.11g (no 802.11b stations
/// near): DIFS 28 us, mean back-off 7.5 x 9 us, preamble and signal 20 us, data symbols with 36
/// bytes of MAC header, LLC and FCS and 22 bits of service and tail, signal extension 6 us, SIFS 10
/// us, ACK at 24 Mbit/s 28 us with its extension 6 us. A 1,500-byte packet then takes 28 + 67.5 +
/// 20 + 228 + 6 + 10 + 34 = 393.5 us, of which 222.2 us are its own bits at 54 Mbit/s; the other
/// 171.3 us are 1,156 bytes.
pub const WIFI_80211G_OVERHEAD: u32 = 1156;

/// Returns all presets.
pub fn presets() -> Vec<Preset> {
    vec![
        wifi_80211g_54(),
        lossy_wifi(),
        busy_wifi(),
        lte(),
        umts(),
        geo_satellite(),
        leo_satellite(),
        adsl(),
    ]
}

/// Returns the preset of that name.
pub fn preset(name: &str) -> Option<Preset> {
    presets().into_iter().find(|preset| preset.name == name)
}

fn millis(value: u64) -> Duration {
    Duration::from_millis(value)
}

/// Returns a link whose queue holds `queue_time` at its rate.
fn access(bits_per_second: u64, one_way: Duration, queue_time: Duration) -> LinkSpec {
    let bytes = (u128::from(bits_per_second) * queue_time.as_millis() / 8_000) as u64;
    LinkSpec::new(bits_per_second, one_way).with_queue(QueueLimit::Bytes(bytes))
}

/// Returns one direction of an 802.11g cell with a single station at 54 Mbit/s.
fn wifi_air() -> LinkSpec {
    LinkSpec {
        overhead: WIFI_80211G_OVERHEAD,
        ..LinkSpec::new(54_000_000, Duration::from_micros(1)).with_queue(QueueLimit::Packets(1_000))
    }
}

fn wifi_80211g_54() -> Preset {
    Preset {
        name: "wifi-80211g-54",
        summary: "802.11g at 54 Mbit/s, one station: about 30 Mbit/s of 1,500-byte packets",
        source: "IEEE 802.11g; Jun, Peddabachagari, Sichitiu, NCA 2003 (formula; see WIFI_80211G_OVERHEAD): fixed \
                 air time per frame on top of 54 Mbit/s. Measured networks reach 20 to 27 Mbit/s. Queue: Linux's \
                 default of 1,000 packets. One-way delay: 300 m of air",
        uplink: wifi_air(),
        downlink: wifi_air(),
    }
}

fn lossy_wifi() -> Preset {
    let lossy = wifi_air().with_loss(Loss::Independent(0.01));
    Preset {
        name: "lossy-wifi",
        summary: "wifi-80211g-54 with 1 % loss left over after the radio's own retransmissions",
        source: "as wifi-80211g-54; loss: MFTP (ICN 2015), section 5, methodology, which adds 1 % with netem",
        uplink: lossy.clone(),
        downlink: lossy,
    }
}

fn busy_wifi() -> Preset {
    let retry = Duration::from_micros(7_500);
    let busy = LinkSpec {
        delay: retry,
        jitter: retry,
        ..wifi_air()
    };
    Preset {
        name: "busy-wifi",
        summary: "wifi-80211g-54 among stations that do not hear each other: frames wait for up to 15 ms",
        source: "as wifi-80211g-54; jitter: [C4], wifi-jitter.md, whose model repeats collided frames after multiples of \
                 7.5 ms. A mean delay of one such interval is taken. Its tail, to 200 ms, is left to the scenario's outages",
        uplink: busy.clone(),
        downlink: busy,
    }
}

fn lte() -> Preset {
    let jitters = |spec: LinkSpec| LinkSpec {
        jitter: millis(4),
        ..spec
    };
    Preset {
        name: "lte",
        summary: "4G at the median of a 2012 measurement",
        source: "J. Huang et al., \"A Close Examination of Performance and Power Characteristics of 4G LTE \
                 Networks\", MobiSys 2012, abstract: medians 13 Mbit/s down, 6 Mbit/s up. Round trip 55 ms, half \
                 each way: Catchpoint, \"Network Latency: 4G\", Performance Calendar 2013 (median ping). Jitter: a block \
                 that the radio repeats comes 8 ms later (3GPP TS 36.321, HARQ round trip of FDD). Its changes of rate are \
                 left to the scenario's traces",
        uplink: jitters(access(
            6_000_000,
            Duration::from_micros(27_500),
            millis(250),
        )),
        downlink: jitters(access(
            13_000_000,
            Duration::from_micros(27_500),
            millis(250),
        )),
    }
}

fn umts() -> Preset {
    Preset {
        name: "3g",
        summary: "3G as an operator promised it",
        source: "Sprint's statement for its 3G network, quoted by P. Meenan, \"High Performance Mobile Web\", 2013, and \
                 I. Grigorik, \"High Performance Browser Networking\", chapter 7: 600 kbit/s to 1.4 Mbit/s down, 350 \
                 to 500 kbit/s up (the middles are taken), round trip 400 ms, half each way",
        uplink: access(425_000, millis(200), millis(1_000)),
        downlink: access(1_000_000, millis(200), millis(1_000)),
    }
}

fn geo_satellite() -> Preset {
    Preset {
        name: "geo-satellite",
        summary: "a geostationary satellite, one hop",
        source: "RFC 2488 section 2: 239.6 to 279.0 ms one way for ground-satellite-ground (the middle is taken). \
                 Rates: Viasat's median, 18.75 Mbit/s down and 2.96 Mbit/s up, Ookla Speedtest Q3 2021 (USA)",
        uplink: access(2_960_000, millis(259), millis(520)),
        downlink: access(18_750_000, millis(259), millis(520)),
    }
}

/// Time between two hand-overs of Starlink, and what each of them does to the link.
const HAND_OVER_EVERY: Duration = Duration::from_secs(15);
const HAND_OVER_LASTS: Duration = Duration::from_millis(215);
const HAND_OVER_DELAY: Duration = Duration::from_millis(20);
const HAND_OVER_LOSS: f64 = 0.5;
/// Hand-overs of the preset: those of ten minutes, a scenario's default limit.
const HAND_OVERS: u32 = 40;

/// Returns a link with Starlink's jitter, its loss, and its hand-overs.
fn handed_over(link: LinkSpec) -> LinkSpec {
    let (delay, loss) = (link.delay, Loss::Independent(0.01));
    let change = |at, delay, loss| Change {
        at,
        delay: Some(delay),
        loss: Some(loss),
        ..Change::default()
    };
    let hand_over = |number: u32| {
        let (at, lost) = (HAND_OVER_EVERY * number, Loss::Independent(HAND_OVER_LOSS));
        let begin = change(at, delay + HAND_OVER_DELAY, lost);
        [begin, change(at + HAND_OVER_LASTS, delay, loss)]
    };
    LinkSpec {
        jitter: millis(7),
        changes: (1..=HAND_OVERS).flat_map(hand_over).collect(),
        ..link.with_loss(loss)
    }
}

fn leo_satellite() -> Preset {
    Preset {
        name: "leo-satellite",
        summary: "a constellation in low orbit, with a hand-over every 15 s for ten minutes",
        source: "Starlink's medians, Ookla Speedtest Q4 2021 (USA): 104.97 Mbit/s down, 12.04 Mbit/s up, latency 40 ms \
                 round trip, half each way. [STARLINK]: a mean difference of 6.7 ms between successive round trips \
                 (7 ms of jitter each way), 1 to 2 % loss that is no congestion (1 % here, the rest at hand-overs), and at \
                 each hand-over 30 to 50 ms more (20 ms each way). [STARLINK-DELAY]: that lasts 140 ms after it and 75 ms \
                 before it. Its losses: up to half of the packets (IMC 2022, \"A browser-side view of Starlink \
                 connectivity\")",
        uplink: handed_over(access(12_040_000, millis(20), millis(40))),
        downlink: handed_over(access(104_970_000, millis(20), millis(40))),
    }
}

fn adsl() -> Preset {
    Preset {
        name: "dsl",
        summary: "ADSL at the rates that its standard demands at least",
        source: "ITU-T G.992.1: 6.144 Mbit/s down and 640 kbit/s up. Round trip 43 ms, half each way: FCC, \
                 \"Measuring Broadband America\", July 2012 (average of DSL services)",
        uplink: access(640_000, Duration::from_micros(21_500), millis(500)),
        downlink: access(6_144_000, Duration::from_micros(21_500), millis(250)),
    }
}

/// The three links of [MFTP §5], Fig. 7: server N1 - router N2 - access router N3 - client N4.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyMftp {
    /// Between server and router, each direction: Gigabit Ethernet.
    pub server_link: LinkSpec,
    /// Between the routers, each direction: Gigabit Ethernet plus half the emulated round trip.
    pub router_link: LinkSpec,
    /// From the access router to the client: 802.11g at 54 Mbit/s with random loss.
    pub wifi_downlink: LinkSpec,
    /// From the client to the access router: as the downlink.
    pub wifi_uplink: LinkSpec,
}

/// Returns `study-mftp`: the topology of [MFTP §5] with an emulated round trip between the routers
/// (there 10, 50 and 100 ms) and loss on the WiFi link (there 0 and 1 %) in both directions. The
/// paper gives neither the delay of the wires (1 us here), nor the queues (1,000 packets, Linux's
/// default then), nor whether the loss was in both directions.
pub fn study_mftp(round_trip: Duration, loss: Loss) -> StudyMftp {
    let wire = LinkSpec::new(1_000_000_000, Duration::from_micros(1));
    let wifi = wifi_air().with_loss(loss);
    StudyMftp {
        server_link: wire.clone(),
        router_link: LinkSpec {
            delay: wire.delay + round_trip / 2,
            ..wire
        },
        wifi_downlink: wifi.clone(),
        wifi_uplink: wifi,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid_named_once_and_has_a_source() {
        let all = presets();
        for preset in &all {
            assert!(
                preset.uplink.validate().is_ok() && preset.downlink.validate().is_ok(),
                "{}",
                preset.name
            );
            assert!(preset.source.len() > 40, "{}", preset.name);
            assert_eq!(
                all.iter().filter(|other| other.name == preset.name).count(),
                1
            );
        }
        assert!(preset("no-such-link").is_none());
    }

    #[test]
    fn a_satellite_hands_over_every_15_seconds_and_is_itself_in_between() {
        let link = preset("leo-satellite").unwrap().downlink;
        let at: Vec<Duration> = link.changes.iter().map(|it| it.at).collect();
        assert_eq!(at[..3], [millis(15_000), millis(15_215), millis(30_000)]);
        assert_eq!(at.last(), Some(&millis(600_215)));
        for pair in link.changes.chunks(2) {
            assert_eq!(pair[0].delay, Some(millis(40)));
            assert_eq!(
                (pair[1].delay, pair[1].loss),
                (Some(link.delay), Some(link.loss))
            );
        }
        // 1 to 2 % in all.
        let lasts = HAND_OVER_LASTS.as_secs_f64() / HAND_OVER_EVERY.as_secs_f64();
        let loss = lasts * HAND_OVER_LOSS + (1.0 - lasts) * 0.01;
        assert!((0.01..0.02).contains(&loss), "{loss}");
    }

    #[test]
    fn a_full_packet_takes_the_air_time_of_the_formula() {
        let bits = (1500 + WIFI_80211G_OVERHEAD) * 8;
        let micros = f64::from(bits) / 54.0;
        assert!((micros - 393.5).abs() < 0.1, "{micros}");
    }
}
