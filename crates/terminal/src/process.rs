//! Reads the memory and processor time of processes, where the system reports them (`/proc`).

use std::fs;

/// Clock ticks of `/proc/PID/stat` in a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the resident memory of a process in bytes.
pub fn resident_memory(pid: u32) -> Option<u64> {
    read_status(&pid.to_string(), "VmRSS:")
}

/// Returns the peak memory of this process in bytes.
pub fn peak_memory() -> Option<u64> {
    read_status("self", "VmHWM:")
}

/// Returns the processor time of a process in seconds, in user and system mode.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, which may contain blanks, ends with the last bracket.
    let fields = stat.rsplit(')').next()?.split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Some(ticks / TICKS_PER_SECOND)
}

/// Returns the processor time of this process in seconds; 0 where the system does not report it.
pub fn own_cpu_seconds() -> f64 {
    cpu_seconds(std::process::id()).unwrap_or_default()
}

/// Reads a line of a process's status, which is in kilobytes, as bytes.
fn read_status(process: &str, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_processor_time() {
        let pid = std::process::id();
        assert!(resident_memory(pid).is_some_and(|bytes| bytes > 0 && Some(bytes) <= peak_memory()));
        assert!(cpu_seconds(pid).is_some());
        assert_eq!(resident_memory(u32::MAX), None);
    }
}
