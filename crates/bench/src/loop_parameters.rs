//! Parameters of the timed loops, from the points of plans. The loops know no plans.

use tonnage_loops::flow_walk::FlowSlots;
use tonnage_loops::library::Posting;
use tonnage_plan::transfer::{SessionUse, TransferApi, TransferPoint};
use tonnage_transfer::LaneSource;

/// Operations and slots of a point's flows.
pub fn flow_slots(point: &TransferPoint) -> FlowSlots {
    FlowSlots {
        op: point.op,
        size_bytes: point.size_bytes,
        stride_bytes: point.stride_bytes,
        slots: point.slots(),
        orders: point.orders(),
        word_places: point.word_places(),
        seed: point.seed,
    }
}

/// Calls of the library that post a point's operations, where the point uses it.
pub fn posting(api: TransferApi, session: SessionUse) -> Posting {
    match (api, session) {
        (TransferApi::Async, _) => Posting::Tasks,
        (_, SessionUse::On) => Posting::Tickets,
        (_, SessionUse::Off) => Posting::Named(LaneSource::LookUp),
        (_, SessionUse::Fresh) => Posting::Named(LaneSource::Fresh),
        (_, SessionUse::Register) => Posting::Named(LaneSource::Register),
    }
}
