//! The lines of `whimbrel get --json` and `whimbrel ndn get --json`.

use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::{LabError, Program, TransferMeter, TransferObserver, TransferRecord};

/// A line that `whimbrel get --json` or `whimbrel ndn get --json` prints.
#[derive(Deserialize)]
struct GetLine {
    event: String,
    progress: Option<GetProgress>,
    fetched: Option<GetFetched>,
    stats: Option<NdnStats>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct NdnStats {
    bytes: u64,
}

#[derive(Deserialize)]
struct GetProgress {
    bytes: u64,
    resumed: u64,
    // MobilityFirst's fetches say it.
    pause_us: Option<u64>,
}

#[derive(Deserialize)]
struct GetFetched {
    received: u64,
}

/// Interval at which the observer is asked whether the transfer goes on.
const LOOK: Duration = Duration::from_millis(100);

/// Follows a `get --json` or `ndn get --json` that has `started` until it ends; kills it at the end
/// of `patience`, or on the observer's order. The inner error is the program's own.
pub(super) fn watch_get(
    program: &mut Program,
    started: Instant,
    patience: Duration,
    observer: &mut dyn TransferObserver,
) -> Result<Result<TransferRecord, String>, LabError> {
    let mut meter = TransferMeter::new(started);
    let mut failure = None;
    let mut completed = false;
    let deadline = started + patience;
    while observer.goes_on() && Instant::now() < deadline {
        let wait = deadline.saturating_duration_since(Instant::now());
        let line = match program.line(wait.min(LOOK)) {
            Ok(Some(line)) => line,
            Ok(None) => continue,
            Err(_) => break,
        };
        let at = line.at;
        let Ok(line) = serde_json::from_str::<GetLine>(&line.text) else {
            continue;
        };
        let pause = line
            .progress
            .as_ref()
            .and_then(|progress| progress.pause_us);
        // With the last bytes, it was said in the line before.
        let pause = pause.or(line.fetched.is_some().then_some(0));
        let progress = line
            .progress
            .map(|progress| progress.bytes.saturating_sub(progress.resumed));
        // The very last line counts the bytes since the last line of progress.
        let here = line.fetched.map(|fetched| fetched.received).or(progress);
        if let Some(here) = here.or(line.stats.map(|stats| stats.bytes)) {
            // A line may report a state alone; only bytes end a stall.
            let more = here.saturating_sub(meter.bytes());
            match pause {
                _ if more == 0 => {}
                Some(pause) => meter.reported(at, more, Duration::from_micros(pause)),
                None => meter.arrived(at, more),
            }
            observer.progress(at.saturating_duration_since(started), meter.bytes());
        }
        completed |= line.event == "done";
        failure = failure.or(line.error);
    }
    if let Some(failure) = failure {
        return Ok(Err(failure));
    }
    if !completed {
        program.process().kill()?;
    }
    Ok(Ok(meter.finish(Instant::now(), completed)))
}
