//! Arguments for backpressure: a worker claims less while its machine is busy.

use std::sync::Arc;

use clap::Args;
use gristmill_worker::pressure::machine;
use gristmill_worker::{Admission, Backpressure, PressureSource, Threshold};

/// The default thresholds: first only jobs above normal priority, then none.
const THRESHOLDS: [Threshold; 2] = [
    Threshold {
        pressure: 0.9,
        admits: Admission::From(1),
    },
    Threshold {
        pressure: 0.98,
        admits: Admission::Nothing,
    },
];

/// Backpressure of a worker.
#[derive(Debug, Args)]
pub struct PressureArguments {
    /// Claim less while this is busy: cpu, memory, disk, battery, or network=BYTES (the capacity in bytes a second);
    /// repeatable, the busiest decides
    #[arg(long = "pressure", value_name = "SOURCE", value_parser = parse_source)]
    pub sources: Vec<MachineSource>,
    /// From this pressure on (0 to 1), claim only jobs of this priority and above, or none; repeatable [default: 0.9=1
    /// 0.98=none]
    #[arg(long = "admit", value_name = "PRESSURE=PRIORITY", value_parser = parse_threshold, requires = "sources")]
    pub thresholds: Vec<Threshold>,
}

/// A source of pressure, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum MachineSource {
    Cpu,
    Memory,
    Disk,
    Battery,
    Network { bytes_per_s_max: u64 },
}

impl PressureArguments {
    /// The backpressure in a worker's settings.
    pub fn backpressure(&self) -> Backpressure {
        let source = |source: &MachineSource| -> Arc<dyn PressureSource> {
            match source {
                MachineSource::Cpu => Arc::new(machine::cpu()),
                MachineSource::Memory => Arc::new(machine::memory()),
                MachineSource::Disk => Arc::new(machine::disk()),
                MachineSource::Battery => Arc::new(machine::battery()),
                MachineSource::Network { bytes_per_s_max } => Arc::new(machine::network(*bytes_per_s_max)),
            }
        };
        Backpressure {
            sources: self.sources.iter().map(source).collect(),
            thresholds: if self.thresholds.is_empty() {
                THRESHOLDS.to_vec()
            } else {
                self.thresholds.clone()
            },
        }
    }
}

fn parse_source(text: &str) -> Result<MachineSource, String> {
    match text.split_once('=') {
        None => match text {
            "cpu" => Ok(MachineSource::Cpu),
            "memory" => Ok(MachineSource::Memory),
            "disk" => Ok(MachineSource::Disk),
            "battery" => Ok(MachineSource::Battery),
            _ => Err("give one of cpu, memory, disk, battery, network=BYTES".to_owned()),
        },
        Some(("network", bytes)) => match bytes.parse() {
            Ok(bytes_per_s_max) if bytes_per_s_max > 0 => Ok(MachineSource::Network { bytes_per_s_max }),
            _ => Err("give the network's capacity in bytes a second, as in network=125000000".to_owned()),
        },
        Some(_) => Err("give one of cpu, memory, disk, battery, network=BYTES".to_owned()),
    }
}

fn parse_threshold(text: &str) -> Result<Threshold, String> {
    let wrong =
        || "write a pressure from 0 to 1 and a priority or none, as in 0.8=10 or 0.95=none".to_owned();
    let (pressure, priority) = text.split_once('=').ok_or_else(wrong)?;
    let pressure: f64 = pressure.parse().map_err(|_| wrong())?;
    if !(0.0..=1.0).contains(&pressure) {
        return Err(wrong());
    }
    let admits = match priority {
        "none" => Admission::Nothing,
        priority => Admission::From(priority.parse().map_err(|_| wrong())?),
    };
    Ok(Threshold { pressure, admits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_and_thresholds_are_read() {
        assert_eq!(parse_source("cpu"), Ok(MachineSource::Cpu));
        let network = MachineSource::Network {
            bytes_per_s_max: 5_000,
        };
        assert_eq!(parse_source("network=5000"), Ok(network));
        for wrong in ["", "CPU", "cpu=1", "network", "network=0", "network=x"] {
            assert!(parse_source(wrong).is_err(), "{wrong}");
        }
        let threshold = |pressure, admits| Ok(Threshold { pressure, admits });
        assert_eq!(parse_threshold("0.8=-5"), threshold(0.8, Admission::From(-5)));
        assert_eq!(parse_threshold("1=none"), threshold(1.0, Admission::Nothing));
        for wrong in ["", "0.8", "=1", "1.1=0", "NaN=0", "0.5=all", "0.5=40000"] {
            assert!(parse_threshold(wrong).is_err(), "{wrong}");
        }
    }
}
