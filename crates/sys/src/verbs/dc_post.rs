//! Posts work requests to DC initiators by the extended interface, each with its target's address, and keeps the table
//! of these addresses.
//!
//! Makes the calls in order, with their arguments. [`super::post`] checks bounds and builds lists of work requests;
//! [`super::dc_pair`] makes queue pairs.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi::{IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};
use super::chain::Chain;
use super::check;
use super::handles::Initiator;
use super::mlx5::Libmlx5;
use super::mlx5_abi::{ibv_ah, ibv_qp_ex, ibv_srq, mlx5dv_qp_ex};
use crate::error::LibraryError;

/// The address of a target.
#[derive(Clone, Copy)]
pub(super) struct DcAddress {
    pub(super) port: NonNull<ibv_ah>,
    pub(super) number: u32,
    pub(super) key: u64,
}

/// Objects of a worker's queues that only DC queue pairs need. They are closed after the queue pairs.
pub(super) struct DcParts {
    pub(super) library: Arc<Libmlx5>,
    /// Receive queue of the target. It stays empty, but a target cannot be made without one.
    pub(super) receives: NonNull<ibv_srq>,
    pub(super) addresses: Vec<DcAddress>,
}

impl DcParts {
    /// Closes these objects; returns whether all could be closed.
    ///
    /// # Safety
    /// No queue pair uses these objects any more.
    pub(super) unsafe fn close(self) -> bool {
        let calls = &self.library.verbs;
        let mut closed = true;
        for address in &self.addresses {
            // SAFETY: the handle came from the library, and no work request uses it, as the caller promises.
            closed &= unsafe { (calls.destroy_ah)(address.port.as_ptr()) } == 0;
        }
        // SAFETY: the queue came from the library, and no queue pair uses it, as the caller promises.
        closed & (unsafe { (calls.destroy_srq)(self.receives.as_ptr()) } == 0)
    }
}

/// A call that begins a work request, with the key and address of its remote range.
type Begin = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64);

/// The posting calls of an initiator's interface.
struct PostingCalls {
    start: unsafe extern "C" fn(*mut ibv_qp_ex),
    read: Begin,
    write: Begin,
    set_stretch: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32),
    set_inline: unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize),
    set_target: unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut ibv_ah, u32, u64),
    complete: unsafe extern "C" fn(*mut ibv_qp_ex) -> i32,
    abort: unsafe extern "C" fn(*mut ibv_qp_ex),
}

impl PostingCalls {
    /// Reads the calls; `None` if one is missing. The library may have replaced them, because it does so when the state
    /// of the queue pair changes.
    #[inline]
    fn read(initiator: &Initiator) -> Option<Self> {
        // SAFETY: both are parts of an open queue pair, which only this thread uses.
        let (queue, own) = unsafe {
            (
                initiator.interface.as_ref(),
                initiator.own_interface.as_ref(),
            )
        };
        Some(Self {
            start: queue.wr_start?,
            read: queue.wr_rdma_read?,
            write: queue.wr_rdma_write?,
            set_stretch: queue.wr_set_sge?,
            set_inline: queue.wr_set_inline_data?,
            set_target: own.wr_set_dc_addr?,
            complete: queue.wr_complete?,
            abort: queue.wr_abort?,
        })
    }
}

/// Submits the first `count` work requests of a list with one doorbell, or none of them if one is invalid.
#[inline]
pub(super) fn hand_over(
    initiator: &Initiator,
    chain: &Chain,
    count: usize,
    addresses: &[DcAddress],
) -> Result<(), LibraryError> {
    let queue = initiator.interface.as_ptr();
    let own = initiator.own_interface.as_ptr();
    let Some(calls) = PostingCalls::read(initiator) else {
        return Err(LibraryError::unsupported(
            "libmlx5 has no work-request calls for the DC initiator",
        ));
    };
    // SAFETY: the queue pair is open; what is started here is completed or aborted below.
    unsafe { (calls.start)(queue) };
    for place in 0..count {
        let (request, stretch) = (&chain.requests[place], &chain.stretches[place]);
        let begin = match request.opcode {
            IBV_WR_RDMA_READ => Some(calls.read),
            IBV_WR_RDMA_WRITE => Some(calls.write),
            _ => None,
        };
        let (Some(begin), Some(target)) = (begin, addresses.get(chain.targets[place])) else {
            // SAFETY: work requests were started and not completed.
            unsafe { (calls.abort)(queue) };
            return Err(LibraryError::argument(
                "a DC work request is neither read nor write, or has no target",
            ));
        };
        // SAFETY: the queue pair is open and between start and completion. The range lies inside registered memory,
        // which stays mapped until the queue pair is closed, as does the target's address; inline data are copied by
        // the call. Reads and writes have the remote range of a copy.
        unsafe {
            (*queue).wr_id = request.wr_id;
            (*queue).wr_flags = request.send_flags & IBV_SEND_SIGNALED;
            let far = request.wr.rdma;
            begin(queue, far.rkey, far.remote_addr);
            if request.send_flags & IBV_SEND_INLINE == 0 {
                (calls.set_stretch)(queue, stretch.lkey, stretch.addr, stretch.length);
            } else {
                let bytes = stretch.addr as usize as *mut c_void;
                (calls.set_inline)(queue, bytes, stretch.length as usize);
            }
            (calls.set_target)(own, target.port.as_ptr(), target.number, target.key);
        }
    }
    // SAFETY: the queue pair is open, and its work requests are complete.
    let code = unsafe { (calls.complete)(queue) };
    match code {
        0 => Ok(()),
        _ => check("ibv_wr_complete", code),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::mem::MaybeUninit;

    use super::super::abi::{IBV_WR_SEND, ibv_sge, ibv_wr_rdma};
    use super::*;
    use crate::error::LibraryErrorKind;

    thread_local! {
        static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
        static CODE: RefCell<i32> = const { RefCell::new(0) };
    }

    fn called(call: String) {
        CALLS.with_borrow_mut(|calls| calls.push(call));
    }

    fn taken() -> Vec<String> {
        CALLS.with_borrow_mut(std::mem::take)
    }

    unsafe extern "C" fn start(_: *mut ibv_qp_ex) {
        called("start".into());
    }

    fn begun(name: &str, queue: *mut ibv_qp_ex, key: u32, address: u64) {
        // SAFETY: the test's own interface, which lives longer than the call.
        let (id, flags) = unsafe { ((*queue).wr_id, (*queue).wr_flags) };
        called(format!(
            "{name} id={id} flags={flags} key={key} address={address:#x}"
        ));
    }

    unsafe extern "C" fn read(queue: *mut ibv_qp_ex, key: u32, address: u64) {
        begun("read", queue, key, address);
    }

    unsafe extern "C" fn write(queue: *mut ibv_qp_ex, key: u32, address: u64) {
        begun("write", queue, key, address);
    }

    unsafe extern "C" fn stretch(_: *mut ibv_qp_ex, key: u32, address: u64, len: u32) {
        called(format!("stretch key={key} address={address:#x} len={len}"));
    }

    unsafe extern "C" fn inline(_: *mut ibv_qp_ex, address: *mut c_void, len: usize) {
        // SAFETY: the test's own bytes.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
        called(format!("inline {bytes:?}"));
    }

    unsafe extern "C" fn target(_: *mut mlx5dv_qp_ex, port: *mut ibv_ah, number: u32, key: u64) {
        called(format!(
            "target port={:#x} number={number} key={key:#x}",
            port as usize
        ));
    }

    unsafe extern "C" fn complete(_: *mut ibv_qp_ex) -> i32 {
        called("complete".into());
        CODE.with_borrow(|code| *code)
    }

    unsafe extern "C" fn abort(_: *mut ibv_qp_ex) {
        called("abort".into());
    }

    /// An interface that records its calls.
    struct Recorder {
        queue: Box<ibv_qp_ex>,
        own: Box<mlx5dv_qp_ex>,
    }

    impl Recorder {
        fn new() -> Self {
            // SAFETY: zero is a valid value of its numbers and pointers, and `None` for its calls.
            let mut queue: Box<ibv_qp_ex> =
                Box::new(unsafe { MaybeUninit::zeroed().assume_init() });
            queue.wr_start = Some(start);
            queue.wr_rdma_read = Some(read);
            queue.wr_rdma_write = Some(write);
            queue.wr_set_sge = Some(stretch);
            queue.wr_set_inline_data = Some(inline);
            queue.wr_complete = Some(complete);
            queue.wr_abort = Some(abort);
            let own = Box::new(mlx5dv_qp_ex {
                comp_mask: 0,
                wr_set_dc_addr: Some(target),
            });
            Self { queue, own }
        }

        fn initiator(&mut self) -> Initiator {
            Initiator {
                interface: NonNull::from(&mut *self.queue),
                own_interface: NonNull::from(&mut *self.own),
            }
        }
    }

    fn addresses() -> [DcAddress; 2] {
        [(0x40, 0x111, 0xaaaa_bbbb_cccc_dddd), (0x80, 0x222, 7)].map(|(port, number, key)| {
            DcAddress {
                port: NonNull::new(std::ptr::without_provenance_mut(port)).unwrap(),
                number,
                key,
            }
        })
    }

    /// A list of staged work requests: opcode, flags, address and length of local bytes, target.
    fn chain(staged: &[(u32, u32, u64, u32, usize)]) -> Chain {
        let mut chain = Chain::new();
        for (place, &(opcode, flags, addr, length, target)) in staged.iter().enumerate() {
            chain.stretches[place] = ibv_sge {
                addr,
                length,
                lkey: 77,
            };
            let request = &mut chain.requests[place];
            request.wr_id = 1000 + place as u64;
            request.opcode = opcode;
            request.send_flags = flags;
            request.wr.rdma = ibv_wr_rdma {
                remote_addr: 0x9000 + place as u64,
                rkey: 88,
            };
            chain.targets[place] = target;
        }
        chain
    }

    #[test]
    fn each_work_request_has_its_bytes_and_its_target_and_all_have_one_doorbell() {
        let mut recorder = Recorder::new();
        let payload = *b"abc";
        let at = payload.as_ptr().expose_provenance() as u64;
        let list = chain(&[
            (IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0x5000, 64, 1),
            (IBV_WR_RDMA_WRITE, 0, 0x6000, 4096, 0),
            (
                IBV_WR_RDMA_WRITE,
                IBV_SEND_INLINE | IBV_SEND_SIGNALED,
                at,
                3,
                1,
            ),
            (IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0x7000, 0, 0),
            (IBV_WR_RDMA_READ, 0, 0x8000, 8, 0),
        ]);
        // The last request is left over from an earlier list.
        hand_over(&recorder.initiator(), &list, 4, &addresses()).unwrap();
        let one = "target port=0x40 number=273 key=0xaaaabbbbccccdddd";
        let other = "target port=0x80 number=546 key=0x7";
        let expected = [
            "start",
            "read id=1000 flags=2 key=88 address=0x9000",
            "stretch key=77 address=0x5000 len=64",
            other,
            "write id=1001 flags=0 key=88 address=0x9001",
            "stretch key=77 address=0x6000 len=4096",
            one,
            "write id=1002 flags=2 key=88 address=0x9002",
            "inline [97, 98, 99]",
            other,
            "write id=1003 flags=2 key=88 address=0x9003",
            // A write of 0 bytes sets its range too, because a work request needs both a range and a target.
            "stretch key=77 address=0x7000 len=0",
            one,
            "complete",
        ];
        assert_eq!(taken(), expected);
    }

    #[test]
    fn a_list_that_cannot_be_handed_over_is_aborted() {
        let mut recorder = Recorder::new();
        let wrong = [
            (IBV_WR_SEND, 0, 0x5000, 8, 0),
            (IBV_WR_RDMA_READ, 0, 0x5000, 8, 2),
            (
                IBV_WR_RDMA_READ,
                0,
                0x5000,
                8,
                super::super::chain::NO_TARGET,
            ),
        ];
        for second in wrong {
            let list = chain(&[(IBV_WR_RDMA_WRITE, 0, 0x5000, 8, 0), second]);
            hand_over(&recorder.initiator(), &list, 2, &addresses()).unwrap_err();
            let calls = taken();
            assert_eq!(calls.len(), 5, "{calls:?}");
            assert_eq!((calls[0].as_str(), calls[4].as_str()), ("start", "abort"));
        }
    }

    #[test]
    fn a_refusal_has_its_reason_and_a_missing_call_is_not_made() {
        let mut recorder = Recorder::new();
        let list = chain(&[(IBV_WR_RDMA_WRITE, 0, 0x5000, 8, 0)]);
        CODE.set(12);
        let error = hand_over(&recorder.initiator(), &list, 1, &addresses()).unwrap_err();
        assert!(
            matches!(
                *error,
                LibraryErrorKind::Call {
                    call: "ibv_wr_complete",
                    code: 12,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(taken().last().unwrap(), "complete");
        recorder.own.wr_set_dc_addr = None;
        hand_over(&recorder.initiator(), &list, 1, &addresses()).unwrap_err();
        assert_eq!(taken(), [""; 0]);
    }
}
