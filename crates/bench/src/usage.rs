//! Resource use of programs from the kernel's accounts: processor time, user and system, and
//! memory.

use std::time::Duration;

use whimbrel_lab::process;

use crate::BenchError;

/// Processor time of the process `pid` so far, all its threads together.
pub(crate) fn cpu_of_process(pid: u32) -> Result<Duration, BenchError> {
    let action = format!("read the processor time of process {pid}");
    process::cpu_of_process(pid).map_err(BenchError::system(action))
}

/// Processor time of all children of this process that were waited for.
pub(crate) fn cpu_of_ended_children() -> Result<Duration, BenchError> {
    let action = "read the processor time of ended children";
    process::cpu_of_ended_children().map_err(BenchError::system(action))
}

/// Processor time of the whole machine so far, all its cores together; includes the time that a
/// hypervisor gave to others.
pub(crate) fn cpu_of_machine() -> Result<Duration, BenchError> {
    let path = "/proc/stat";
    let text = std::fs::read_to_string(path).map_err(BenchError::system(format!("read {path}")))?;
    let first = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8);
    let numbers: Vec<u64> = first.filter_map(|number| number.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
    let busy: u64 = numbers
        .iter()
        .enumerate()
        .filter(|(index, _)| !matches!(index, 3 | 4))
        .map(|(_, n)| n)
        .sum();
    Ok(process::from_ticks(busy))
}

/// Resident memory of the process `pid`, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64, BenchError> {
    memory(pid, "VmRSS:")
}

/// Returns the peak of the resident memory of the process `pid`, in bytes.
pub(crate) fn peak_resident_bytes(pid: u32) -> Result<u64, BenchError> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> Result<u64, BenchError> {
    let action = format!("read {field} of process {pid}");
    process::memory_of(pid, field).map_err(BenchError::system(action))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_time_and_memory() {
        assert!(cpu_of_process(std::process::id()).is_ok());
        assert!(cpu_of_ended_children().is_ok());
        assert!(cpu_of_machine().is_ok_and(|time| time > Duration::ZERO));
        let resident = resident_bytes(std::process::id());
        let peak = peak_resident_bytes(std::process::id());
        assert!(resident.is_ok_and(|now| now > 0 && peak.is_ok_and(|peak| peak >= now)));
    }
}
