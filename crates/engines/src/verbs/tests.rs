//! Tests of the engine without a device. Tests that move bytes need a device: see scripts/rdma-guest.

use tonnage_engine::{DeviceRequest, EngineOptions, OpenRequest, Verb};
use tonnage_units::Error;

use super::ENTRY;
use super::options::{Asked, FlowLabel, format_retries};
use super::transport::VerbsTransport;

fn asked(options: &[(&str, &str)]) -> Asked {
    let options: EngineOptions = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let checked = ENTRY.check_options(&options, "rc").unwrap();
    Asked::from_request(&OpenRequest {
        variant: "rc",
        options: &checked,
        ..OpenRequest::default()
    })
}

#[test]
fn options_are_parsed() {
    let usual = asked(&[]);
    assert_eq!((usual.gid, usual.mtu, usual.reads), (None, None, None));
    assert_eq!((usual.send_depth, usual.inline_bytes), (None, None));
    assert_eq!((usual.list, usual.signal), (usize::MAX, 1));
    let patience = &usual.patience;
    assert_eq!(
        (patience.retry, patience.rnr_retry, patience.timeout),
        (3, 7, 14)
    );
    assert_eq!((usual.flow_label, usual.relaxed), (FlowLabel::Auto, false));
    assert!(!usual.by_cm && !asked(&[("connect", "exchange")]).by_cm);
    // 4.096 us times 2^14, times four attempts.
    let promised = usual.gives_up_after_ms().unwrap();
    assert!((promised - 268.435_456).abs() < 1e-9, "{promised}");
    let all = asked(&[
        ("connect", "cm"),
        ("gid", "3"),
        ("mtu", "1024"),
        ("sl", "5"),
        ("traffic-class", "104"),
        ("pkey", "2"),
        ("flow-label", "77"),
        ("retry", "forever"),
        ("rnr-retry", "0"),
        ("rd-atomic", "1"),
        ("inline", "0"),
        ("sq-depth", "64"),
        ("post-list", "16"),
        ("signal", "8"),
        ("ordering", "relaxed"),
    ]);
    assert_eq!(
        (all.gid, all.mtu, all.service_level, all.traffic_class),
        (Some(3), Some(1024), 5, 104)
    );
    assert_eq!((all.pkey_index, all.flow_label), (2, FlowLabel::Fixed(77)));
    assert_eq!(
        (
            format_retries(all.patience.retry).as_str(),
            all.patience.rnr_retry
        ),
        ("forever", 0)
    );
    assert_eq!(all.gives_up_after_ms(), None);
    assert_eq!(
        (all.reads, all.inline_bytes, all.send_depth),
        (Some(1), Some(0), Some(64))
    );
    assert_eq!((all.list, all.signal, all.relaxed), (16, 8, true));
    assert!(all.by_cm);
    assert_eq!(
        asked(&[("flow-label", "spread")]).flow_label,
        FlowLabel::Spread
    );
}

#[test]
fn missing_devices_are_refused_with_advice() {
    let devices = ["mlx5_99".to_owned()];
    let request = OpenRequest {
        variant: "rc",
        devices: DeviceRequest::Named(&devices),
        verbs: &[Verb::Write],
        ..OpenRequest::default()
    };
    match (ENTRY.open)(&request) {
        Err(Error::Unavailable { what, why, how }) => {
            assert_eq!(what, "verbs:rc");
            assert!(
                why.contains("mlx5_99") || why.contains("libibverbs"),
                "{why}"
            );
            assert!(!how.is_empty());
        }
        other => panic!("{:?}", other.err()),
    }
    let request = OpenRequest {
        variant: "ud",
        ..request
    };
    let refused = (ENTRY.open)(&request).err().unwrap().to_string();
    assert!(
        refused.contains("verbs:ud") && refused.contains("verbs:rc"),
        "{refused}"
    );
}

#[test]
fn initiators_are_only_for_dc_and_seven_retries_are_named_forever() {
    for (name, value, part) in [
        ("dci", "4", "dci=4 is for verbs:dc"),
        ("retry", "7", "retry=forever|0 to 6"),
    ] {
        let options = EngineOptions::from([(name.to_owned(), value.to_owned())]);
        let refused = ENTRY.check_options(&options, "rc").unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
    let options = EngineOptions::from([("dci".to_owned(), "4".to_owned())]);
    let checked = ENTRY.check_options(&options, "dc").unwrap();
    let asked = |variant, options| {
        Asked::from_request(&OpenRequest {
            variant,
            options,
            ..OpenRequest::default()
        })
    };
    let dc = asked("dc", &checked);
    assert_eq!((dc.transport, dc.initiators), (VerbsTransport::Dc, 4));
    let none = EngineOptions::new();
    let usual = asked("dc", &none);
    assert_eq!((usual.transport, usual.initiators), (VerbsTransport::Dc, 1));
    assert_eq!(asked("rc", &none).transport, VerbsTransport::Rc);
}
