//! Figures of observations around a point: a cache line between two CPUs, and the devices on the path.

use tonnage_machine::counters::{Reordering, is_trouble};

use super::{Better, Figure, Row, Style, Value};
use crate::wire_proof::TcpPath;
use crate::{Canary, WireProof};

const CANARY: &str = "Median, one way, of a ping-pong between the CPUs of the first pair.";

/// Figures of the canary and of the proof of the path.
pub const PROOF: &[Figure] = &[
    Figure {
        name: "Canary before (ns)",
        field: "canary_before_ns",
        meaning: "Time of a cache line from one CPU to another just before the point. It has nothing to do with the \
             engine and shows whether the path between the CPUs is the usual one.",
        computed: CANARY,
        style: Style::Scaled(1.0),
        better: Some(Better::Low),
        value: |row| canary(row, |[before, _]| before),
        ..Figure::PLAIN
    },
    Figure {
        name: "Canary after (ns)",
        field: "canary_after_ns",
        meaning: "Time of a cache line just after the point. If it differs from Canary before by more than a fifth, the \
             path between the CPUs changed meanwhile, as it does on virtual machines. If the trials differ too, small \
             differences between results mean nothing.",
        computed: CANARY,
        style: Style::Scaled(1.0),
        better: Some(Better::Low),
        value: |row| canary(row, |[_, after]| after),
        ..Figure::PLAIN
    },
    Figure {
        name: "Path",
        field: "path_crossed",
        meaning: "Proof that the payload crossed the devices that it should have, by these devices' own counters: yes or \
             no.",
        computed: "yes if every device carried at least 99 % of the payload, warm-up included, from before the \
             warm-up to after the last trial; absent if the engine names no device.",
        value: |row| {
            row.record
                .wire_proof
                .as_ref()
                .map(|path| path.crossed)
                .into()
        },
        ..Figure::PLAIN
    },
    Figure {
        name: "Trouble",
        field: "path_trouble",
        meaning: "Errors, drops and retransmits on the way, other traffic of the hosts included.",
        computed: "Sum of all such counters of the devices and of their hosts' TCP, without retransmits of hosts \
             whose TCP saw reordering; the record lists them.",
        better: Some(Better::Low),
        value: |row| {
            row.record
                .wire_proof
                .as_ref()
                .map(WireProof::troubles)
                .into()
        },
        ..Figure::PLAIN
    },
];

/// Returns the canary's median before or after the point.
fn canary(row: &Row<'_>, of: fn([f64; 2]) -> f64) -> Value {
    match row.record.canary {
        Some(Canary::Measured {
            before_ns,
            after_ns,
            ..
        }) => of([before_ns, after_ns]).into(),
        _ => Value::Unknown,
    }
}

impl TcpPath {
    /// Returns counters of trouble that increased. Retransmits that reordering explains are left out.
    pub fn troubles(&self) -> impl Iterator<Item = (&String, &u64)> {
        let reordering = Reordering::from_counters(&self.counters).filter(Reordering::is_likely);
        let is_explained = move |name: &str| reordering.is_some() && Reordering::explains(name);
        let troubles = self.counters.iter();
        troubles.filter(move |(name, moved)| **moved > 0 && is_trouble(name) && !is_explained(name))
    }
}

impl WireProof {
    /// Returns the total of errors, drops and retransmits that devices and TCP counted.
    pub fn troubles(&self) -> u64 {
        let devices = self.devices.iter().flat_map(|device| &device.counters);
        let devices = devices.filter(|(name, _)| is_trouble(name));
        let tcp = self.tcp.iter().flat_map(TcpPath::troubles);
        devices
            .chain(tcp)
            .fold(0, |sum: u64, (_, moved)| sum.saturating_add(*moved))
    }
}
