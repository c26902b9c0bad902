//! Choices of libraries, providers and devices, and choices that are refused.

use super::*;
use std::net::IpAddr;
use std::sync::Arc;
use tonnage_engine::DeviceRequest;
use tonnage_sys::libfabric::{Hints, Info, Libfabric};

#[test]
fn other_versions_and_providers_are_refused_with_both_named() {
    let none = EngineOptions::new();
    let mut own = side("tcp", &none, 0, &[1]);
    let mut other = side("tcp", &none, 1, &[0]);
    own.address_for(1);
    let address = other.address_for(0);
    let altered = |key: &str, value: &str| {
        let mut address: Value = serde_json::from_slice(&address.0).unwrap();
        address[key] = value.into();
        EndpointAddress(serde_json::to_vec(&address).unwrap())
    };
    let mut refused = |address: EndpointAddress| {
        let neighbor = PeerEndpoint::same_container(1, address);
        own.engine.connect(&[neighbor]).unwrap_err().to_string()
    };
    let version = refused(altered("libfabric", "9.9"));
    assert!(
        version.contains("rank 0 has libfabric 1.22") && version.contains("rank 1 has 9.9"),
        "{version}"
    );
    assert!(version.contains("--libfabric"), "{version}");
    let provider = refused(altered("provider", "efa"));
    assert!(
        provider.contains("provider tcp") && provider.contains("has efa"),
        "{provider}"
    );
    assert!(refused(EndpointAddress(b"nonsense".to_vec())).contains("ranks 0 and 1"));
}

#[test]
fn missing_providers_and_devices_are_refused_with_the_available_ones() {
    let none = EngineOptions::new();
    let efa = refused(&request("efa", &none));
    assert!(
        efa.contains("was built without it") && efa.contains("Available providers: shm, tcp"),
        "{efa}"
    );
    let nonsense = refused(&request("nonsense", &none));
    assert!(nonsense.contains("fabric:nonsense"), "{nonsense}");
    let devices = ["nope0".to_owned()];
    let device = refused(&OpenRequest {
        devices: DeviceRequest::Named(&devices),
        ..request("tcp", &none)
    });
    assert!(
        device.contains("no device nope0") && device.contains("lo"),
        "{device}"
    );
    let library = refused(&OpenRequest {
        libraries: libraries("/nonexistent/libfabric.so.1"),
        ..request("tcp", &none)
    });
    assert!(
        library.contains("/nonexistent/libfabric.so.1") && library.contains("--libfabric"),
        "{library}"
    );
    let cma = option(SHM_WRITES, "cma");
    let without_effect = ENTRY.check_options(&cma, "tcp;ofi_rxm").unwrap_err();
    let text = without_effect.to_string();
    assert!(text.contains("no effect on fabric:tcp;ofi_rxm"), "{text}");
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[test]
fn all_leaves_out_devices_that_cannot_reach_other_hosts() {
    let none = EngineOptions::new();
    let asked = request("tcp", &none);
    let hints = Hints {
        provider: "tcp",
        messages: false,
        ordered_writes: false,
        reads_after_writes: false,
        delivery: false,
        device_memory: false,
        virtual_addresses: true,
    };
    let (library, _) = Libfabric::choose(Some("embedded")).unwrap();
    let library = Arc::new(library);
    let taken = |one_network, address: Option<IpAddr>, no_way_out| {
        let request = OpenRequest {
            one_network,
            address,
            ..asked.clone()
        };
        let offered = Info::query(&library, &hints).unwrap();
        let (infos, left_out) = choose::all_devices(offered, &request, no_way_out);
        let names = infos.iter().map(|info| info.attributes().domain.clone());
        (names.collect::<Vec<_>>(), left_out)
    };
    assert_eq!(
        taken(true, None, |_| Some("down")),
        (vec!["lo".to_owned()], String::new())
    );
    let (names, left_out) = taken(false, None, |_| None);
    assert!(left_out.is_empty(), "{left_out}");
    // If `no_way_out` has a reason against every device, all of them are still tried.
    assert_eq!(
        taken(false, None, |_| Some("down")),
        (names.clone(), String::new())
    );
    let address = |name: &String| {
        let all = tonnage_sys::interfaces::addresses().unwrap();
        let found = all
            .iter()
            .find(|one| one.name == *name && one.address.is_ipv4());
        found.map(|one| one.address)
    };
    // A device is also kept if the control channel uses its second address.
    let all = tonnage_sys::interfaces::addresses().unwrap();
    let second = names.iter().find_map(|name| {
        let of_name = all.iter().filter(|one| one.name == *name);
        let mut other = of_name.filter(|one| Some(one.address) != address(name));
        other.find(|one| !is_link_local(one.address))
    });
    match second {
        Some(second) => {
            let (kept, _) = taken(false, Some(second.address), |_| Some("down"));
            assert_eq!(kept, std::slice::from_ref(&second.name));
        }
        None => println!("skip: no interface here has a second address of wider scope"),
    }
    let Some(used) = names.iter().find_map(address) else {
        println!("skip: no interface here has an IPv4 address");
        return;
    };
    let (kept, left_out) = taken(false, Some(used), |_| Some("down"));
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(
        left_out.matches(" (down)").count(),
        names.len() - 1,
        "{left_out}"
    );
}

#[test]
fn a_device_is_named_by_interface_or_address() {
    let none = EngineOptions::new();
    for device in ["lo", "127.0.0.1"] {
        let devices = [device.to_owned()];
        let domains = open(&OpenRequest {
            devices: DeviceRequest::Named(&devices),
            ..request("tcp", &none)
        });
        let domains = domains.unwrap();
        assert_eq!(domains.len(), 1);
        let report = domains[0].report();
        assert_eq!(report.device.as_deref(), Some("lo"), "{report:?}");
        let library = report.library.unwrap();
        assert_eq!(library.version, "libfabric 1.22");
        assert_eq!(domains[0].wire_devices()[0].name, "lo");
        assert_eq!(domains[0].caps().bound, BoundKind::SocketStream);
    }
    let shm = open(&request("shm", &none)).unwrap();
    assert!(shm[0].wire_devices().is_empty());
    assert_eq!(shm[0].caps().bound, BoundKind::MemoryCopy);
    assert!(shm[0].caps().ordered_writes);
    let cma = option(SHM_WRITES, "cma");
    assert!(
        !open(&request("shm", &cma)).unwrap()[0]
            .caps()
            .ordered_writes
    );
}

#[test]
fn shm_is_refused_between_hosts_and_containers_but_tcp_is_not() {
    let none = EngineOptions::new();
    for (provider, locality, reason) in [
        ("shm", Locality::OtherMachine, "different hosts"),
        ("shm", Locality::SameMachine, "different containers"),
        ("tcp", Locality::OtherMachine, ""),
    ] {
        let mut sides = [
            side(provider, &none, 0, &[1]),
            side(provider, &none, 1, &[0]),
        ];
        let mut all = introduced(&mut sides);
        for neighbor in &mut all[0] {
            neighbor.locality = locality;
        }
        let connected = sides[0].engine.connect(&all[0]);
        let refused = connected.err().map(|error| error.to_string());
        let refused = refused.unwrap_or_default();
        assert!(refused.contains(reason), "{provider}: {refused}");
        assert_eq!(
            refused.is_empty(),
            reason.is_empty(),
            "{provider}: {refused}"
        );
    }
}

/// The message for an interface that is down must differ from that for one that does not exist.
#[test]
fn an_interface_that_is_down_is_reported_as_existing() {
    let words = |state: &str| choose::not_running("eth7", Some(state.to_owned()));
    assert_eq!(words("down\n"), words("down"));
    assert!(words("down\n").starts_with(": the interface eth7 exists and is down: "));
    assert!(words("dormant").contains("exists and is dormant"));
    for running in ["up\n", "unknown"] {
        assert_eq!(words(running), "");
    }
    assert_eq!(choose::not_running("eth7", None), "");
}
