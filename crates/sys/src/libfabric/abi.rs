//! The part of libfabric's binary interface that tonnage uses, for 64-bit Linux, under the names of its headers.
//!
//! Structs and constants only. Structs that the *library* allocates are declared only with their leading part, because
//! later releases extend them at the end. Structs that *we* allocate have the newest, largest layout, zeroed, because a
//! library reads all fields of its own release. A test (`layout`) compares every field and constant with the headers of
//! the embedded source.
#![allow(
    non_camel_case_types,
    missing_docs,
    reason = "the names are those of libfabric's headers, which document them"
)]

use std::ffi::{c_char, c_int, c_void};

use crate::header::{numbers, structures, zeroed};

/// A function-table entry that is never called here.
pub type Unused = *const c_void;
/// An address in an address vector.
pub type fi_addr_t = u64;

numbers! { fn values;
    u64: FI_MSG = 1 << 1, FI_RMA = 1 << 2, FI_TAGGED = 1 << 3, FI_READ = 1 << 8, FI_WRITE = 1 << 9, FI_RECV = 1 << 10,
        FI_SEND = 1 << 11, FI_TRANSMIT = FI_SEND, FI_REMOTE_READ = 1 << 12, FI_REMOTE_WRITE = 1 << 13,
        FI_REMOTE_CQ_DATA = 1 << 17, FI_COMPLETION = 1 << 24, FI_DELIVERY_COMPLETE = 1 << 28, FI_MR_DMABUF = 1 << 40,
        FI_HMEM = 1 << 47, FI_PROV_ATTR_ONLY = 1 << 54, FI_CONTEXT = 1 << 59, FI_CONTEXT2 = 1 << 52;
    c_int: FI_MR_LOCAL = 1 << 2, FI_MR_RAW = 1 << 3, FI_MR_VIRT_ADDR = 1 << 4, FI_MR_ALLOCATED = 1 << 5,
        FI_MR_PROV_KEY = 1 << 6, FI_MR_MMU_NOTIFY = 1 << 7, FI_MR_RMA_EVENT = 1 << 8, FI_MR_ENDPOINT = 1 << 9,
        FI_MR_HMEM = 1 << 10, FI_MR_COLLECTIVE = 1 << 11;
    c_int: FI_HMEM_SYSTEM = 0, FI_HMEM_CUDA = 1, FI_HMEM_ROCR = 2;
    u64: FI_ORDER_RAR = 1 << 0, FI_ORDER_RAW = 1 << 1, FI_ORDER_RAS = 1 << 2, FI_ORDER_WAR = 1 << 3,
        FI_ORDER_WAW = 1 << 4, FI_ORDER_WAS = 1 << 5, FI_ORDER_SAR = 1 << 6, FI_ORDER_SAW = 1 << 7,
        FI_ORDER_SAS = 1 << 8, FI_ORDER_RMA_RAR = 1 << 32, FI_ORDER_RMA_RAW = 1 << 33, FI_ORDER_RMA_WAR = 1 << 34,
        FI_ORDER_RMA_WAW = 1 << 35;
    c_int: FI_EP_MSG = 1, FI_EP_DGRAM = 2, FI_EP_RDM = 3;
    u32: FI_SOCKADDR = 1, FI_SOCKADDR_IN = 2, FI_SOCKADDR_IN6 = 3;
    c_int: FI_AV_TABLE = 2, FI_CQ_FORMAT_DATA = 3, FI_WAIT_NONE = 0, FI_WAIT_FD = 3, FI_OPT_ENDPOINT = 0,
        FI_OPT_FI_HMEM_P2P = 8, FI_OPT_INJECT_RMA_SIZE = 18, FI_HMEM_P2P_REQUIRED = 1, FI_GETWAIT = 5, FI_ENABLE = 6;
    u64: FI_ADDR_UNSPEC = u64::MAX;
    c_int: FI_THREAD_UNSPEC = 0, FI_THREAD_SAFE = 1, FI_THREAD_FID = 2, FI_THREAD_DOMAIN = 3, FI_THREAD_COMPLETION = 4,
        FI_THREAD_ENDPOINT = 5;
    c_int: FI_PROGRESS_UNSPEC = 0, FI_PROGRESS_AUTO = 1, FI_PROGRESS_MANUAL = 2, FI_PROGRESS_CONTROL_UNIFIED = 3;
    c_int: FI_EAGAIN = 11, FI_ENOMEM = 12, FI_EINVAL = 22, FI_ENODATA = 61, FI_ENOPROTOOPT = 92, FI_EAVAIL = 259;
}

structures! { fn layouts;
    fi_tx_attr {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64, inject_size: usize, size: usize,
        iov_limit: usize, rma_iov_limit: usize,
    }
    fi_rx_attr {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64, total_buffered_recv: usize, size: usize,
        iov_limit: usize,
    }
    fi_ep_attr {
        type_: c_int, protocol: u32, protocol_version: u32, max_msg_size: usize, msg_prefix_size: usize,
        max_order_raw_size: usize,
    }
    fi_domain_attr {
        domain: *mut fid_domain, name: *mut c_char, threading: c_int, control_progress: c_int, data_progress: c_int,
        resource_mgmt: c_int, av_type: c_int, mr_mode: c_int, mr_key_size: usize, cq_data_size: usize, cq_cnt: usize,
        ep_cnt: usize,
    }
    fi_fabric_attr {
        fabric: *mut fid_fabric, name: *mut c_char, prov_name: *mut c_char, prov_version: u32, api_version: u32,
    }
    fi_info {
        next: *mut fi_info, caps: u64, mode: u64, addr_format: u32, src_addrlen: usize, dest_addrlen: usize,
        src_addr: *mut c_void, dest_addr: *mut c_void, handle: *mut fid, tx_attr: *mut fi_tx_attr,
        rx_attr: *mut fi_rx_attr, ep_attr: *mut fi_ep_attr, domain_attr: *mut fi_domain_attr,
        fabric_attr: *mut fi_fabric_attr, nic: *mut fid_nic,
    }
    fi_device_attr {
        name: *mut c_char, device_id: *mut c_char, device_version: *mut c_char, vendor_id: *mut c_char,
        driver: *mut c_char, firmware: *mut c_char,
    }
    fi_link_attr {
        address: *mut c_char, mtu: usize,
        /// Bits per second.
        speed: usize,
        state: c_int, network_type: *mut c_char,
    }
    fid_nic {
        fid: fid, device_attr: *mut fi_device_attr, bus_attr: *mut c_void, link_attr: *mut fi_link_attr,
        prov_attr: *mut c_void,
    }
    fid { fclass: usize, context: *mut c_void, ops: *mut fi_ops }
    fi_ops {
        size: usize, close: unsafe extern "C" fn(*mut fid) -> c_int,
        bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
        control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
    }
    fi_ops_fabric {
        size: usize,
        domain: unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int,
        passive_ep: Unused, eq_open: Unused, wait_open: Unused,
        trywait: unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int,
    }
    fid_fabric { fid: fid, ops: *mut fi_ops_fabric, api_version: u32 }
    fi_av_attr {
        type_: c_int, rx_ctx_bits: c_int, count: usize, ep_per_node: usize, name: *const c_char, map_addr: *mut c_void,
        flags: u64,
    }
    fi_cq_attr {
        size: usize, flags: u64, format: c_int, wait_obj: c_int, signaling_vector: c_int, wait_cond: c_int,
        wait_set: *mut c_void,
    }
    fi_ops_domain {
        size: usize,
        av_open: unsafe extern "C" fn(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int,
        cq_open: unsafe extern "C" fn(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int,
        endpoint: unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
    }
    fi_mr_attr {
        mr_iov: *const libc::iovec, iov_count: usize, access: u64, offset: u64, requested_key: u64,
        context: *mut c_void, auth_key_size: usize, auth_key: *mut u8, iface: c_int,
        /// A union of device handles, all within 8 bytes.
        device: u64,
        hmem_data: *mut c_void, page_size: usize, base_mr: *const fid_mr, sub_mr_cnt: usize,
    }
    fi_mr_dmabuf { fd: c_int, offset: u64, len: usize, base_addr: *mut c_void }
    fi_ops_mr {
        size: usize, reg: Unused, regv: Unused,
        regattr: unsafe extern "C" fn(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int,
    }
    fid_domain { fid: fid, ops: *mut fi_ops_domain, mr: *mut fi_ops_mr }
    fid_mr { fid: fid, mem_desc: *mut c_void, key: u64 }
    fi_ops_av {
        size: usize,
        insert: unsafe extern "C" fn(*mut fid_av, *const c_void, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int,
    }
    fid_av { fid: fid, ops: *mut fi_ops_av }
    #[derive(Clone, Copy)]
    fi_cq_data_entry { op_context: *mut c_void, flags: u64, len: usize, buf: *mut c_void, data: u64 }
    fi_cq_err_entry {
        op_context: *mut c_void, flags: u64, len: usize, buf: *mut c_void, data: u64, tag: u64, olen: usize, err: c_int,
        prov_errno: c_int, err_data: *mut c_void, err_data_size: usize, src_addr: fi_addr_t,
    }
    fi_ops_cq {
        size: usize, read: unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> isize, readfrom: Unused,
        readerr: unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize, sread: Unused,
        sreadfrom: Unused, signal: Unused,
        strerror: unsafe extern "C" fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    }
    fid_cq { fid: fid, ops: *mut fi_ops_cq }
    fi_ops_cm {
        size: usize, setname: Unused, getname: unsafe extern "C" fn(*mut fid, *mut c_void, *mut usize) -> c_int,
    }
    fi_ops_msg {
        size: usize,
        recv: unsafe extern "C" fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> isize,
        recvv: Unused, recvmsg: Unused,
        send: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> isize,
        sendv: Unused, sendmsg: Unused,
        inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t) -> isize,
    }
    fi_rma_iov { addr: u64, len: usize, key: u64 }
    fi_msg_rma {
        msg_iov: *const libc::iovec, desc: *mut *mut c_void, iov_count: usize, addr: fi_addr_t,
        rma_iov: *const fi_rma_iov, rma_iov_count: usize, context: *mut c_void, data: u64,
    }
    fi_ops_rma {
        size: usize,
        read: unsafe extern "C" fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize,
        readv: Unused, readmsg: Unused,
        write: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize,
        writev: Unused, writemsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize,
        inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64) -> isize,
        writedata: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, u64, *mut c_void) -> isize,
        injectdata: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64) -> isize,
    }
    fi_ops_tagged {
        size: usize,
        recv: unsafe extern "C" fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize,
        recvv: Unused, recvmsg: Unused,
        send: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, *mut c_void) -> isize,
        sendv: Unused, sendmsg: Unused,
        inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64) -> isize,
    }
    fi_ops_ep {
        size: usize, cancel: Unused,
        getopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
        setopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int,
    }
    fid_ep {
        fid: fid, ops: *mut fi_ops_ep, cm: *mut fi_ops_cm, msg: *mut fi_ops_msg, rma: *mut fi_ops_rma,
        tagged: *mut fi_ops_tagged,
    }
}

zeroed! { fi_av_attr fi_cq_attr fi_cq_data_entry fi_cq_err_entry fi_mr_attr }

// The layout is that of 64-bit Linux; another pointer width would move the fields.
const _: () = assert!(size_of::<usize>() == 8);
