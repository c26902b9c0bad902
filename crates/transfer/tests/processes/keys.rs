//! Use of a key after its memory was deregistered. The device must refuse it, with an error of the right kind and name.

use tonnage_transfer::{Extent, TransferErrorKind, Verb};

use super::pair::{BYTES, TIMEOUT, done, engines, first, second};

/// Deregisters this side's memory, notifies the first process, and waits until that process has tried to use it.
pub fn serve() {
    let side = second();
    let other = side.endpoint.allocate("host", BYTES).unwrap();
    let session = side.endpoint.session(&other, &side.remote).unwrap();
    drop(side.memory);
    done(session.write_imm(0, 0, 0, 1));
    // The result is ignored: the refused operation may have made this side's queue pair unusable.
    let _ = side.endpoint.wait_arrival(TIMEOUT);
}

#[test]
fn use_of_a_deregistered_key_fails_with_its_name() {
    if !engines().iter().any(|engine| engine == "verbs:rc") {
        println!(
            "skip: verbs:rc is not in TONNAGE_TEST_ENGINES; run `make test-rdma`, which uses a guest with RDMA devices"
        );
        return;
    }
    for verb in [Verb::Write, Verb::Read] {
        let (side, mut process) = first("verbs:rc", "take the memory back");
        assert_eq!(side.endpoint.wait_arrival(TIMEOUT).unwrap().imm, 1);
        let session = side.session();
        let ticket = session.post(verb, &Extent::new(0, 0, 4096)).unwrap();
        let error = ticket.wait(TIMEOUT).unwrap_err();
        assert_eq!(error.kind(), TransferErrorKind::OperationFailed);
        assert_eq!(
            (error.operation(), error.peer()),
            (Some(verb.name()), Some(1))
        );
        let failure = error.failure().unwrap();
        assert_eq!(failure.name, "REM_ACCESS_ERR", "{error}");
        assert!(failure.queue_pair.is_some(), "{error}");
        assert!(
            failure
                .device
                .as_deref()
                .is_some_and(|device| device.starts_with("rxe")),
            "{error}"
        );
        assert!(failure.usual_cause.is_some(), "{error}");
        println!("{error}");
        process.kill();
    }
}
