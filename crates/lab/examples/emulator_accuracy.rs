//! Measures the link emulator against what it was told to be:
//! `cargo run --release -p whimbrel-lab --example emulator_accuracy`.
#![allow(clippy::disallowed_methods)]

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use whimbrel_lab::{
    CongestionControl, DirectionReport, HttpClient, TcpBaseline, TcpRoute, Topology,
    TopologyBuilder, ensure_privileges,
};
use whimbrel_sim::link::{LinkSpec, QueueLimit};

/// Share of a 1500-byte packet that is TCP payload: 20 bytes of IP, 20 of TCP, 12 of time stamps.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

fn main() -> Result<(), Box<dyn Error>> {
    println!("privileges: {:?}", ensure_privileges()?);
    let directory = tempfile::tempdir()?;
    let delay = Duration::from_millis(25);
    let queue = QueueLimit::Bytes(512 * 1024);

    println!("\nround trips without load, in milliseconds");
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "link", "told", "min", "mean", "max", "deviation", "lateness"
    );
    for (name, spec, told) in [
        ("veth, not emulated", None, 0.0),
        ("unlimited, no delay", Some(LinkSpec::default()), 0.0),
        (
            "1 Gbit/s, 5 ms each way",
            Some(LinkSpec::new(1_000_000_000, Duration::from_millis(5))),
            10.0013,
        ),
        (
            "25 Mbit/s, 25 ms each way",
            Some(LinkSpec::new(25_000_000, delay)),
            50.0486,
        ),
    ] {
        let topology = pair(spec)?;
        let target = topology.address_of("b", "ab")?;
        let pings = topology.host("a")?.ping(
            target,
            300,
            Duration::from_millis(10),
            Duration::from_secs(1),
        )?;
        let reports = topology.link_reports()?;
        let late = reports.first().map_or(0, |link| {
            link.forward.mean_lateness_nanos + link.backward.mean_lateness_nanos
        });
        let ms = |seconds: Option<f64>| seconds.unwrap_or(f64::NAN) * 1e3;
        println!(
            "{name:<34} {told:>9.4} {:>9.4} {:>9.4} {:>9.4} {:>9.4} {:>9.4}",
            ms(pings.min()),
            ms(pings.mean()),
            ms(pings.max()),
            ms(pings.deviation()),
            late as f64 / 1e6,
        );
    }

    println!("\none TCP transfer, in Mbit/s of payload; lateness of the emulation in microseconds");
    println!(
        "{:<42} {:>9} {:>9} {:>8} {:>8} {:>8}",
        "link", "possible", "measured", "resent", "mean", "max"
    );
    let limited = LinkSpec::new(25_000_000, delay).with_queue(queue);
    let gigabit = LinkSpec::new(1_000_000_000, Duration::ZERO).with_queue(queue);
    for (name, spec, rate, megabytes, congestion) in [
        (
            "veth, not emulated",
            None,
            f64::NAN,
            2000,
            CongestionControl::Cubic,
        ),
        (
            "unlimited, no delay",
            Some(LinkSpec::default()),
            f64::NAN,
            2000,
            CongestionControl::Cubic,
        ),
        (
            "1 Gbit/s, no delay",
            Some(gigabit),
            1000.0,
            500,
            CongestionControl::Cubic,
        ),
        (
            "25 Mbit/s, 25 ms each way, cubic",
            Some(limited.clone()),
            25.0,
            40,
            CongestionControl::Cubic,
        ),
        (
            "25 Mbit/s, 25 ms each way, bbr",
            Some(limited),
            25.0,
            40,
            CongestionControl::Bbr,
        ),
    ] {
        transfer(
            name,
            spec,
            rate,
            &sparse_file(directory.path(), megabytes)?,
            congestion,
        )?;
    }
    Ok(())
}

fn transfer(
    name: &str,
    spec: Option<LinkSpec>,
    rate: f64,
    file: &Path,
    congestion: CongestionControl,
) -> Result<(), Box<dyn Error>> {
    let topology = pair(spec)?;
    let baseline = TcpBaseline {
        congestion,
        client: HttpClient::BuiltIn,
        ..TcpBaseline::default()
    };
    topology.arm(Instant::now())?;
    let address = topology.address_of("a", "ab")?;
    let done = baseline.fetch(
        TcpRoute::direct(topology.host("a")?, address, topology.host("b")?),
        file,
        &mut (),
    )?;
    // The last second of a transfer shows the rate without the slow start.
    let series = done.record.goodput_series(1.0);
    let steady = series
        .iter()
        .rev()
        .nth(1)
        .map_or(f64::NAN, |(_, rate)| rate / 1e6);
    let none = DirectionReport::default();
    let reports = topology.link_reports()?;
    let link = reports.first().map_or(&none, |link| &link.forward);
    println!(
        "{name:<42} {:>9.2} {:>9.2} {:>8} {:>8.1} {:>8.1}   steady {steady:.2}, {} queue drops",
        rate * PAYLOAD_SHARE,
        done.record.goodput() / 1e6,
        done.sender.retransmitted_segments,
        link.mean_lateness_nanos as f64 / 1e3,
        link.max_lateness_nanos as f64 / 1e3,
        link.dropped_queue,
    );
    Ok(())
}

fn pair(spec: Option<LinkSpec>) -> Result<Topology, whimbrel_lab::LabError> {
    let builder = TopologyBuilder::new(1).host("a").host("b");
    match spec {
        None => builder.veth("ab", "a", "b"),
        Some(spec) => builder.link("ab", "a", "b", spec.clone(), spec),
    }
    .build()
}

fn sparse_file(directory: &Path, megabytes: u64) -> std::io::Result<PathBuf> {
    let path = directory.join(format!("{megabytes}"));
    File::create(&path)?.set_len(megabytes * 1_000_000)?;
    Ok(path)
}
