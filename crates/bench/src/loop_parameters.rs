//! Parameters of the timed loops, from the points of plans. The loops know no plans.

use tonnage_loops::flow_walk::FlowSlots;
use tonnage_plan::transfer::TransferPoint;

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
