//! Points that nobody can carry out elsewhere.

use tonnage_plan::transfer::{Batching, CqMode, Pacing, TransferPoint};
use tonnage_units::{Error, Result};

/// Refuses a point whose trials whoever carries them out cannot.
///
/// # Errors
/// `Unavailable`, with what to choose instead.
pub(super) fn check_carried(point: &TransferPoint, depth: u32, name: &str) -> Result<()> {
    let refused = |what: &str, why: &str, how: &str| {
        Err(Error::Unavailable {
            what: format!("{what} on {name}"),
            why: why.to_owned(),
            how: how.to_owned(),
        })
    };
    let loops = "it carries out whole trials of a window, or of batches without latencies";
    match point.pacing {
        Pacing::Stream { .. } => {}
        Pacing::Batch { .. } if !point.latency && point.batching == Batching::default() => {}
        pacing => {
            let how = "Choose --window, or --batch with --latency off";
            return refused(pacing.name(), loops, how);
        }
    }
    if point.cq == CqMode::Event {
        return refused("--cq event", "it polls", "Choose --cq busy");
    }
    if point.session.is_some() {
        let why = "it takes no single operations that the library could hand over";
        return refused("the library's calls", why, "Leave --api and --session out");
    }
    if !point.division().is_of_queue_pairs() {
        let why = "it does not cut operations, and has one device for each worker";
        return refused("--chunk or --rails", why, "Leave them out");
    }
    if point.loads.is_some() || point.background.is_some() {
        let how = "Choose another --traffic, and leave --background out";
        return refused("a traffic file or a background", loops, how);
    }
    if point.depth() > depth {
        let why = format!("it keeps at most {depth} operations in flight");
        return refused(
            &point.pacing.to_string(),
            &why,
            &format!("Choose at most {depth}"),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::walk::tests::point;
    use tonnage_plan::transfer::Addresses;

    #[test]
    fn what_cannot_be_carried_out_is_refused_by_name() {
        let stream = point(Addresses::Sequential, 4);
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
        assert!(refused(&|it| it.rails = tonnage_engine::paths::Rails::Stripe).contains("--rails"));
        assert!(refused(&|it| it.pacing = Pacing::Stream { window: 9 }).contains("at most 8"));
        let cut = tonnage_engine::paths::Cut {
            chunk_bytes: 4096,
            chunks_max: 4,
        };
        assert!(refused(&|it| it.cut = Some(cut)).contains("--chunk"));
    }
}
