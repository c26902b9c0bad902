//! One way to use a provider, as `fi_getinfo` returned it for given hints.
//!
//! Sends queries and reads the granted attributes. An engine chooses among several answers; [`super::endpoint`] opens
//! one.

use std::ffi::{CString, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use super::offers::{copy_offer, is_of};
use super::{Libfabric, Offer, abi};
use crate::error::LibraryError;

/// All modes of memory registration that [`super::Endpoint`] supports.
const MR_MODE: c_int = abi::FI_MR_LOCAL
    | abi::FI_MR_VIRT_ADDR
    | abi::FI_MR_ALLOCATED
    | abi::FI_MR_PROV_KEY
    | abi::FI_MR_ENDPOINT;

const CAPS_RMA: u64 =
    abi::FI_RMA | abi::FI_READ | abi::FI_WRITE | abi::FI_REMOTE_READ | abi::FI_REMOTE_WRITE;
const CAPS_MSG: u64 = abi::FI_MSG | abi::FI_TAGGED | abi::FI_SEND | abi::FI_RECV;

/// Requirements for a provider.
#[derive(Debug, Clone)]
pub struct Hints<'a> {
    /// Name of the provider, which also matches its layered forms. Empty for any.
    pub provider: &'a str,
    /// Whether sends and receives are needed in addition to writes and reads.
    pub messages: bool,
    /// Whether writes must take effect in posting order.
    pub ordered_writes: bool,
    /// Whether reads must see all earlier writes.
    pub reads_after_writes: bool,
    /// Whether completions of writes must mean delivery. Used to find out whether the provider supports this.
    pub delivery: bool,
    /// Whether remote addresses may be virtual; otherwise they count from 0.
    pub virtual_addresses: bool,
    /// Whether device memory is registered and moved (FI_HMEM).
    pub device_memory: bool,
}

/// One answer of `fi_getinfo`, owned.
#[derive(Debug)]
pub struct Info {
    owned: Owned,
    /// The granted attributes.
    attributes: Offer,
}

/// A fi_info that is freed when this value is dropped.
#[derive(Debug)]
struct Owned {
    info: NonNull<abi::fi_info>,
    library: Arc<Libfabric>,
}

// SAFETY: the struct behind the pointer belongs to this value alone, and is only read after its creation; libfabric
// keeps no per-thread state in it.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the struct came from this library's fi_dupinfo, belongs to this value, and is freed once.
        unsafe { (self.library.calls.freeinfo)(self.info.as_ptr()) };
    }
}

impl Info {
    /// Returns all ways in which a provider can meet the hints, its preferred one first; empty if it cannot.
    ///
    /// # Errors
    /// The library's own reason.
    pub fn query(library: &Arc<Libfabric>, hints: &Hints<'_>) -> Result<Vec<Self>, LibraryError> {
        let asked = asked(library, hints)?;
        // SAFETY: the hints are a live fi_info of this library, and every entry is one while it is copied.
        let mut found = unsafe {
            library.entries(0, asked.info.as_ptr(), |entry| {
                Self::copy_of(library, entry)
            })
        }?;
        let any = hints.provider.is_empty();
        found.retain(|info| any || is_of(&info.attributes.provider, hints.provider));
        Ok(found)
    }

    /// Copies one entry.
    ///
    /// # Safety
    /// `entry` is a live fi_info of this library.
    unsafe fn copy_of(library: &Arc<Libfabric>, entry: &abi::fi_info) -> Option<Self> {
        // SAFETY: by the caller's promise; a copy belongs to the caller and has no successor.
        let info = NonNull::new(unsafe { (library.calls.dupinfo)(entry) })?;
        let owned = Owned {
            info,
            library: Arc::clone(library),
        };
        // SAFETY: fi_dupinfo copies the attributes too, so those of the copy live as long as the copy.
        let attributes = unsafe { copy_offer(info.as_ref()) }?;
        Some(Self { owned, attributes })
    }

    /// Copies the answer, for another endpoint.
    ///
    /// # Errors
    /// If memory is exhausted.
    pub fn duplicate(&self) -> Result<Self, LibraryError> {
        // SAFETY: the struct is live as long as `self`.
        let copy = unsafe { Self::copy_of(&self.owned.library, self.owned.info.as_ref()) };
        copy.ok_or_else(no_copy)
    }

    /// Returns the attributes that were granted.
    pub fn attributes(&self) -> &Offer {
        &self.attributes
    }

    /// Whether device memory was requested and granted.
    pub fn has_device_memory(&self) -> bool {
        // SAFETY: the struct is live as long as `self`.
        let caps = unsafe { self.owned.info.as_ref() }.caps;
        caps & abi::FI_HMEM != 0
    }

    /// The library that answered.
    pub fn library(&self) -> &Arc<Libfabric> {
        &self.owned.library
    }

    /// Returns the struct, which lives as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut abi::fi_info {
        self.owned.info.as_ptr()
    }
}

fn no_copy() -> LibraryError {
    LibraryError::unsupported("fi_dupinfo returned null: out of memory")
}

/// Converts hints to the library's struct.
fn asked(library: &Arc<Libfabric>, hints: &Hints<'_>) -> Result<Owned, LibraryError> {
    let name = CString::new(hints.provider)
        .map_err(|_| LibraryError::argument(format!("{:?} contains a NUL byte", hints.provider)))?;
    // SAFETY: a null argument asks for an empty fi_info with all attributes.
    let info =
        NonNull::new(unsafe { (library.calls.dupinfo)(std::ptr::null()) }).ok_or_else(no_copy)?;
    let owned = Owned {
        info,
        library: Arc::clone(library),
    };
    let (caps, order, mr_mode) = bits(hints);
    // SAFETY: fi_dupinfo(null) allocates the struct and all of its attributes, and nothing else refers to them. The
    // name is allocated by strdup because fi_freeinfo passes it to free.
    unsafe {
        let info = info.as_ptr();
        (*info).caps = caps;
        (*info).mode = abi::FI_CONTEXT | abi::FI_CONTEXT2;
        (*(*info).ep_attr).type_ = abi::FI_EP_RDM;
        (*(*info).domain_attr).mr_mode = mr_mode;
        (*(*info).domain_attr).threading = abi::FI_THREAD_DOMAIN;
        (*(*info).tx_attr).msg_order = order;
        (*(*info).rx_attr).msg_order = order;
        if hints.delivery {
            (*(*info).tx_attr).op_flags = abi::FI_DELIVERY_COMPLETE;
        }
        if !hints.provider.is_empty() {
            (*(*info).fabric_attr).prov_name = libc::strdup(name.as_ptr());
        }
    }
    Ok(owned)
}

/// Returns the capabilities, message order and memory modes that these hints request.
fn bits(hints: &Hints<'_>) -> (u64, u64, c_int) {
    let mut caps = CAPS_RMA;
    if hints.messages {
        caps |= CAPS_MSG;
    }
    if hints.device_memory {
        caps |= abi::FI_HMEM;
    }
    let mut order = 0;
    if hints.ordered_writes {
        order |= abi::FI_ORDER_RMA_WAW;
    }
    if hints.reads_after_writes {
        order |= abi::FI_ORDER_RMA_RAW;
    }
    if hints.messages {
        // Receives are posted in the order of the expected sends, so sends must stay in order.
        order |= abi::FI_ORDER_SAS;
    }
    let mut mr_mode = MR_MODE;
    if !hints.virtual_addresses {
        mr_mode &= !abi::FI_MR_VIRT_ADDR;
    }
    if hints.device_memory {
        mr_mode |= abi::FI_MR_HMEM;
    }
    (caps, order, mr_mode)
}
