//! A trial in real time: daemons or the kernel's TCP in namespaces of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Approach, Outcome, ProxyUse, Trial};
use crate::daemons::{Fig7Daemons, Fig7Settings};
use crate::{Fig7, LabError, TcpBaseline, Topology, TransferObserver};

pub(super) fn run(trial: &Trial, program: &Path) -> Result<Outcome, LabError> {
    let folder = tempfile::tempdir().map_err(LabError::system("make a temporary folder"))?;
    let file = folder.path().join("file");
    crate::demo::make_file(&file, trial.file_len, trial.seed)?;
    let topology = trial.testbed(Duration::ZERO).build(trial.seed)?;
    let mut schedule = Schedule {
        topology: &topology,
        asked: trial.asked,
    };
    let settings = match trial.approach {
        Approach::Tcp => return fetch_by_tcp(trial, &topology, &file, &mut schedule),
        Approach::Proactive => Fig7Settings::default(),
        Approach::ReceiverDriven { nack_timeout } => Fig7Settings {
            router_config: String::from("[storage]\nproactive = false\n"),
            nack_timeout: Some(nack_timeout),
        },
    };
    let mut daemons = Fig7Daemons::start_with(program, &topology, folder.path(), settings)?;
    let name = daemons.serve(&file)?;
    let record = daemons.fetch(
        &name,
        &folder.path().join("arrived"),
        trial.patience,
        &mut schedule,
    )?;
    Ok(Outcome {
        record,
        proxy: ProxyUse::of(&daemons.status(3)?),
    })
}

fn fetch_by_tcp(
    trial: &Trial,
    topology: &Topology,
    file: &Path,
    schedule: &mut Schedule<'_>,
) -> Result<Outcome, LabError> {
    let address = topology.address_of("N1", Fig7::SERVER_LINK)?;
    let baseline = TcpBaseline {
        patience: trial.patience,
        ..TcpBaseline::default()
    };
    let transfer = baseline.fetch(
        topology.host("N1")?,
        address,
        topology.host("N4")?,
        file,
        schedule,
    )?;
    Ok(Outcome {
        record: transfer.record,
        proxy: None,
    })
}

/// Starts the link's schedule so that the request falls `asked` after its beginning.
struct Schedule<'a> {
    topology: &'a Topology,
    asked: Duration,
}

impl TransferObserver for Schedule<'_> {
    fn started(&mut self, at: Instant) {
        // A machine that has only just been started may have no such instant.
        let armed = at
            .checked_sub(self.asked)
            .map(|begin| self.topology.arm(begin));
        match armed {
            Some(Ok(())) => {}
            Some(Err(fault)) => tracing::warn!(%fault, "the outage will not come"),
            None => {
                tracing::warn!("the outage will not come: the clock has not run for long enough")
            }
        }
    }
}
