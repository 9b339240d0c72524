//! The machine of a measurement.

use serde::Serialize;

/// The machine and the program.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub cores: usize,
    /// The processor's own name.
    pub processor: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel and its release.
    pub kernel: String,
    /// Version of this program.
    pub version: &'static str,
    /// False in a debug build, whose speed is irrelevant.
    pub optimised: bool,
}

impl Machine {
    /// Queries the system.
    pub fn here() -> Machine {
        let system = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"));
        let kibibytes = memory.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processor
                .map_or_else(|| text(system.machine()), |(_, name)| name.to_owned()),
            memory_bytes: kibibytes.unwrap_or(0) << 10,
            kernel: format!("{} {}", text(system.sysname()), text(system.release())),
            version: env!("CARGO_PKG_VERSION"),
            optimised: !cfg!(debug_assertions),
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let speed = if self.optimised {
            ""
        } else {
            "; A DEBUG BUILD: its speed is irrelevant"
        };
        format!(
            "{} cores ({}), {} GiB, {}, whimbrel {}{speed}",
            self.cores,
            self.processor,
            (self.memory_bytes + (1 << 29)) >> 30,
            self.kernel,
            self.version
        )
    }
}
