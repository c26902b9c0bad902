//! Describes the socket placement of peers, for table titles.

use tonnage_record::{Outcome, Placed, Record};

/// Placement of records that share a table, such as `near (peers on one socket)`; `None` if unknown.
pub fn describe_all<'a>(records: impl Iterator<Item = &'a Record>) -> Option<String> {
    records.filter_map(Record::placement).next().map(describe)
}

/// Name and description of a placement.
pub fn describe(place: Placed) -> String {
    format!("{place} ({})", place.describe())
}

/// Whether two records may share a table: their placements must be equal. A record without measurements fits any table.
pub fn may_share_table(left: &Record, right: &Record) -> bool {
    let is_open =
        |record: &Record| record.placement().is_none() && record.outcome != Outcome::Measured;
    left.placement() == right.placement() || is_open(left) || is_open(right)
}

#[cfg(test)]
mod tests {
    use tonnage_plan::transfer::Pacing;
    use tonnage_units::PairPlace;

    use super::*;
    use crate::samples::sample;

    fn placed(placed: Option<Placed>, asked: Option<PairPlace>) -> Record {
        let sample = sample(Pacing::PingPong, 8).with(|point| point.place = asked);
        sample.record_with(|record| record.placed = placed)
    }

    #[test]
    fn the_actual_place_is_shown_before_the_requested_one() {
        let (near, far) = (Some(Placed::Near), Some(PairPlace::Far));
        let of = |record: Record| describe_all([&record].into_iter());
        assert_eq!(
            of(placed(near, None)).unwrap(),
            "near (peers on one socket)"
        );
        assert_eq!(of(placed(None, far)).unwrap(), "far (peers on two sockets)");
        assert_eq!(
            of(placed(Some(Placed::Mixed), None)).unwrap(),
            "mixed (some peers on one socket, some on two)"
        );
        assert_eq!(of(placed(None, None)), None);
    }

    #[test]
    fn near_and_far_are_in_tables_of_their_own() {
        let (near, far) = (
            placed(Some(Placed::Near), None),
            placed(Some(Placed::Far), None),
        );
        assert!(!may_share_table(&near, &far) && may_share_table(&near, &near));
        // A measurement with unknown placement must not appear under a known one.
        assert!(
            !may_share_table(&near, &placed(None, None))
                && may_share_table(&placed(None, None), &placed(None, None))
        );
        let mut skipped = placed(None, None);
        skipped.outcome = Outcome::Skipped { why: "none".into() };
        assert!(may_share_table(&near, &skipped) && may_share_table(&skipped, &far));
    }
}
