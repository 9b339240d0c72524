//! One file over Fig. 7, fetched by Whimbrel or by TCP, in virtual time or in namespaces: what the
//! bench measures. The studies' transfers ([`crate::study`]) also have a moment and a schedule.

use std::path::Path;
use std::time::Duration;

use whimbrel_core::Time;

use crate::daemons::Fig7Daemons;
use crate::simulated::{RepeatingContent, SimulatedFig7, SimulatedFig7Options, simulated_tcp};
use crate::{CongestionControl, Fig7, LabError, TcpBaseline, TransferRecord};

/// A simulated transfer is cut off at this moment of virtual time.
const SIMULATED_LIMIT: Time = Time::from_secs(4 * 3600);
/// After this long a transfer in namespaces is given up.
const PATIENCE: Duration = Duration::from_secs(900);

/// Whimbrel's transfer of `len` bytes in the simulator.
pub fn whimbrel_in_simulator(fig7: &Fig7, len: u64, seed: u64) -> Result<TransferRecord, LabError> {
    let mut world = SimulatedFig7::new(fig7, SimulatedFig7Options::default(), seed);
    let content = RepeatingContent::new(len, 1);
    let name = content.name();
    world.publish(content);
    let transfer = world.get(name);
    world
        .finish(transfer, SIMULATED_LIMIT)
        .map_err(|reason| LabError::Simulated(format!("{reason:?}")))
}

/// The same by smoltcp's Cubic.
pub fn tcp_in_simulator(fig7: &Fig7, len: u64, seed: u64) -> TransferRecord {
    simulated_tcp(fig7, len, Time::from_secs(1), SIMULATED_LIMIT, seed)
}

/// Whimbrel's transfer of a file in namespaces, with `program`'s daemons.
pub fn whimbrel_in_namespaces(
    program: &Path,
    fig7: &Fig7,
    file: &Path,
    seed: u64,
) -> Result<TransferRecord, LabError> {
    let folder = tempfile::tempdir().map_err(LabError::system("make a temporary folder"))?;
    let topology = fig7.build(seed)?;
    let mut daemons = Fig7Daemons::start(program, &topology, folder.path())?;
    let name = daemons.serve(file)?;
    daemons.fetch(&name, &folder.path().join("arrived"), PATIENCE, &mut ())
}

/// The same by the kernel's TCP.
pub fn tcp_in_namespaces(
    congestion: CongestionControl,
    fig7: &Fig7,
    file: &Path,
    seed: u64,
) -> Result<TransferRecord, LabError> {
    let topology = fig7.build(seed)?;
    let address = topology.address_of("N1", Fig7::SERVER_LINK)?;
    let baseline = TcpBaseline {
        congestion,
        patience: PATIENCE,
        ..TcpBaseline::default()
    };
    let fetched = baseline.fetch(
        topology.host("N1")?,
        address,
        topology.host("N4")?,
        file,
        &mut (),
    )?;
    Ok(fetched.record)
}
