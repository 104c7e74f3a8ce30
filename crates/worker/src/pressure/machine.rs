//! The pressure of the machine: processor, memory, disks, network and battery. It is read from `/proc` and `/sys`.
//! Without readable data there is no pressure.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::PressureSource;

/// Reads a growing counter.
type Counter = fn() -> Option<u64>;

/// A counter. Its pressure is its rate as a share of the maximum.
struct Flow {
    name: &'static str,
    counter: Counter,
    per_s_max: f64,
    last: Mutex<Option<(Instant, u64, f64)>>,
}

impl fmt::Debug for Flow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Flow")
            .field("name", &self.name)
            .field("per_s_max", &self.per_s_max)
            .finish_non_exhaustive()
    }
}

impl Flow {
    fn new(name: &'static str, counter: Counter, per_s_max: f64) -> Self {
        Flow {
            name,
            counter,
            per_s_max,
            last: Mutex::new(counter().map(|count| (Instant::now(), count, 0.0))),
        }
    }

    /// The pressure at the time when `count` was read.
    fn measured(&self, now: Instant, count: u64) -> f64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((then, before, pressure)) = *last else {
            *last = Some((now, count, 0.0));
            return 0.0;
        };
        let passed_s = now.saturating_duration_since(then).as_secs_f64();
        if passed_s <= 0.0 {
            return pressure;
        }
        let pressure = (count.saturating_sub(before) as f64 / passed_s / self.per_s_max).clamp(0.0, 1.0);
        *last = Some((now, count, pressure));
        pressure
    }
}

impl PressureSource for Flow {
    fn name(&self) -> &str {
        self.name
    }

    fn pressure(&self) -> f64 {
        (self.counter)().map_or(0.0, |count| self.measured(Instant::now(), count))
    }
}

/// A level that is read directly.
struct Level {
    name: &'static str,
    level: fn() -> Option<f64>,
}

impl fmt::Debug for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Level").field(&self.name).finish()
    }
}

impl PressureSource for Level {
    fn name(&self) -> &str {
        self.name
    }

    fn pressure(&self) -> f64 {
        (self.level)().unwrap_or(0.0).clamp(0.0, 1.0)
    }
}

/// The processors: the share of their time that is spent on work.
pub fn cpu() -> impl PressureSource {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // The kernel counts in hundredths of a second.
    Flow::new(
        "cpu",
        || read("/proc/stat").and_then(|text| busy_ticks(&text)),
        100.0 * processors as f64,
    )
}

/// The memory: the share that is in use. With a limit of the control group, the share of that limit counts as well.
pub fn memory() -> impl PressureSource {
    Level {
        name: "memory",
        level: || {
            let whole = read("/proc/meminfo").and_then(|text| memory_used(&text));
            let group = group_used(
                read("/sys/fs/cgroup/memory.current").as_deref(),
                read("/sys/fs/cgroup/memory.max").as_deref(),
            );
            whole.into_iter().chain(group).reduce(f64::max)
        },
    }
}

/// The disks: the share of time in which the busiest disk works.
pub fn disk() -> impl PressureSource {
    Flow::new(
        "disk",
        || read("/proc/diskstats").and_then(|text| busiest_disk_ms(&text)),
        1_000.0,
    )
}

/// The network: the bytes sent or received per second, whichever are more, as a share of this maximum.
pub fn network(bytes_per_s_max: u64) -> impl PressureSource {
    Flow::new(
        "network",
        || read("/proc/net/dev").and_then(|text| network_bytes(&text)),
        bytes_per_s_max.max(1) as f64,
    )
}

/// The battery: its emptiness while nothing charges it. A machine without a battery has no pressure.
pub fn battery() -> impl PressureSource {
    Level {
        name: "battery",
        level: || {
            let supplies = std::fs::read_dir("/sys/class/power_supply").ok()?;
            let emptiness = supplies
                .flatten()
                .filter_map(|supply| battery_emptiness(&supply.path()));
            emptiness.reduce(f64::max)
        },
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The ticks that all processors together were busy.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
    // The fields are user, nice, system, idle, iowait, irq, softirq and steal. User and nice include guests.
    (fields.len() >= 5).then(|| fields.iter().take(8).sum::<u64>() - fields[3] - fields[4])
}

fn memory_used(meminfo: &str) -> Option<f64> {
    let field = |name: &str| -> Option<f64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let total = field("MemTotal:").filter(|total| *total > 0.0)?;
    Some(1.0 - field("MemAvailable:")? / total)
}

fn group_used(current: Option<&str>, limit: Option<&str>) -> Option<f64> {
    let number = |text: Option<&str>| text?.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
    Some(number(current)? / number(limit)?)
}

/// The milliseconds for which the busiest disk was busy. A partition is never busier than its disk.
fn busiest_disk_ms(diskstats: &str) -> Option<u64> {
    let busy = diskstats.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_real = fields
            .get(2)
            .is_some_and(|name| !name.starts_with("loop") && !name.starts_with("ram"));
        fields.get(12).filter(|_| is_real)?.parse().ok()
    });
    busy.max()
}

/// The bytes received or sent by all interfaces except the loopback, whichever are more.
fn network_bytes(dev: &str) -> Option<u64> {
    let (mut received, mut sent, mut found) = (0u64, 0u64, false);
    for line in dev.lines() {
        let Some((name, fields)) = line.split_once(':') else {
            continue;
        };
        let fields: Vec<u64> = fields.split_whitespace().flat_map(str::parse).collect();
        if name.trim() != "lo" && fields.len() >= 9 {
            received = received.saturating_add(fields[0]);
            sent = sent.saturating_add(fields[8]);
            found = true;
        }
    }
    found.then_some(received.max(sent))
}

fn battery_emptiness(supply: &Path) -> Option<f64> {
    let field = |name: &str| {
        let text = std::fs::read_to_string(supply.join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    if field("type")? != "Battery" || field("status")? != "Discharging" {
        return None;
    }
    let capacity: f64 = field("capacity")?.parse().ok()?;
    Some(1.0 - capacity / 100.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_tables_of_the_kernel_are_read() {
        let stat = "cpu  100 5 50 1000 30 2 3 0 7 0\ncpu0 100 5 50 1000 30 2 3 0 7 0\n";
        assert_eq!(busy_ticks(stat), Some(160));
        let meminfo = "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   2000 kB\n";
        assert_eq!(memory_used(meminfo), Some(0.75));
        assert_eq!(group_used(Some("50\n"), Some("200\n")), Some(0.25));
        assert_eq!(group_used(Some("50\n"), Some("max\n")), None);
        let diskstats = "   7       0 loop0 1 0 2 3 0 0 0 0 0 99999 9 0 0 0 0\n   \
             8       0 sda 10 0 20 30 40 0 50 60 0 700 90 0 0 0 0\n   8       1 sda1 1 0 2 3 4 0 5 6 0 70 9 0 0 0 0\n";
        assert_eq!(busiest_disk_ms(diskstats), Some(700));
        let dev = "Inter-|   Receive                |  Transmit\n face |bytes packets|bytes packets\n    \
             lo: 9000 1 0 0 0 0 0 0 9000 1 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0\n";
        assert_eq!(network_bytes(dev), Some(300));
        for unreadable in ["", "cpu", "nothing: here"] {
            assert_eq!((busy_ticks(unreadable), network_bytes(unreadable)), (None, None));
        }
    }

    #[test]
    fn a_flow_is_measured_between_two_readings() {
        let flow = Flow::new("test", || None, 200.0);
        let begun = Instant::now();
        assert_eq!(flow.measured(begun, 1_000), 0.0);
        let second = begun + Duration::from_secs(1);
        assert_eq!(flow.measured(second, 1_050), 0.25);
        assert_eq!(flow.measured(second, 1_100), 0.25, "no time has passed");
        assert_eq!(flow.measured(second + Duration::from_secs(1), 9_999), 1.0);
        assert_eq!(
            flow.measured(second + Duration::from_secs(2), 5),
            0.0,
            "it was set back"
        );
    }

    #[test]
    fn a_battery_causes_pressure_only_while_it_discharges() {
        let folder = tempfile::tempdir().unwrap();
        let supply = |status: &str| {
            for (name, text) in [("type", "Battery\n"), ("status", status), ("capacity", "40\n")] {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            battery_emptiness(folder.path())
        };
        assert_eq!(supply("Discharging\n"), Some(0.6));
        assert_eq!(supply("Charging\n"), None);
    }

    #[test]
    fn the_pressure_of_this_machine_is_between_0_and_1() {
        let sources: [Box<dyn PressureSource>; 5] = [
            Box::new(cpu()),
            Box::new(memory()),
            Box::new(disk()),
            Box::new(network(1 << 30)),
            Box::new(battery()),
        ];
        for source in sources {
            let pressure = source.pressure();
            assert!((0.0..=1.0).contains(&pressure), "{}: {pressure}", source.name());
        }
    }
}
