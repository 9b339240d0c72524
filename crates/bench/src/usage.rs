//! Resource use of programs from the kernel's accounts: processor time, user and system, and
//! memory.

use std::time::Duration;

use crate::BenchError;

/// Fields utime, stime, cutime and cstime after the command's name in /proc/PID/stat
/// (proc_pid_stat(5)).
const OWN: [usize; 2] = [11, 12];
const CHILDREN: [usize; 2] = [13, 14];

/// Processor time of the process `pid` so far, all its threads together.
pub(crate) fn cpu_of_process(pid: u32) -> Result<Duration, BenchError> {
    sum(&pid.to_string(), OWN)
}

/// Processor time of all children of this process that were waited for.
pub(crate) fn cpu_of_ended_children() -> Result<Duration, BenchError> {
    sum("self", CHILDREN)
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
    Ok(from_ticks(busy))
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
    whimbrel_lab::process::memory_of(pid, field).map_err(BenchError::system(action))
}

fn from_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn sum(process: &str, fields: [usize; 2]) -> Result<Duration, BenchError> {
    let path = format!("/proc/{process}/stat");
    let text =
        std::fs::read_to_string(&path).map_err(BenchError::system(format!("read {path}")))?;
    let ticks = ticks(&text, fields).ok_or_else(|| {
        BenchError::system(format!("understand {path}"))(std::io::ErrorKind::InvalidData.into())
    })?;
    Ok(from_ticks(ticks))
}

fn ticks(stat: &str, fields: [usize; 2]) -> Option<u64> {
    // The command's name is in parentheses and may contain any characters, parentheses too.
    let numbers: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    fields
        .iter()
        .map(|field| numbers.get(*field)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_moves_no_field() {
        let stat = "7 (a) (b) c) S 1 7 7 0 -1 4194560 10 20 0 0 30 40 50 60 20 0 1 0 99 0 0";
        assert_eq!(ticks(stat, OWN), Some(70));
        assert_eq!(ticks(stat, CHILDREN), Some(110));
        assert_eq!(ticks("7 (a) S 1", OWN), None);
    }

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
