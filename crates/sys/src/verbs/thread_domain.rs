//! Thread domains: the promise to the driver that one thread at a time uses the domain's queue pairs, so that posting
//! takes no lock.
//!
//! This module opens thread domains. The calls for this are in a table that directly precedes the open device in
//! memory, where the header's inline functions find them too. If a driver does not support thread domains, its locks
//! stay.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::abi::{ibv_context, ibv_pd};
use super::context::Context;

#[allow(
    non_camel_case_types,
    reason = "the names are those of the header, so that both can be read side by side"
)]
mod header {
    use super::{c_int, c_void, ibv_context, ibv_pd};
    use crate::header::structures;

    pub enum ibv_td {}

    /// A function pointer that is not called here.
    type Unused = Option<unsafe extern "C" fn()>;

    structures! {
        ibv_td_init_attr { comp_mask: u32 }
        ibv_parent_domain_init_attr {
            pd: *mut ibv_pd, td: *mut ibv_td, comp_mask: u32, alloc: Unused, free: Unused, pd_context: *mut c_void,
        }
        /// The end of `verbs_context`, which the open device directly follows. New versions extend the table only at
        /// its beginning.
        verbs_context {
            alloc_parent_domain:
                Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd>,
            dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
            alloc_td: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
            _between: [Unused; 22],
            /// Total bytes, including the open device.
            sz: usize,
        }
    }
}

use header::{ibv_parent_domain_init_attr, ibv_td, ibv_td_init_attr, verbs_context};

/// Value of `abi_compat` that means that the table precedes the device.
const EXTENDED: usize = usize::MAX;

/// A thread domain, and the protection domain for its queue pairs.
pub(super) struct ThreadDomain {
    pub(super) parent: NonNull<ibv_pd>,
    domain: NonNull<ibv_td>,
    end: unsafe extern "C" fn(*mut ibv_td) -> c_int,
}

impl ThreadDomain {
    /// Opens a thread domain on a protection domain of this device; `None` if the library or the driver does not
    /// support it.
    pub(super) fn open(context: &Context, protection: NonNull<ibv_pd>) -> Option<Self> {
        let device = context.raw.as_ptr();
        // SAFETY: the device is open.
        if unsafe { (*device).abi_compat } as usize != EXTENDED {
            return None;
        }
        let table = device.cast::<verbs_context>().wrapping_sub(1);
        // SAFETY: an extended device lies at the end of a table that contains its own size. The size is directly before
        // the device and is read first. The calls are read only if the table extends that far.
        let (begin, end, join) = unsafe {
            let bytes = (&raw const (*table).sz).read();
            if bytes < size_of::<verbs_context>() + size_of::<ibv_context>() {
                return None;
            }
            (
                (*table).alloc_td?,
                (*table).dealloc_td?,
                (*table).alloc_parent_domain?,
            )
        };
        let mut nothing = ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the device is open, the struct valid for reads.
        let domain = NonNull::new(unsafe { begin(device, &raw mut nothing) })?;
        let mut both = ibv_parent_domain_init_attr {
            pd: protection.as_ptr(),
            td: domain.as_ptr(),
            comp_mask: 0,
            alloc: None,
            free: None,
            pd_context: std::ptr::null_mut(),
        };
        // SAFETY: the device and both domains are open, the struct valid for reads.
        let Some(parent) = NonNull::new(unsafe { join(device, &raw mut both) }) else {
            // SAFETY: nothing uses the domain yet.
            unsafe { end(domain.as_ptr()) };
            return None;
        };
        Some(Self {
            parent,
            domain,
            end,
        })
    }

    /// Closes both domains; returns whether this succeeded.
    ///
    /// # Safety
    /// No queue pair uses the domains any more, and `end_parent` is the library's `ibv_dealloc_pd`.
    pub(super) unsafe fn close(
        self,
        end_parent: unsafe extern "C" fn(*mut ibv_pd) -> c_int,
    ) -> bool {
        // SAFETY: both came from the library, the parent uses the domain and is closed first, and nothing uses either,
        // as the caller promises.
        unsafe { (end_parent)(self.parent.as_ptr()) == 0 && (self.end)(self.domain.as_ptr()) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Each call must lie as far before the open device as in the header of rdma-core 44.
    #[test]
    fn calls_lie_where_the_header_has_them() {
        let before = |offset: usize| size_of::<verbs_context>() - offset;
        assert_eq!(before(offset_of!(verbs_context, alloc_parent_domain)), 208);
        assert_eq!(before(offset_of!(verbs_context, dealloc_td)), 200);
        assert_eq!(before(offset_of!(verbs_context, alloc_td)), 192);
        assert_eq!(before(offset_of!(verbs_context, sz)), 8);
        assert_eq!(size_of::<ibv_context>(), 328);
        assert_eq!(offset_of!(ibv_context, abi_compat), 320);
        assert_eq!(size_of::<ibv_td_init_attr>(), 4);
        assert_eq!(size_of::<ibv_parent_domain_init_attr>(), 48);
        assert_eq!(offset_of!(ibv_parent_domain_init_attr, td), 8);
        assert_eq!(offset_of!(ibv_parent_domain_init_attr, comp_mask), 16);
    }
}
