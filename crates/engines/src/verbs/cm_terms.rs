//! Decides whether a path granted by rdma_cm agrees with the options, and gives advice about failures.
//!
//! This file only decides and formats. It does not call the library.

use std::net::IpAddr;

use tonnage_sys::verbs::{CmEvent, CmEventKind, PathTo};

use super::cm::CmStep;

/// Returns the path of a queue pair: rdma_cm's path, with the values that options override. A value of 0 stands for an
/// option that the user did not give.
///
/// # Errors
/// If rdma_cm's path contradicts an option or the peer's endpoint address. The error names both values.
pub(super) fn agreed(wanted: &PathTo, granted: &PathTo) -> Result<PathTo, String> {
    let (number, promised) = (granted.number, wanted.number);
    if number != promised {
        return Err(format!(
            "its queue pair is {number}, but its endpoint address has {promised}"
        ));
    }
    if granted.port != wanted.port {
        return Err(format!(
            "its address leads to port {}, not to port {}",
            granted.port, wanted.port
        ));
    }
    if granted.pkey_index != wanted.pkey_index {
        return Err(format!(
            "the partition key of this address has the index {}, but pkey={} was requested: choose engine-option \
             pkey={0}, or an address of another interface",
            granted.pkey_index, wanted.pkey_index
        ));
    }
    // Without `wanted` addresses, rdma_cm may still use addresses in packets.
    if let Some((own, _)) = wanted.gids {
        let index = granted.gids.map(|(index, _)| index);
        if index != Some(own) {
            let index = index.map_or("none".to_owned(), |index| index.to_string());
            return Err(format!(
                "of the GIDs with this address it uses index {index}, not {own}: choose engine-option gid={index}, or \
                 another RoCE version for rdma_cm (cma_roce_mode)"
            ));
        }
    }
    let asked_or = |asked: u8, otherwise| if asked == 0 { otherwise } else { asked };
    Ok(PathTo {
        mtu: wanted.mtu.min(granted.mtu),
        service_level: asked_or(wanted.service_level, granted.service_level),
        traffic_class: asked_or(wanted.traffic_class, granted.traffic_class),
        flow_label: match wanted.flow_label {
            0 => granted.flow_label,
            asked => asked,
        },
        reads_out: wanted.reads_out,
        reads_in: wanted.reads_in,
        ..*granted
    })
}

/// Returns advice about an event that ended an attempt to connect.
pub(super) fn advice(event: &CmEvent, own: IpAddr, other: IpAddr) -> String {
    match (event.kind, event.status) {
        (CmEventKind::AddressError | CmEventKind::RouteError, _) => no_route(own, other),
        (CmEventKind::Unreachable, _) => no_answer(own, other),
        (CmEventKind::Rejected, 8) => {
            "the port there is closed: the peer has ended, or another host has this address too".to_owned()
        }
        (CmEventKind::Rejected, 10) => {
            "a device still has a connection of the same queue pair in the time-wait state: try again in a few seconds".to_owned()
        }
        (CmEventKind::Rejected, 28) => format!(
            "the listener there refuses: it is not the peer of this run, or it reports its own reason; check that \
             only one host has the address {other}"
        ),
        (CmEventKind::DeviceRemoved, _) => format!(
            "the device of {own} was removed while it connected (dmesg shows the reason): choose another by --devices"
        ),
        (CmEventKind::Disconnected, _) => "the peer has ended: see its output".to_owned(),
        _ => "check the kernel's log (dmesg)".to_owned(),
    }
}

/// Returns advice about a step that exceeded its time limit.
pub(super) fn advice_late(step: CmStep, own: IpAddr, other: IpAddr, strangers: u64) -> String {
    match (step, strangers) {
        (CmStep::Unasked | CmStep::Resolving | CmStep::Routing, _) => no_route(own, other),
        (CmStep::Awaiting, 1..) => format!(
            "requests without a valid secret: {strangers}; check that only one host has the address {own}"
        ),
        _ => no_answer(own, other),
    }
}

fn no_route(own: IpAddr, other: IpAddr) -> String {
    format!(
        "check that a route leads there (ip route get {other} from {own}) and that its interface answers (ping -I \
         {own} {other})"
    )
}

fn no_answer(own: IpAddr, other: IpAddr) -> String {
    format!(
        "check that RDMA packets pass from {own} to {other} and back (RoCE v2: UDP port 4791 in firewalls and \
         switches); rping connects in the same way"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> PathTo {
        PathTo {
            port: 1,
            number: 17,
            mtu: 4096,
            gids: Some((1, [9; 16])),
            reads_out: 16,
            reads_in: 16,
            ..PathTo::default()
        }
    }

    #[test]
    fn options_override_the_granted_path() {
        let granted = PathTo {
            first_packet_out: 5,
            first_packet_in: 6,
            mtu: 1024,
            gids: Some((1, [8; 16])),
            lid: 7,
            service_level: 3,
            traffic_class: 104,
            flow_label: 77,
            reads_out: 1,
            reads_in: 2,
            ..path()
        };
        let taken = agreed(&path(), &granted).unwrap();
        let expected = PathTo {
            reads_out: 16,
            reads_in: 16,
            ..granted
        };
        assert_eq!(taken, expected);
        let asked = PathTo {
            mtu: 512,
            service_level: 4,
            traffic_class: 96,
            flow_label: 9,
            reads_out: 3,
            ..path()
        };
        let expected = PathTo {
            mtu: 512,
            service_level: 4,
            traffic_class: 96,
            flow_label: 9,
            reads_out: 3,
            reads_in: 16,
            ..granted
        };
        assert_eq!(agreed(&asked, &granted).unwrap(), expected);
    }

    #[test]
    fn contradicting_terms_are_refused_with_their_option() {
        let but = |change: fn(&mut PathTo)| {
            let mut granted = path();
            change(&mut granted);
            agreed(&path(), &granted).unwrap_err()
        };
        for (why, part) in [
            (
                but(|it| it.number = 18),
                "queue pair is 18, but its endpoint address has 17",
            ),
            (but(|it| it.port = 2), "port 2"),
            (but(|it| it.pkey_index = 3), "choose engine-option pkey=3"),
            (
                but(|it| it.gids = Some((0, [9; 16]))),
                "choose engine-option gid=0",
            ),
            (but(|it| it.gids = None), "index none"),
        ] {
            assert!(why.contains(part), "{why}");
        }
        // Over InfiniBand, no addresses are requested.
        let unasked = PathTo {
            gids: None,
            ..path()
        };
        assert_eq!(agreed(&unasked, &path()).unwrap(), path());
    }

    #[test]
    fn advice_names_the_addresses_and_the_strangers() {
        let [own, other] = ["10.1.0.1", "10.1.0.2"].map(|text| text.parse().unwrap());
        let event = |kind, status| CmEvent {
            kind,
            name: String::new(),
            status,
            about: None,
            private: Vec::new(),
        };
        let advice = |kind, status| advice(&event(kind, status), own, other);
        for (kind, status, part) in [
            (
                CmEventKind::AddressError,
                -113,
                "ip route get 10.1.0.2 from 10.1.0.1",
            ),
            (CmEventKind::Rejected, 10, "time-wait"),
            (CmEventKind::Rejected, 28, "10.1.0.2"),
            (CmEventKind::Unreachable, -110, "4791"),
            (CmEventKind::DeviceRemoved, 0, "removed"),
        ] {
            let text = advice(kind, status);
            assert!(text.contains(part), "{text}");
        }
        let late = |step, strangers| advice_late(step, own, other, strangers);
        assert!(late(CmStep::Awaiting, 3).contains("secret: 3;"));
        assert!(!late(CmStep::Awaiting, 0).contains("secret"));
        assert!(late(CmStep::Asking, 0).contains("4791"));
    }
}
