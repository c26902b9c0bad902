//! Points that an open device cannot do: the list of engines could not know it before. And what its completions mean.

use tonnage_engine::{Caps, Verb};
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_units::{Error, Result};

/// Refuses the points that the devices of a worker, with these capabilities together, cannot do.
///
/// # Errors
/// `Unavailable` for the first of them, with what to choose instead.
pub(super) fn check_caps(
    points: &[&TransferPoint],
    (caps, devices): (&Caps, usize),
    name: &str,
) -> Result<()> {
    for point in points {
        if !caps.verbs.contains(&point.op) {
            return Err(Error::Unavailable {
                what: format!("{} on {name}", point.op.name()),
                why: "the device that was opened does not offer it".into(),
                how: "Choose another --op or another device".into(),
            });
        }
        if point.pacing == Pacing::PingPong && point.op == Verb::Write && !caps.ordered_writes {
            return Err(Error::Unavailable {
                what: format!("ping-pong with op write on {name}"),
                why: "it waits for the last byte to appear, and the device does not promise that it appears last".into(),
                how: "Choose --op write-imm or --op send".into(),
            });
        }
        let answers_several = point.pacing == Pacing::PingPong
            && point.op == Verb::WriteImm
            && point.roles().initiators_max() > 1;
        if answers_several && !caps.arrivals_named {
            return Err(Error::Unavailable {
                what: format!("ping-pong of several ranks with write-imm on {name}"),
                why:
                    "the immediate of the device is too narrow to say which rank is to be answered"
                        .into(),
                how: "Choose --op send, or --traffic pair".into(),
            });
        }
        let parts = point.division().shares(devices).parts(point.size_bytes);
        let several = point.op == Verb::WriteImm && point.roles().initiators_max() > 1;
        if several && parts > 1 && !caps.arrivals_named {
            return Err(Error::Unavailable {
                what: format!("write-imm in parts from several ranks on {name}"),
                why: "the device does not say which rank a part came from".into(),
                how:
                    "Leave --chunk and --rails stripe out, or choose one initiator for each target"
                        .into(),
            });
        }
        if point.op == Verb::WriteImm && caps.immediate_bits < 32 {
            return Err(Error::Unavailable {
                what: format!("write-imm on {name}"),
                why: format!(
                    "it carries {} bits of immediate data, and 32 are needed",
                    caps.immediate_bits
                ),
                how: "Choose --op write or --op send".into(),
            });
        }
        if point.verify && overtakes(point, delivers(caps)) {
            return Err(Error::Unavailable {
                what: format!("verify on {name} where data of several slots land in one"),
                why: "a write that completed may still be on its way, so that nobody knows which came last".into(),
                how: "Choose the same order at both ends, or --op read".into(),
            });
        }
        if u64::from(point.size_bytes) > caps.message_bytes_max {
            return Err(Error::Unavailable {
                what: format!("{} bytes in one operation on {name}", point.size_bytes),
                why: format!("the device takes at most {}", caps.message_bytes_max),
                how: "Choose smaller --sizes".into(),
            });
        }
    }
    Ok(())
}

/// Returns whether a write may arrive after a later one in the same slot, though it completed before that was posted.
fn overtakes(point: &TransferPoint, [always, on_request]: [bool; 2]) -> bool {
    let writes = matches!(point.op, Verb::Write | Verb::WriteImm);
    let asked = on_request && claims_arrival(point);
    let arrived = always || asked || point.pacing == Pacing::PingPong;
    writes && point.lands_anew() && !arrived
}

/// Returns whether completed writes are visible to the peer: always, and where it is asked for.
pub(super) fn delivers(caps: &Caps) -> [bool; 2] {
    [caps.delivered, caps.delivery_on_request]
}

/// Returns whether each latency sample is taken for the time until the bytes are there. A stream's bandwidth is proved
/// by one flush at the end of each trial instead, and a ping-pong's by its answer.
pub(super) fn claims_arrival(point: &TransferPoint) -> bool {
    matches!(point.op, Verb::Write | Verb::WriteImm)
        && matches!(point.pacing, Pacing::Batch { .. } | Pacing::Paced { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::walk::tests::point;
    use tonnage_plan::transfer::Addresses;

    #[test]
    fn a_later_write_may_be_overtaken_where_completions_do_not_mean_arrival() {
        let with = |op, pacing, always, on_request| {
            let point = TransferPoint {
                op,
                pacing,
                local_addresses: Some(Addresses::Sequential),
                ..point(Addresses::Fixed, 4)
            };
            overtakes(&point, [always, on_request])
        };
        let (batch, stream) = (Pacing::Batch { batch: 1 }, Pacing::Stream { window: 1 });
        assert!(with(Verb::Write, batch, false, false));
        assert!(!with(Verb::Write, batch, false, true));
        assert!(with(Verb::WriteImm, stream, false, true));
        assert!(!with(Verb::Write, stream, true, false));
        assert!(!with(Verb::Write, Pacing::PingPong, false, false));
        assert!(!with(Verb::Read, stream, false, false) && !with(Verb::Send, stream, false, false));
    }
}
