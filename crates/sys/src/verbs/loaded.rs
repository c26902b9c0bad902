//! The loaded libibverbs: its exported calls, looked up once, and the names of its devices.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use super::abi::{
    ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};
use super::last_error;
use super::mlx5_abi::{ibv_ah, ibv_qp_ex, ibv_srq, ibv_srq_init_attr};
use crate::error::LibraryError;
use crate::library::{SharedLibrary, Versioned, file_or_name, functions, text};

/// The file that the loader searches for.
const NAME: &str = "libibverbs.so.1";

functions! { pub(super) Calls by Versioned:
    get_device_list = (c"ibv_get_device_list", c"IBVERBS_1.1") => (*mut c_int) -> *mut *mut ibv_device;
    free_device_list = (c"ibv_free_device_list", c"IBVERBS_1.1") => (*mut *mut ibv_device) -> ();
    get_device_name = (c"ibv_get_device_name", c"IBVERBS_1.1") => (*mut ibv_device) -> *const c_char;
    open_device = (c"ibv_open_device", c"IBVERBS_1.1") => (*mut ibv_device) -> *mut ibv_context;
    close_device = (c"ibv_close_device", c"IBVERBS_1.1") => (*mut ibv_context) -> c_int;
    query_device = (c"ibv_query_device", c"IBVERBS_1.1") => (*mut ibv_context, *mut ibv_device_attr) -> c_int;
    query_port = (c"ibv_query_port", c"IBVERBS_1.1") => (*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    get_async_event = (c"ibv_get_async_event", c"IBVERBS_1.1") => (*mut ibv_context, *mut ibv_async_event) -> c_int;
    ack_async_event = (c"ibv_ack_async_event", c"IBVERBS_1.1") => (*mut ibv_async_event) -> ();
    event_type_str = (c"ibv_event_type_str", c"IBVERBS_1.1") => (c_uint) -> *const c_char;
    alloc_pd = (c"ibv_alloc_pd", c"IBVERBS_1.1") => (*mut ibv_context) -> *mut ibv_pd;
    dealloc_pd = (c"ibv_dealloc_pd", c"IBVERBS_1.1") => (*mut ibv_pd) -> c_int;
    reg_mr = (c"ibv_reg_mr", c"IBVERBS_1.1") => (*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    dereg_mr = (c"ibv_dereg_mr", c"IBVERBS_1.1") => (*mut ibv_mr) -> c_int;
    create_comp_channel = (c"ibv_create_comp_channel", c"IBVERBS_1.0") => (*mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel = (c"ibv_destroy_comp_channel", c"IBVERBS_1.0") => (*mut ibv_comp_channel) -> c_int;
    create_cq = (c"ibv_create_cq", c"IBVERBS_1.1") => (*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    destroy_cq = (c"ibv_destroy_cq", c"IBVERBS_1.1") => (*mut ibv_cq) -> c_int;
    get_cq_event = (c"ibv_get_cq_event", c"IBVERBS_1.1") => (*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events = (c"ibv_ack_cq_events", c"IBVERBS_1.1") => (*mut ibv_cq, c_uint) -> ();
    create_qp = (c"ibv_create_qp", c"IBVERBS_1.1") => (*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp = (c"ibv_modify_qp", c"IBVERBS_1.1") => (*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    destroy_qp = (c"ibv_destroy_qp", c"IBVERBS_1.1") => (*mut ibv_qp) -> c_int;
}

// Registers device memory by its file, since release 34 of rdma-core. A library without this call still works for host
// memory.
functions! { pub(super) DmabufCalls by Versioned:
    register = (c"ibv_reg_dmabuf_mr", c"IBVERBS_1.12") => (*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
}

// Only DC queue pairs need address handles, shared receive queues and the extended work-request interface, which came
// with release 24 of rdma-core. A library without them still works for reliable connections.
functions! { pub(super) ExtendedCalls by Versioned:
    create_ah = (c"ibv_create_ah", c"IBVERBS_1.1") => (*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    destroy_ah = (c"ibv_destroy_ah", c"IBVERBS_1.1") => (*mut ibv_ah) -> c_int;
    create_srq = (c"ibv_create_srq", c"IBVERBS_1.1") => (*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    destroy_srq = (c"ibv_destroy_srq", c"IBVERBS_1.1") => (*mut ibv_srq) -> c_int;
    interface = (c"ibv_qp_to_qp_ex", c"IBVERBS_1.6") => (*mut ibv_qp) -> *mut ibv_qp_ex;
}

/// The library.
#[derive(Debug)]
pub struct Libibverbs {
    pub(super) calls: Calls,
    path: String,
    // The library that the calls belong to. It stays loaded even after this handle is dropped.
    pub(super) library: SharedLibrary,
}

/// A list of devices. It is freed when this value is dropped.
pub(super) struct DeviceList<'a> {
    calls: &'a Calls,
    list: NonNull<*mut ibv_device>,
    count: usize,
}

impl Libibverbs {
    /// Loads `file`, or the library that the loader finds.
    ///
    /// # Errors
    /// The loader's reason, or the missing call.
    pub fn load(file: Option<&str>) -> Result<Self, LibraryError> {
        let name = file.unwrap_or(NAME);
        let library = SharedLibrary::open(name)?;
        let calls = Calls::look_up(|symbol| library.symbol(symbol))?;
        Ok(Self {
            calls,
            path: file_or_name(calls.open_device as *const c_void, name),
            library,
        })
    }

    /// Path of the loaded file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the names of the devices that the library can open, in its own order.
    ///
    /// # Errors
    /// The library's reason; without RDMA in the kernel, that is "Function not implemented".
    pub fn devices(&self) -> Result<Vec<String>, LibraryError> {
        let list = self.list()?;
        Ok(list.iter().map(|(name, _)| name).collect())
    }

    pub(super) fn list(&self) -> Result<DeviceList<'_>, LibraryError> {
        let mut count = 0;
        // SAFETY: `count` is valid for the write of an int.
        let list = unsafe { (self.calls.get_device_list)(&raw mut count) };
        Ok(DeviceList {
            calls: &self.calls,
            list: NonNull::new(list).ok_or_else(|| last_error("ibv_get_device_list"))?,
            count: usize::try_from(count).unwrap_or(0),
        })
    }
}

impl DeviceList<'_> {
    /// Iterates over names and devices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (String, NonNull<ibv_device>)> {
        (0..self.count).filter_map(|index| {
            // SAFETY: the list has as many entries as the library reported, and lives as long as this value.
            let device = NonNull::new(unsafe { *self.list.as_ptr().add(index) })?;
            // SAFETY: the device belongs to a live list; its name is a NUL-terminated string in it, copied at once.
            let name = unsafe { text((self.calls.get_device_name)(device.as_ptr())) }?;
            Some((name, device))
        })
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        // SAFETY: the list came from the library and is freed once. Devices opened from it stay open.
        unsafe { (self.calls.free_device_list)(self.list.as_ptr()) }
    }
}
