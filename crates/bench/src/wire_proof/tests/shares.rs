//! Rails that have no share of small operations.

use super::*;
use tonnage_engine::paths::Rails;

/// A stripe of one byte has no share for the second rail, and one of two bytes has.
#[test]
fn a_rail_without_a_share_may_rest() {
    // Named first, whatever the order of their names.
    let both = || named(&[interface("eth1"), interface("eth0")]);
    let mut point = point(Verb::Write, 2);
    let routes = routes(&["a", "b"], &[both(), both()]);
    let machine = Machine::new();
    counted(&machine, &[("eth0", 0, 0), ("eth1", 0, 0)]);
    for (rails, size_bytes, resting, crossed) in [
        (Rails::Stripe, 1, "eth0", Some(1)),
        (Rails::Stripe, 1, "eth1", None),
        (Rails::Stripe, 2, "eth0", None),
        (Rails::Single, 1, "eth0", None),
    ] {
        (point.rails, point.size_bytes) = (rails, size_bytes);
        let before = watch(&machine, &point, &routes, 0);
        let sent = |name| if name == resting { 40 } else { 100_000 };
        let machine = Machine::new();
        counted(
            &machine,
            &[("eth0", 0, sent("eth0")), ("eth1", 0, sent("eth1"))],
        );
        let after = Watch {
            before: before.before,
            ..watch(&machine, &point, &routes, 0)
        };
        let path = found(&after, &[(0, 100_000, 0)]);
        let proven = path.crossed.then_some(path.devices_crossed);
        assert_eq!(
            proven, crossed,
            "{rails:?} {size_bytes} {resting}: {path:#?}"
        );
    }
}
