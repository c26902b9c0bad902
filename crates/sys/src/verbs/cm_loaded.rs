//! The loaded librdmacm: its exported calls, looked up once.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::abi::ibv_qp_attr;
use super::cm_abi::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use crate::error::LibraryError;
use crate::library::{SharedLibrary, Versioned, file_or_name, functions};

/// The file that the loader searches for.
const NAME: &str = "librdmacm.so.1";

functions! { pub(super) Calls by Versioned:
    create_event_channel = (c"rdma_create_event_channel", c"RDMACM_1.0") => () -> *mut rdma_event_channel;
    destroy_event_channel = (c"rdma_destroy_event_channel", c"RDMACM_1.0") => (*mut rdma_event_channel) -> ();
    create_id = (c"rdma_create_id", c"RDMACM_1.0") => (*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint) -> c_int;
    destroy_id = (c"rdma_destroy_id", c"RDMACM_1.0") => (*mut rdma_cm_id) -> c_int;
    bind_addr = (c"rdma_bind_addr", c"RDMACM_1.0") => (*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
    listen = (c"rdma_listen", c"RDMACM_1.0") => (*mut rdma_cm_id, c_int) -> c_int;
    get_src_port = (c"rdma_get_src_port", c"RDMACM_1.0") => (*mut rdma_cm_id) -> u16;
    set_option = (c"rdma_set_option", c"RDMACM_1.0") => (*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
    resolve_addr = (c"rdma_resolve_addr", c"RDMACM_1.0") => (*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
    resolve_route = (c"rdma_resolve_route", c"RDMACM_1.0") => (*mut rdma_cm_id, c_int) -> c_int;
    connect = (c"rdma_connect", c"RDMACM_1.0") => (*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    accept = (c"rdma_accept", c"RDMACM_1.0") => (*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    reject = (c"rdma_reject", c"RDMACM_1.0") => (*mut rdma_cm_id, *const c_void, u8) -> c_int;
    establish = (c"rdma_establish", c"RDMACM_1.2") => (*mut rdma_cm_id) -> c_int;
    init_qp_attr = (c"rdma_init_qp_attr", c"RDMACM_1.2") => (*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
    get_cm_event = (c"rdma_get_cm_event", c"RDMACM_1.0") => (*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    ack_cm_event = (c"rdma_ack_cm_event", c"RDMACM_1.0") => (*mut rdma_cm_event) -> c_int;
    event_str = (c"rdma_event_str", c"RDMACM_1.0") => (c_uint) -> *const c_char;
}

/// The library.
#[derive(Debug)]
pub struct Librdmacm {
    pub(super) calls: Calls,
    path: String,
    // The library that the calls belong to. It stays loaded even after this handle is dropped.
    _library: SharedLibrary,
}

impl Librdmacm {
    /// Loads `file`, or the library that the loader finds.
    ///
    /// # Errors
    /// The loader's reason, or the missing call. Libraries before release 23 of rdma-core cannot connect queue pairs
    /// that the caller made.
    pub fn load(file: Option<&str>) -> Result<Self, LibraryError> {
        let name = file.unwrap_or(NAME);
        let library = SharedLibrary::open(name)?;
        let calls = Calls::look_up(|symbol| library.symbol(symbol))?;
        Ok(Self {
            calls,
            path: file_or_name(calls.create_id as *const c_void, name),
            _library: library,
        })
    }

    /// Path of the loaded file.
    pub fn path(&self) -> &str {
        &self.path
    }
}
