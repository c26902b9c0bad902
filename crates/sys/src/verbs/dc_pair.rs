//! DC queue pairs (Dynamically Connected transport of mlx5 NICs). An initiator reaches any target by an address in
//! each work request; a worker has one target, and addresses of other workers' targets.
//!
//! This module makes queue pairs, with the attributes of each of their states. [`super::dc_post`] posts to them.
//! Whether a device supports DC is only known after making one: [`probe_dc`].

use std::ffi::{c_int, c_uint};
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi::{
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_STATE,
    IBV_QPS_INIT, IBV_QPS_RTR, ibv_qp, ibv_qp_attr,
};
use super::context::Context;
use super::dc_post::{DcAddress, DcParts};
use super::handles::{AddressHandle, Initiator, PairHandle, PairLimits, QueueDepths, QueuePair};
use super::mlx5::Libmlx5;
use super::mlx5::not_driven;
use super::mlx5_abi::{
    IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QPT_DRIVER, MLX5DV_DCTYPE_DCI, MLX5DV_DCTYPE_DCT,
    MLX5DV_QP_INIT_ATTR_MASK_DC, ibv_qp_init_attr_ex, ibv_srq, ibv_srq_init_attr,
    mlx5dv_dc_init_attr, mlx5dv_qp_init_attr,
};
use super::queue_pair::{PathTo, Patience, SENDS_MASK, address, mtu_number, no_such_pair, sends};
use super::queues::Queues;
use super::{halving, last_error};
use crate::error::LibraryError;

/// Size of the target's receive queue. The queue is never used, but is required.
const RECEIVES: u32 = 1;

/// A state transition of a queue pair: the attributes, and the mask of those that are set.
struct PairStep {
    what: &'static str,
    attributes: ibv_qp_attr,
    mask: c_int,
}

/// The transitions of an initiator to the state in which it receives answers. They name no target, because each work
/// request names one.
fn initiator_steps(path: &PathTo) -> [PairStep; 2] {
    [
        PairStep {
            what: "of a DC initiator to INIT",
            attributes: ibv_qp_attr {
                qp_state: IBV_QPS_INIT,
                pkey_index: path.pkey_index,
                port_num: path.port,
                ..ibv_qp_attr::default()
            },
            mask: IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT,
        },
        PairStep {
            what: "of a DC initiator to RTR",
            attributes: ibv_qp_attr {
                qp_state: IBV_QPS_RTR,
                path_mtu: mtu_number(path.mtu),
                ..ibv_qp_attr::default()
            },
            mask: IBV_QP_STATE | IBV_QP_PATH_MTU,
        },
    ]
}

/// The transitions of a target to the state in which it answers, its final one. `path` is the path of the target's own
/// port. It provides the index of the local address, and the other attributes of answers.
fn target_steps(path: &PathTo, patience: Patience) -> [PairStep; 2] {
    [
        PairStep {
            what: "of a DC target to INIT",
            attributes: ibv_qp_attr {
                qp_state: IBV_QPS_INIT,
                pkey_index: path.pkey_index,
                port_num: path.port,
                qp_access_flags: (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) as u32,
                ..ibv_qp_attr::default()
            },
            mask: IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        },
        PairStep {
            what: "of a DC target to RTR",
            attributes: ibv_qp_attr {
                qp_state: IBV_QPS_RTR,
                path_mtu: mtu_number(path.mtu),
                min_rnr_timer: patience.rnr_timer,
                ah_attr: address(path),
                ..ibv_qp_attr::default()
            },
            mask: IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER,
        },
    ]
}

/// The two requests for a DC queue pair: the extended interface's request, and mlx5's own.
struct DcRequest {
    common: ibv_qp_init_attr_ex,
    own: mlx5dv_qp_init_attr,
}

impl DcRequest {
    fn initiator(queues: &Queues, depth: u32, inline_bytes: u32) -> Self {
        let mut request = Self::new(queues, MLX5DV_DCTYPE_DCI);
        request.common.cap.max_send_wr = depth;
        request.common.cap.max_send_sge = 1;
        request.common.cap.max_inline_data = inline_bytes;
        request.common.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        request.common.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
        request
    }

    fn target(queues: &Queues, receives: NonNull<ibv_srq>, key: u64) -> Self {
        let mut request = Self::new(queues, MLX5DV_DCTYPE_DCT);
        request.common.srq = receives.as_ptr();
        request.own.dc_init_attr.dct_access_key = key;
        request
    }

    fn new(queues: &Queues, dc_type: c_uint) -> Self {
        Self {
            common: ibv_qp_init_attr_ex {
                // A target does not send, but the library still requires a completion queue for sends.
                send_cq: queues.completions.as_ptr(),
                recv_cq: queues.completions.as_ptr(),
                qp_type: IBV_QPT_DRIVER,
                comp_mask: IBV_QP_INIT_ATTR_PD,
                pd: queues.protection.as_ptr(),
                ..ibv_qp_init_attr_ex::ZEROED
            },
            own: mlx5dv_qp_init_attr {
                comp_mask: MLX5DV_QP_INIT_ATTR_MASK_DC,
                dc_init_attr: mlx5dv_dc_init_attr {
                    dc_type,
                    dct_access_key: 0,
                },
                ..mlx5dv_qp_init_attr::default()
            },
        }
    }
}

impl Queues {
    /// Prepares for DC queue pairs; called once, before the first DC queue pair.
    ///
    /// # Errors
    /// The library's reason; or that the device does not belong to this library.
    pub fn open_dc(&mut self, library: &Arc<Libmlx5>) -> Result<(), LibraryError> {
        if !library.drives(&self.context) {
            return Err(not_driven());
        }
        if self.dc.is_some() {
            return Err(LibraryError::argument("the queues are already open for DC"));
        }
        let mut attributes = ibv_srq_init_attr {
            max_wr: RECEIVES,
            max_sge: 1,
            ..ibv_srq_init_attr::ZEROED
        };
        // SAFETY: the protection domain is open; the struct is valid for reads and writes.
        let receives =
            unsafe { (library.verbs.create_srq)(self.protection.as_ptr(), &raw mut attributes) };
        let receives = NonNull::new(receives).ok_or_else(|| last_error("ibv_create_srq"))?;
        self.dc = Some(DcParts {
            library: Arc::clone(library),
            receives,
            addresses: Vec::new(),
        });
        Ok(())
    }

    /// Makes the target that other workers' initiators reach with this key. It does not answer yet.
    ///
    /// # Errors
    /// The library's reason.
    pub fn make_target(&mut self, key: u64) -> Result<PairHandle, LibraryError> {
        let parts = self.dc.as_ref().ok_or_else(not_open)?;
        let mut request = DcRequest::target(self, parts.receives, key);
        let raw = self.make("a DC target", &mut request)?;
        Ok(self.keep(raw, &request, None))
    }

    /// Moves a target to the state in which it answers, and returns its number for initiators. The target gets this
    /// number only now. `path` is the path of the target's own port.
    ///
    /// # Errors
    /// The library's reason.
    pub fn start_target(
        &mut self,
        target: PairHandle,
        path: &PathTo,
        patience: Patience,
    ) -> Result<u32, LibraryError> {
        for step in target_steps(path, patience) {
            self.modify(step.what, target, step.attributes, step.mask)?;
        }
        let pair = self.pairs.get_mut(target.0).ok_or_else(no_such_pair)?;
        // SAFETY: the queue pair is open.
        pair.number = unsafe { (*pair.raw.as_ptr()).qp_num };
        Ok(pair.number)
    }

    /// Makes an initiator with `depth` work requests and `inline_bytes` inline bytes per request, or fewer inline bytes
    /// if the device supports fewer.
    ///
    /// # Errors
    /// The library's reason.
    pub fn make_initiator(
        &mut self,
        depth: u32,
        inline_bytes: u32,
    ) -> Result<PairHandle, LibraryError> {
        let (_, (raw, request)) = halving(inline_bytes, 0, |bytes| {
            let mut request = DcRequest::initiator(self, depth, bytes);
            let raw = self.make("a DC initiator", &mut request)?;
            Ok((raw, request))
        })?;
        let initiator = self.interfaces(raw);
        // Store the queue pair in either case, so that it is closed.
        let pair = self.keep(raw, &request, initiator);
        match initiator {
            Some(_) => Ok(pair),
            None => Err(LibraryError::unsupported(
                "libmlx5 has no extended interface for the DC initiator",
            )),
        }
    }

    /// Moves an initiator to the states in which it receives answers and sends. Uses the path's port, partition key,
    /// MTU, first packet and reads. Returns the maximum reads in flight: the path's number or, if the device refuses
    /// it, a half, a quarter and so on.
    ///
    /// # Errors
    /// The library's reason.
    pub fn start_initiator(
        &mut self,
        pair: PairHandle,
        path: &PathTo,
        patience: Patience,
    ) -> Result<u8, LibraryError> {
        for step in initiator_steps(path) {
            self.modify(step.what, pair, step.attributes, step.mask)?;
        }
        let (reads, ()) = halving(path.reads_out.max(1), 1, |reads| {
            let attributes = sends(path, patience, reads);
            self.modify("of a DC initiator to RTS", pair, attributes, SENDS_MASK)
        })?;
        Ok(reads)
    }

    /// Makes the address of a target from the path to its port, its number, and the key that it was made with.
    ///
    /// # Errors
    /// The library's reason.
    pub fn make_address(&mut self, path: &PathTo, key: u64) -> Result<AddressHandle, LibraryError> {
        let parts = self.dc.as_mut().ok_or_else(not_open)?;
        let mut attributes = address(path);
        // SAFETY: the protection domain is open; the struct is valid for reads.
        let port = unsafe {
            (parts.library.verbs.create_ah)(self.protection.as_ptr(), &raw mut attributes)
        };
        parts.addresses.push(DcAddress {
            port: NonNull::new(port).ok_or_else(|| last_error("ibv_create_ah"))?,
            number: path.number,
            key,
        });
        Ok(AddressHandle(parts.addresses.len() - 1))
    }

    fn make(&self, what: &str, request: &mut DcRequest) -> Result<NonNull<ibv_qp>, LibraryError> {
        let library = &self.dc.as_ref().ok_or_else(not_open)?.library;
        // SAFETY: the device is open and belongs to this library, as `open_dc` has checked; the structs are valid for
        // reads and writes, and refer to open objects.
        let raw = unsafe {
            (library.calls.create_qp)(
                self.context.raw.as_ptr(),
                &raw mut request.common,
                &raw mut request.own,
            )
        };
        NonNull::new(raw)
            .ok_or_else(|| last_error("mlx5dv_create_qp").about(format_args!("of {what}")))
    }

    /// Returns the interfaces of an initiator.
    fn interfaces(&self, raw: NonNull<ibv_qp>) -> Option<Initiator> {
        let library = &self.dc.as_ref()?.library;
        // SAFETY: the queue pair is open and was made by this library with an extended interface; both calls return
        // pointers into it.
        unsafe {
            let interface = NonNull::new((library.verbs.interface)(raw.as_ptr()))?;
            let own_interface = (library.calls.own_interface)(interface.as_ptr());
            Some(Initiator {
                interface,
                own_interface: NonNull::new(own_interface)?,
            })
        }
    }

    fn keep(
        &mut self,
        raw: NonNull<ibv_qp>,
        request: &DcRequest,
        initiator: Option<Initiator>,
    ) -> PairHandle {
        let cap = &request.common.cap;
        self.pairs.push(QueuePair {
            raw,
            // SAFETY: the queue pair is open.
            number: unsafe { (*raw.as_ptr()).qp_num },
            limits: PairLimits {
                depths: QueueDepths {
                    send: cap.max_send_wr,
                    receive: cap.max_recv_wr,
                },
                inline_bytes: cap.max_inline_data,
            },
            initiator,
        });
        PairHandle(self.pairs.len() - 1)
    }
}

fn not_open() -> LibraryError {
    LibraryError::argument("the queues were not opened for DC")
}

/// Makes a DC initiator and a DC target and closes them, to check whether a device supports DC.
///
/// # Errors
/// The library's reason; without DC, that is "Operation not supported" or "Invalid argument".
pub fn probe_dc(context: &Arc<Context>, library: &Arc<Libmlx5>) -> Result<(), LibraryError> {
    let mut queues = Queues::open(context, 1, false)?;
    queues.open_dc(library)?;
    queues.make_initiator(1, 0)?;
    queues.make_target(0).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        timeout: 14,
        retry: 3,
        rnr_retry: 7,
        rnr_timer: 12,
    };

    fn path(gids: Option<(u8, [u8; 16])>) -> PathTo {
        PathTo {
            port: 2,
            pkey_index: 5,
            number: 0x1234,
            first_packet_out: 0x0100_0007,
            mtu: 4096,
            gids,
            lid: 17,
            service_level: 3,
            traffic_class: 104,
            flow_label: 9,
            reads_out: 16,
            ..PathTo::default()
        }
    }

    #[test]
    fn an_initiator_names_no_target_and_grants_no_access() {
        let [init, receives] = initiator_steps(&path(None));
        assert_eq!((init.attributes.qp_state, init.mask), (1, 1 | 16 | 32));
        assert_eq!(
            (init.attributes.pkey_index, init.attributes.port_num),
            (5, 2)
        );
        assert_eq!(init.attributes.qp_access_flags, 0);
        assert_eq!((receives.attributes.qp_state, receives.mask), (2, 1 | 256));
        assert_eq!(receives.attributes.path_mtu, 5);
        let told = sends(&path(None), PATIENCE, 16);
        let mask = 1 | 512 | 1024 | 2048 | 8192 | 65536;
        assert_eq!((told.qp_state, SENDS_MASK), (3, mask));
        assert_eq!((told.timeout, told.retry_cnt, told.rnr_retry), (14, 3, 7));
        assert_eq!((told.max_rd_atomic, told.sq_psn), (16, 7));
    }

    #[test]
    fn a_target_grants_reads_and_writes_and_answers_over_its_port() {
        let own: [u8; 16] = std::array::from_fn(|place| place as u8);
        let [init, answers] = target_steps(&path(Some((3, own))), PATIENCE);
        assert_eq!((init.attributes.qp_state, init.mask), (1, 1 | 8 | 16 | 32));
        assert_eq!(init.attributes.qp_access_flags, 2 | 4);
        assert_eq!(
            (init.attributes.pkey_index, init.attributes.port_num),
            (5, 2)
        );
        let mask = 1 | 128 | 256 | 32768;
        assert_eq!((answers.attributes.qp_state, answers.mask), (2, mask));
        assert_eq!(
            (
                answers.attributes.path_mtu,
                answers.attributes.min_rnr_timer
            ),
            (5, 12)
        );
        let way = &answers.attributes.ah_attr;
        assert_eq!(
            (way.is_global, way.port_num, way.dlid, way.sl),
            (1, 2, 17, 3)
        );
        let route = &way.grh;
        assert_eq!((route.sgid_index, route.hop_limit), (3, 64));
        assert_eq!((route.traffic_class, route.flow_label), (104, 9));
        let bytes: Vec<u8> = route
            .dgid
            .iter()
            .flat_map(|half| half.to_ne_bytes())
            .collect();
        assert_eq!(bytes, own);
        let [_, without] = target_steps(&path(None), PATIENCE);
        assert_eq!(without.attributes.ah_attr.is_global, 0);
    }
}
