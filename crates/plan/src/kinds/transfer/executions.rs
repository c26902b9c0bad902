//! Executions of a traffic file: how `traffic-file` combines with other options, the size of its operations, and how
//! the threads of a rank share its loads. `loads` reads the file itself.

use super::length::{LengthOptions, PointLength, length};
use super::loads::PairLoads;
use super::options::Transfer;
use super::point::TransferPoint;
use crate::conflicts::Conflict;
use crate::point::Traffic;
use crate::refuse::usage_error;
use tonnage_units::{Bytes, Count, Result};

/// Largest operation size that is chosen by default.
const SIZE_BYTES_DEFAULT_MAX: u64 = 1 << 20;

/// Smallest operation size that is chosen by default for loads above [`SMALL_LOAD_BYTES_MAX`]. Smaller operations would
/// measure the issue rate, not the requested traffic.
const SIZE_BYTES_DEFAULT_MIN: u64 = 64;

/// Loads up to this size may get any operation size by default.
const SMALL_LOAD_BYTES_MAX: u64 = 64 << 10;

/// Returns the loads of the traffic file, if there is one.
pub(super) fn loads(transfer: &Transfer, ranks: u32) -> Result<Option<&PairLoads>> {
    let traffic = transfer.what.traffic;
    let Some(loads) = transfer.what.loads() else {
        if traffic == Some(Traffic::File) {
            return usage_error(
                "--traffic file needs the file: add --traffic-file FILE with a row of sizes for each rank, or use \
                 another pattern, such as --traffic all-to-all",
            );
        }
        return Ok(None);
    };
    if let Some(other) = traffic.filter(|&traffic| traffic != Traffic::File) {
        return usage_error(format!(
            "--traffic-file and --traffic {} are mutually exclusive, because both define the pairs of ranks: leave \
             one of them out",
            other.name()
        ));
    }
    let rows = loads.ranks();
    if rows != ranks {
        return usage_error(format!(
            "the traffic file is for {rows} ranks and the run has {ranks}: use --ranks {rows}, or a file with {ranks} \
             rows \
             of {ranks} sizes"
        ));
    }
    Ok(Some(loads))
}

const WHO: &str = "the file defines the pairs of ranks";
const HOW: &str = "its operations are a stream with a depth";
const LONG: &str = "a trial moves the bytes of the file once, however long that takes";

/// An option that contradicts the file. The file is measured, so the message suggests leaving the option out.
macro_rules! with_file {
    ($option:literal, $why:expr) => {
        Conflict::both(
            "traffic-file",
            $option,
            $why,
            concat!("leave --", $option, " out"),
        )
    };
}

pub(super) const CONFLICTS: &[Conflict] = &[
    with_file!("initiators", WHO),
    with_file!("bidirectional", WHO),
    with_file!("shift", WHO),
    with_file!("target-shift", WHO),
    with_file!("matrix", WHO),
    with_file!("batch", HOW),
    with_file!("rate", HOW),
    with_file!("ping-pong", HOW),
    with_file!("iters", LONG),
    with_file!("duration", LONG),
    with_file!("trial-time", LONG),
];

/// Returns the length of a point with a traffic file, in which each trial is one execution.
pub(super) fn execution_length(options: &LengthOptions) -> Result<PointLength> {
    length(&LengthOptions {
        iters: Some(Count(1)),
        ..options.clone()
    })
}

/// Returns the requested operation sizes, or one default. Each returned size divides all loads.
pub(super) fn execution_sizes(loads: &PairLoads, asked: Option<Vec<u32>>) -> Result<Vec<u32>> {
    let common = loads.common_divisor();
    let near = |most: u64| {
        (1..=most.min(common))
            .rev()
            .find(|size| common.is_multiple_of(*size))
    };
    let Some(asked) = asked else {
        let size = near(SIZE_BYTES_DEFAULT_MAX).unwrap_or(1);
        let largest = loads.pairs().map(|(_, bytes)| bytes).max().unwrap_or(0);
        if size < SIZE_BYTES_DEFAULT_MIN && largest > SMALL_LOAD_BYTES_MAX {
            return usage_error(format!(
                "all loads of the traffic file are multiples of no more than {size} B, which is too small for one \
                 operation: round them to multiples of 4k, or use --sizes {size}"
            ));
        }
        // Fits: at most `SIZE_BYTES_DEFAULT_MAX`.
        return Ok(vec![size as u32]);
    };
    let divides = |size: &&u32| !common.is_multiple_of((**size).into());
    let Some(&wrong) = asked.iter().find(divides) else {
        return Ok(asked);
    };
    let not_whole = |(_, bytes): &(_, u64)| !bytes.is_multiple_of(wrong.into());
    let ((from, to), bytes) = loads.pairs().find(not_whole).unwrap_or_default();
    usage_error(format!(
        "--sizes {} does not divide the {} from rank {from} to rank {to} of the traffic file: use --sizes {}, or \
         leave --sizes out",
        Bytes(wrong.into()),
        Bytes(bytes),
        Bytes(near(wrong.into()).unwrap_or(1))
    ))
}

impl TransferPoint {
    /// Returns the number of operations of one execution from one rank to another.
    pub fn load_operations_of_pair(&self, from: u32, to: u32) -> u64 {
        let load = self
            .loads
            .as_ref()
            .map_or(0, |loads| loads.operations_of_pair(from, to));
        load / u64::from(self.slots.size_bytes.max(1))
    }

    /// Returns one thread's share of the operations between two ranks. For different targets, different threads get the
    /// remainder.
    pub fn load_operations(&self, from: u32, to: u32, worker: u32) -> u64 {
        let operations = self.load_operations_of_pair(from, to);
        let threads = u64::from(self.threads.max(1));
        let place = (u64::from(worker) + u64::from(to)) % threads;
        operations / threads + u64::from(place < operations % threads)
    }

    /// Returns the number of operations of a flow that can be in flight: the depth, or the operations of an execution
    /// if there are fewer.
    pub(super) fn used_depth(&self) -> u32 {
        let Some(loads) = &self.loads else {
            return self.depth();
        };
        let largest = loads.pairs().map(|(_, bytes)| bytes).max().unwrap_or(0);
        let operations = largest / u64::from(self.slots.size_bytes.max(1));
        let share = operations.div_ceil(u64::from(self.threads.max(1)));
        // Fits: at most the depth, which has 32 bits.
        share.clamp(1, self.depth().into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::loads::TrafficFile;
    use super::*;
    use crate::fixture::{Holds, Refused, transfers};

    fn file(text: &str) -> PairLoads {
        text.parse::<TrafficFile>().unwrap().loads
    }

    const WRITE: &str = "engine = 'shm'\nop = 'write'\n";

    fn points(more: &str) -> Result<Vec<TransferPoint>> {
        let file = "traffic-file = \"\"\"\n0 3M 1k\n0 0 4k\n0 0 0\n\"\"\"";
        transfers(&format!("{WRITE}{more}\n{file}"), 3)
    }

    #[test]
    fn a_file_determines_traffic_length_and_size() {
        let all = points("").unwrap();
        let [point] = &all[..] else { panic!("{all:?}") };
        assert_eq!(
            (
                point.roles.traffic,
                point.roles.ranks,
                point.slots.size_bytes
            ),
            (Traffic::File, 3, 1024)
        );
        assert_eq!(
            point.length.trial,
            crate::transfer::TrialLength::Iterations(1)
        );
        assert_eq!(point.loads, Some(file("0 3M 1k\n0 0 4k\n0 0 0")));
        let sizes = points("sizes = '8,256'").unwrap();
        assert_eq!(
            sizes
                .iter()
                .map(|point| point.slots.size_bytes)
                .sum::<u32>(),
            264
        );
        // A load of four operations needs only four slots.
        assert_eq!((point.slots.count(), sizes[0].slots.count()), (64, 64));
        let small = format!("{WRITE}traffic-file = \"0 4M\\n0 0\"");
        assert_eq!(transfers(&small, 2).unwrap()[0].slots.count(), 4);
    }

    #[test]
    fn options_that_a_file_determines_are_refused() {
        for option in [
            "traffic = 'pair'",
            "initiators = 1",
            "bidirectional = true",
            "shift = 1",
            "target-shift = 1",
            "matrix = 'alone'",
            "batch = 8",
            "rate = 100",
            "ping-pong = true",
            "iters = 3",
            "duration = '1s'",
            "trial-time = '1s'",
        ] {
            let message = points(option).unwrap_err().to_string();
            let name = option.split(' ').next().unwrap();
            message.holds(&format!("traffic-file and {name} "));
        }
        transfers(&format!("{WRITE}sizes = 8\ntraffic = 'file'"), 2)
            .refused("add traffic-file FILE");
        let rows = format!("{WRITE}traffic-file = \"0 8\\n8 0\"");
        transfers(&rows, 4).refused("use --ranks 2, or a file with 4 rows");
        for fits in [
            "trials = 3",
            "until-ci = '2%'",
            "warmup = '0'",
            "depth = '4,8'",
            "verify = true",
        ] {
            assert!(!points(fits).unwrap().is_empty(), "{fits}");
        }
    }

    #[test]
    fn sizes_divide_all_loads() {
        let of = |text: &str, asked: Option<Vec<u32>>| execution_sizes(&file(text), asked);
        for (text, size) in [
            ("0 3M\n4M 0", 1 << 20),
            ("0 3000000\n0 0", 1_000_000),
            ("0 7\n9 0", 1),
        ] {
            assert_eq!(of(text, None).unwrap(), [size]);
        }
        let asked = vec![8, 1 << 20];
        assert_eq!(of("0 3M\n4M 0", Some(asked.clone())).unwrap(), asked);
        let wrong = of("0 3M\n4M 0", Some(vec![8, 3 << 20]))
            .unwrap_err()
            .to_string();
        wrong.holds("--sizes 3M does not divide the 4M from rank 1 to rank 0");
        wrong.holds("use --sizes 1M");
        let wrong = of("0 4000001\n4000000 0", None).unwrap_err().to_string();
        wrong.holds("no more than 1 B");
        wrong.holds("use --sizes 1");
    }

    #[test]
    fn workers_share_a_load_to_the_last_operation() {
        let mut point = points("threads = 4\nsizes = 512").unwrap().remove(0);
        for (from, to, operations) in [(0, 1, 6144), (0, 2, 2), (1, 2, 8), (2, 0, 0)] {
            let shares = (0..4).map(|worker| point.load_operations(from, to, worker));
            let shares: Vec<u64> = shares.collect();
            assert_eq!(shares.iter().sum::<u64>(), operations);
            let spread = shares.iter().max().unwrap() - shares.iter().min().unwrap();
            assert!(spread <= 1, "{shares:?}");
        }
        assert_eq!(point.used_depth(), 64);
        point.slots.size_bytes = 1 << 20;
        assert_eq!(point.used_depth(), 1);
    }
}
