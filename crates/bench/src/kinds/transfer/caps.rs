//! Checks a point against the capabilities of open devices, which the list of engines cannot know in advance. Also
//! determines the meaning of completions.

use super::point_engine::compares_each;
use tonnage_engine::{Caps, Verb};
use tonnage_plan::transfer::{Batching, CqMode, Pacing, SessionUse, TransferPoint, Verification};
use tonnage_units::{Error, Result};

/// Rejects a point that a worker's devices cannot run. `caps` are the combined capabilities of these devices. The error
/// suggests an alternative.
pub(super) fn check_caps(
    point: &TransferPoint,
    caps: &Caps,
    devices: usize,
    name: &str,
) -> Result<()> {
    if let Some(load) = point.background_point() {
        check_caps(&load, caps, devices, name)?;
    }
    if !caps.verbs.contains(&point.op) {
        let why = "the device that was opened does not offer it";
        let how = "Choose another --op or another device";
        return unsupported(point.op.name(), name, why, how);
    }
    if point.pacing == Pacing::PingPong && point.op == Verb::Write && !caps.ordered_writes {
        let why = "it waits for the last byte to appear, and the device does not promise that it appears last";
        let how = "Choose --op write-imm or --op send";
        return unsupported("ping-pong with op write", name, why, how);
    }
    if caps.carried {
        check_carried(point, caps.depth, name)?;
    }
    check_immediates(point, caps, devices, name)?;
    check_each(point, caps, name)?;
    if point.verify == Verification::Last && may_overtake(point, completed_is_visible(caps)) {
        return Err(Error::Unavailable {
            what: format!("verify on {name} where data of several slots land in one"),
            why:
                "a completed write may still be on its way, so it is unknown which one landed last"
                    .into(),
            how: "Choose the same order at both ends, or --op read".into(),
        });
    }
    check_released(point, caps, name)?;
    if u64::from(point.slots.size_bytes) > caps.message_bytes_max {
        let what = format!("{} bytes in one operation", point.slots.size_bytes);
        let why = format!("the device takes at most {}", caps.message_bytes_max);
        return unsupported(&what, name, &why, "Choose smaller --sizes");
    }
    Ok(())
}

fn unsupported(what: &str, name: &str, why: &str, how: &str) -> Result<()> {
    Err(Error::Unavailable {
        what: format!("{what} on {name}"),
        why: why.to_owned(),
        how: how.to_owned(),
    })
}

/// Rejects a point that cannot run on an engine that runs whole trials itself.
fn check_carried(point: &TransferPoint, depth: u32, name: &str) -> Result<()> {
    let loops = "it carries out whole trials with a depth, or of batches without latencies";
    match point.pacing {
        Pacing::Stream { .. } => {}
        Pacing::Batch { .. } if !point.latency && point.batching == Batching::default() => {}
        pacing => {
            let how = "Choose --depth, or --batch with --latency off";
            return unsupported(pacing.name(), name, loops, how);
        }
    }
    if point.cq == CqMode::Event {
        return unsupported("--cq event", name, "it polls", "Choose --cq busy");
    }
    if point.session.is_some() {
        let why = "it takes no single operations that the library could hand over";
        let how = "Leave --api and --session out";
        return unsupported("the library's calls", name, why, how);
    }
    if !point.division.divides_only_queue_pairs() {
        let why = "it does not cut operations, and has one device for each thread";
        return unsupported("--chunk or --rails", name, why, "Leave them out");
    }
    if point.loads.is_some() || point.background.is_some() {
        let how = "Choose another --traffic, and leave --background out";
        return unsupported("a traffic file or a background", name, loops, how);
    }
    if point.depth() > depth {
        let why = format!("it keeps at most {depth} operations in flight");
        let how = format!("Choose at most {depth}");
        return unsupported(&point.pacing.to_string(), name, &why, &how);
    }
    Ok(())
}

/// Rejects write-imms if the device's immediate data has too few bits for them.
fn check_immediates(point: &TransferPoint, caps: &Caps, devices: usize, name: &str) -> Result<()> {
    if point.op != Verb::WriteImm {
        return Ok(());
    }
    let is_unnamed = point.roles.initiators_max() > 1 && !caps.arrivals_named;
    if is_unnamed && point.pacing == Pacing::PingPong {
        let what = "ping-pong of several ranks with write-imm";
        let why = "the immediate of the device is too narrow to say which rank is to be answered";
        return unsupported(what, name, why, "Choose --op send, or --traffic pair");
    }
    let parts = point.division.shares(devices).parts(point.slots.size_bytes);
    if is_unnamed && parts > 1 {
        let what = "write-imm in parts from several ranks";
        let why = "the device does not say which rank a part came from";
        let how = "Leave --chunk and --rails stripe out, or choose one initiator for each target";
        return unsupported(what, name, why, how);
    }
    if caps.immediate_bits < 32 {
        let bits = caps.immediate_bits;
        let why = format!("it carries {bits} bits of immediate data, and 32 are needed");
        return unsupported("write-imm", name, &why, "Choose --op write or --op send");
    }
    Ok(())
}

/// Rejects `--verify=each` if both ends cannot write to each other, or if arrivals don't name their initiator.
fn check_each(point: &TransferPoint, caps: &Caps, name: &str) -> Result<()> {
    if !compares_each(point) {
        return Ok(());
    }
    let refused = |why, how| {
        let what = format!("--verify=each of {}", point.op.name());
        unsupported(&what, name, why, how)
    };
    if caps.carried {
        return refused("it carries out whole trials", "Choose --verify=last");
    }
    if !caps.verbs.contains(&Verb::Write) {
        return refused(
            "both ends report to each other by write, which the device does not offer",
            "Choose --verify=last, or another device",
        );
    }
    let several = point.roles.initiators_max() > 1;
    if point.op == Verb::WriteImm && several && !caps.arrivals_named {
        return refused(
            "an arrival does not name the rank that it came from",
            "Choose --verify=last, or one initiator for each target",
        );
    }
    Ok(())
}

/// Rejects writes if their arrival cannot be proven because their lanes are released before a flush.
fn check_released(point: &TransferPoint, caps: &Caps, name: &str) -> Result<()> {
    let writes = matches!(point.op, Verb::Write | Verb::WriteImm);
    let [always, on_request] = completed_is_visible(caps);
    if !writes || !point.releases_lanes() || always || on_request {
        return Ok(());
    }
    let session = point.session.map_or("", SessionUse::name);
    let what = format!("{} with session {session}", point.op.name());
    let why = "a lane that was released cannot be flushed, and the device cannot complete writes when they have arrived";
    unsupported(&what, name, why, "Choose --session on or off, or --op read")
}

/// Returns whether a write may arrive after a later write to the same slot, even if it completed before the later one
/// was posted.
fn may_overtake(point: &TransferPoint, [always, on_request]: [bool; 2]) -> bool {
    let writes = matches!(point.op, Verb::Write | Verb::WriteImm);
    let asked = on_request && claims_arrival(point);
    let arrived = always || asked || point.pacing == Pacing::PingPong;
    writes && point.reuses_landing_slots() && !arrived
}

/// Returns whether completed writes are visible to the peer: always, and on request.
pub(super) fn completed_is_visible(caps: &Caps) -> [bool; 2] {
    [caps.delivered, caps.delivery_on_request]
}

/// Returns whether latency samples are meant to include the arrival of the bytes. Samples of a stream don't include it.
/// Instead, a flush at the end of each trial proves that all bytes have arrived, unless lanes are released earlier.
/// Ping-pongs need no proof, because the peer answers.
pub(super) fn claims_arrival(point: &TransferPoint) -> bool {
    let writes = matches!(point.op, Verb::Write | Verb::WriteImm);
    writes
        && match point.pacing {
            Pacing::Batch { .. } => true,
            // A background is paced and records no latencies. Its writes must be the same with and without a rate.
            Pacing::Paced { .. } => point.latency,
            Pacing::Stream { .. } => point.releases_lanes(),
            Pacing::PingPong => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_engine::OpenRequest;
    use tonnage_plan::testing::slots_point as point;
    use tonnage_plan::transfer::Access;

    /// If a lane is released together with its operation, it cannot be flushed later.
    #[test]
    fn lanes_that_are_released_prove_each_operation_or_are_refused() {
        let of = |session, op| TransferPoint {
            op,
            pacing: Pacing::Stream { depth: 4 },
            session: Some(session),
            ..point(Access::Sequential, 4)
        };
        assert!(claims_arrival(&of(SessionUse::Fresh, Verb::Write)));
        assert!(!claims_arrival(&of(SessionUse::Off, Verb::Write)));
        let null = (tonnage_engines::null::ENTRY.open)(&OpenRequest::default()).unwrap();
        let mut caps = *null[0].caps();
        (caps.delivered, caps.delivery_on_request) = (false, false);
        let check = |session, op| check_caps(&of(session, op), &caps, 1, "x");
        let refused = check(SessionUse::Register, Verb::WriteImm).unwrap_err();
        assert!(
            refused.to_string().contains("--session on or off"),
            "{refused}"
        );
        assert!(check(SessionUse::Off, Verb::Write).is_ok());
        assert!(check(SessionUse::Fresh, Verb::Read).is_ok());
        caps.delivery_on_request = true;
        assert!(check_caps(&of(SessionUse::Fresh, Verb::Write), &caps, 1, "x").is_ok());
    }

    #[test]
    fn a_later_write_may_be_overtaken_where_completions_do_not_mean_arrival() {
        let with = |op, pacing, always, on_request| {
            let mut point = TransferPoint {
                op,
                pacing,
                ..point(Access::Fixed, 4)
            };
            point.slots.local_access = Some(Access::Sequential);
            may_overtake(&point, [always, on_request])
        };
        let (batch, stream) = (Pacing::Batch { batch: 1 }, Pacing::Stream { depth: 1 });
        assert!(with(Verb::Write, batch, false, false));
        assert!(!with(Verb::Write, batch, false, true));
        assert!(with(Verb::WriteImm, stream, false, true));
        assert!(!with(Verb::Write, stream, true, false));
        assert!(!with(Verb::Write, Pacing::PingPong, false, false));
        assert!(!with(Verb::Read, stream, false, false) && !with(Verb::Send, stream, false, false));
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused_by_name() {
        let stream = point(Access::Sequential, 4);
        assert!(check_carried(&stream, 4, "x").is_ok());
        let batch = TransferPoint {
            pacing: Pacing::Batch { batch: 4 },
            latency: false,
            ..stream.clone()
        };
        assert!(check_carried(&batch, 4, "x").is_ok());
        let refused = |change: &dyn Fn(&mut TransferPoint)| {
            let mut point = stream.clone();
            change(&mut point);
            check_carried(&point, 8, "x").unwrap_err().to_string()
        };
        assert!(refused(&|it| it.pacing = Pacing::PingPong).contains("ping-pong on x"));
        assert!(refused(&|it| it.pacing = Pacing::Batch { batch: 2 }).contains("--latency off"));
        assert!(refused(&|it| it.cq = CqMode::Event).contains("--cq busy"));
        assert!(
            refused(&|it| it.division.rails = tonnage_engine::paths::Rails::Stripe)
                .contains("--rails")
        );
        assert!(refused(&|it| it.pacing = Pacing::Stream { depth: 9 }).contains("at most 8"));
        let cut = tonnage_engine::paths::Cut {
            chunk_bytes: 4096,
            chunks_max: 4,
        };
        assert!(refused(&|it| it.division.cut = Some(cut)).contains("--chunk"));
    }
}
