//! The engine `verbs:kernel` with a key that the target never issued, between two devices of one host and in one
//! process. It needs the kernel module, so it runs in the virtual machine of `make test-kernel`, which names the
//! devices.
#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;
use tonnage_engine::carried::{CarriedFlow, CarriedOrder, CarriedOutcome};
use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::{
    Access, Descriptor, DeviceRequest, Engine, LaneKind, LaneSpec, OpenRequest, PeerEndpoint,
    Region, Verb, WorkerConfig,
};
use tonnage_engines::memory::SMALL;
use tonnage_engines::verbs::ENTRY;
use tonnage_sys::clock::Clock;
use tonnage_units::Result;

/// Environment variable with the device of the target and that of the initiator, separated by a comma.
const DEVICES: &str = "TONNAGE_TEST_KERNEL";
const BYTES: u64 = 64 << 10;
const SIZE: u32 = 4096;

/// A worker of one rank, with registered memory.
struct Side {
    engine: Box<dyn Engine>,
    memory: Arc<dyn Memory>,
    region: Region,
}

/// Opens a side. The target has rank 0, and the initiator has rank 1.
fn side(rank: u32, device: &str, clock: Clock) -> Side {
    let opened = (ENTRY.open)(&OpenRequest {
        variant: "kernel",
        devices: DeviceRequest::Named(&[device.to_owned()]),
        initiates: rank == 1,
        ..OpenRequest::default()
    });
    let config = WorkerConfig {
        clock,
        ..WorkerConfig::polling(rank, 1, 4)
    };
    let mut engine = opened.unwrap()[0].worker(&config).unwrap();
    let memory = (SMALL.allocate)(&Request {
        bytes: BYTES,
        ..Request::default()
    });
    let memory = memory.unwrap();
    memory
        .write(0, &vec![rank as u8 + 1; BYTES as usize])
        .unwrap();
    let region = engine.register(&memory).unwrap();
    Side {
        engine,
        memory,
        region,
    }
}

/// Returns a target and an initiator after first contact.
fn pair(devices: [&str; 2]) -> [Side; 2] {
    let clock = Clock::new();
    let [mut target, mut initiator] = [side(0, devices[0], clock), side(1, devices[1], clock)];
    let addresses = [
        target.engine.endpoint_addresses(&[1]),
        initiator.engine.endpoint_addresses(&[0]),
    ];
    let [of_target, of_initiator] = addresses.map(|addresses| addresses.unwrap().remove(0));
    let to_initiator = PeerEndpoint::same_container(1, of_initiator);
    target.engine.connect(&[to_initiator]).unwrap();
    let to_target = PeerEndpoint::same_container(0, of_target);
    initiator.engine.connect(&[to_target]).unwrap();
    initiator.engine.meet(&|| false).unwrap();
    [target, initiator]
}

/// Runs an order of four consecutive operations.
fn carried(initiator: &mut Side, verb: Verb, remote: &Descriptor) -> Result<CarriedOutcome> {
    let lane = initiator.engine.lane(&LaneSpec::new(
        LaneKind::Initiate(verb),
        0,
        initiator.region.id,
        remote,
    ))?;
    let (stop, flow) = (
        AtomicBool::new(false),
        CarriedFlow {
            lane,
            local: 0,
            remote: 0,
            seed: 1,
            issued: 0,
        },
    );
    let order = CarriedOrder {
        verb,
        size_bytes: SIZE,
        depth: 1,
        in_batches: false,
        slots: BYTES / u64::from(SIZE),
        stride_bytes: SIZE.into(),
        orders: (Access::Sequential, Access::Sequential),
        flows: &[flow],
        operations_max: Some(4),
        duration: None,
        patience: Duration::from_secs(20),
        timed: true,
        stop: &stop,
    };
    let carrier = initiator.engine.carrier().unwrap();
    carrier.copy_to_landing(&[(0, BYTES)])?;
    carrier.begin(&order)?;
    carrier.carry_out(&order)
}

/// Returns a descriptor of the same bytes with a wrong key.
fn spoiled(descriptor: &Descriptor) -> Descriptor {
    let mut known: Value = serde_json::from_slice(&descriptor.0).unwrap();
    let key = &mut known["keys"][0];
    *key = (key.as_u64().unwrap() ^ 0xff).into();
    Descriptor(serde_json::to_vec(&known).unwrap())
}

fn first_bytes(side: &Side) -> Vec<u8> {
    let mut bytes = vec![0; 4 * SIZE as usize];
    side.memory.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_wrong_key_is_refused_by_name_and_touches_nothing() {
    let Ok(devices) = std::env::var(DEVICES) else {
        println!(
            "skip: {DEVICES} is not set; run `make test-kernel`, which uses a guest with the module"
        );
        return;
    };
    let (target, initiator) = devices.split_once(',').unwrap();
    for verb in [Verb::Write, Verb::Read] {
        let [target, mut initiator] = pair([target, initiator]);
        let wrong = spoiled(&target.region.descriptor);
        let error = carried(&mut initiator, verb, &wrong)
            .unwrap_err()
            .to_string();
        for part in [verb.name(), "with rank 0", "REM_ACCESS_ERR (10)", "rxe"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(first_bytes(&target).iter().all(|&byte| byte == 1));
        println!("{error}");
        // Now the lane is unusable even with the right key, and reports this.
        let right = target.region.descriptor.clone();
        let after = carried(&mut initiator, verb, &right)
            .unwrap_err()
            .to_string();
        assert!(
            after.contains("an operation on it failed earlier"),
            "{after}"
        );
    }
    // With the right key, the same order changes these bytes.
    let [target, mut initiator] = pair([target, initiator]);
    let right = target.region.descriptor.clone();
    let trial = carried(&mut initiator, Verb::Write, &right).unwrap();
    assert_eq!(trial.operations(), 4);
    assert!(first_bytes(&target).iter().all(|&byte| byte == 2));
}
