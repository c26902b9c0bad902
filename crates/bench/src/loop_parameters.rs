//! Derives the parameters of timed loops from points. The loops themselves don't know plans.

use tonnage_loops::collective::script::CallPosition;
use tonnage_loops::files::sequence::FilePattern;
use tonnage_loops::flow_walk::FlowSlots;
use tonnage_loops::library::Posting;
use tonnage_plan::collective::GroupPosition;
use tonnage_plan::files::{DataKind, FilePoint, Phase};
use tonnage_plan::transfer::{SessionUse, TransferApi, TransferPoint};
use tonnage_transfer::LaneSource;

/// Returns operation, sizes and slots of a point's flows.
pub fn flow_slots(point: &TransferPoint) -> FlowSlots {
    FlowSlots {
        op: point.op,
        size_bytes: point.slots.size_bytes,
        stride_bytes: point.slots.stride_bytes,
        slots: point.slots.count(),
        orders: point.slots.orders(),
        word_places: point.word_places(),
        seed: point.slots.seed,
    }
}

/// Returns how a point's operations are posted, if it uses the library.
pub fn posting(api: TransferApi, session: SessionUse) -> Posting {
    match (api, session) {
        (TransferApi::Async, _) => Posting::Tasks,
        (_, SessionUse::On) => Posting::Tickets,
        (_, SessionUse::Off) => Posting::Named(LaneSource::LookUp),
        (_, SessionUse::Fresh) => Posting::Named(LaneSource::Fresh),
        (_, SessionUse::Register) => Posting::Named(LaneSource::Register),
    }
}

/// Returns the transfers of all ranks of a point in a phase.
pub fn file_pattern(point: &FilePoint, phase: Phase) -> FilePattern {
    FilePattern {
        ranks: point.ranks,
        layout: point.layout,
        order: point.order,
        block_bytes: point.block_bytes,
        transfer_bytes: point.transfer_bytes,
        segments: point.segments,
        read_percent: match phase {
            Phase::Write => 0,
            Phase::Read => 100,
            Phase::Mixed => point.read_percent.unwrap_or(0),
        },
        seed: point.seed,
    }
}

/// Returns how many of 100 bytes of file data are zeros.
pub fn zeros_percent(data: DataKind) -> u32 {
    match data {
        DataKind::Random => 0,
        DataKind::Compressible { percent } => percent,
    }
}

/// Returns the position of a rank in its group.
pub fn call_position(position: GroupPosition) -> CallPosition {
    let first = position.rank(0);
    CallPosition {
        place: position.place,
        first,
        step: position.rank(1).saturating_sub(first),
    }
}
