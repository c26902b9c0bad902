//! One way to use a provider, as it was granted: the answer of `fi_getinfo` to hints, owned.
//!
//! What lives here: asking, and reading what was granted. What does not: which of several answers is chosen, which an
//! engine decides, and opening it, which is in [`super::endpoint`].

use std::ffi::{CString, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use super::offers::{copy_offer, is_of};
use super::{Libfabric, Offer, abi};
use crate::error::LibraryError;

/// Everything about registering memory that [`super::Endpoint`] can honour.
const MR_MODE: c_int = abi::FI_MR_LOCAL
    | abi::FI_MR_VIRT_ADDR
    | abi::FI_MR_ALLOCATED
    | abi::FI_MR_PROV_KEY
    | abi::FI_MR_ENDPOINT;

const CAPS_RMA: u64 =
    abi::FI_RMA | abi::FI_READ | abi::FI_WRITE | abi::FI_REMOTE_READ | abi::FI_REMOTE_WRITE;
const CAPS_MSG: u64 = abi::FI_MSG | abi::FI_TAGGED | abi::FI_SEND | abi::FI_RECV;

/// Demands on a provider.
#[derive(Debug, Clone)]
pub struct Hints<'a> {
    /// Its name; layered forms of it are found as well. Empty for any.
    pub provider: &'a str,
    /// Sends and receives are needed beside writes and reads.
    pub messages: bool,
    /// Writes must take effect in the order in which they are posted.
    pub ordered_writes: bool,
    /// Reads must see what was written before them.
    pub reads_after_writes: bool,
    /// Completions of writes must mean delivery; for finding out whether that can be had.
    pub delivery: bool,
    /// Addresses of remote memory may be virtual ones; without it they count from 0.
    pub virtual_addresses: bool,
    /// Memory of devices is registered and moved (FI_HMEM).
    pub device_memory: bool,
}

/// One answer of `fi_getinfo`, owned.
#[derive(Debug)]
pub struct Info {
    owned: Owned,
    /// As they were granted.
    attributes: Offer,
}

/// A fi_info that is freed with this value.
#[derive(Debug)]
struct Owned {
    info: NonNull<abi::fi_info>,
    library: Arc<Libfabric>,
}

// SAFETY: the struct behind the pointer belongs to this value alone, and is only read once it is made; libfabric keeps
// nothing of a thread in it.
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
    /// Every way in which the provider can do what the hints ask, its preferred one first; empty when it cannot.
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

    /// A copy of one entry.
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
        // SAFETY: fi_dupinfo copies the attributes too, so that those of the copy live as long as it.
        let attributes = unsafe { copy_offer(info.as_ref()) }?;
        Some(Self { owned, attributes })
    }

    /// A copy of the answer, for another endpoint.
    ///
    /// # Errors
    /// When memory is short.
    pub fn duplicate(&self) -> Result<Self, LibraryError> {
        // SAFETY: the struct is live as long as `self`.
        let copy = unsafe { Self::copy_of(&self.owned.library, self.owned.info.as_ref()) };
        copy.ok_or_else(no_copy)
    }

    /// Returns the attributes that were granted.
    pub fn attributes(&self) -> &Offer {
        &self.attributes
    }

    /// True where memory of devices was asked for and granted.
    pub fn has_device_memory(&self) -> bool {
        // SAFETY: the struct is live as long as `self`.
        let caps = unsafe { self.owned.info.as_ref() }.caps;
        caps & abi::FI_HMEM != 0
    }

    /// The library that answered.
    pub fn library(&self) -> &Arc<Libfabric> {
        &self.owned.library
    }

    /// The struct, which lives as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut abi::fi_info {
        self.owned.info.as_ptr()
    }
}

fn no_copy() -> LibraryError {
    LibraryError::unsupported("fi_dupinfo gave nothing: memory is short")
}

/// Hints as the library wants them.
fn asked(library: &Arc<Libfabric>, hints: &Hints<'_>) -> Result<Owned, LibraryError> {
    let name = CString::new(hints.provider).map_err(|_| {
        LibraryError::argument(format!("{:?} has a NUL byte in it", hints.provider))
    })?;
    // SAFETY: a null argument asks for an empty fi_info with all attributes.
    let info =
        NonNull::new(unsafe { (library.calls.dupinfo)(std::ptr::null()) }).ok_or_else(no_copy)?;
    let owned = Owned {
        info,
        library: Arc::clone(library),
    };
    let (caps, order, mr_mode) = bits(hints);
    // SAFETY: fi_dupinfo(null) allocates the struct and all of its attributes, and nobody else has them. The name is
    // made by strdup because fi_freeinfo gives it to free.
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

/// Capabilities, message order and memory modes of hints.
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
        // Receives are posted for messages in the order in which these are sent.
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
