//! A GPU in use: its primary context, which all users of the driver in a process share.

use std::sync::{Arc, OnceLock};

use super::abi::{ContextHandle, Ordinal, PEER_ENABLED};
use super::device::CudaDevice;
use super::driver::GpuDriver;
use super::failure::CudaFailure;
use super::loaded::{Calls, Libcuda};

/// The primary context of a GPU. It lives as long as anything that was created in it.
#[derive(Debug)]
pub struct CudaContext {
    pub(super) library: Arc<Libcuda>,
    handle: ContextHandle,
    pub(super) ordinal: Ordinal,
    device: CudaDevice,
    /// All GPUs that the process sees; filled by the first call of [`Self::check_way_to`].
    seen: OnceLock<Vec<CudaDevice>>,
}

// SAFETY: a context may be used by any thread that has made it current, which every use of this value does first, and
// by several threads at once: the driver locks shared state.
unsafe impl Send for CudaContext {}
// SAFETY: as above.
unsafe impl Sync for CudaContext {}

impl CudaContext {
    /// Opens the GPU with this number. The first time in a process, the driver may need seconds.
    ///
    /// # Errors
    /// The driver's reason; code 101 for a number that no GPU has.
    pub fn open(library: &Arc<Libcuda>, number: u32) -> Result<Arc<Self>, CudaFailure> {
        let ordinal = library.ordinal(number)?;
        let device = library.describe(number)?;
        // SAFETY: the ordinal came from the library.
        let retained = unsafe { library.own.retain(ordinal) };
        if let Err(code) = retained {
            library.check("cuDevicePrimaryCtxRetain", code)?;
        }
        Ok(Arc::new(Self {
            library: Arc::clone(library),
            handle: retained.unwrap_or(std::ptr::null_mut()),
            ordinal,
            device,
            seen: OnceLock::new(),
        }))
    }

    /// The driver of this GPU.
    pub fn driver(&self) -> &'static GpuDriver {
        self.library.driver()
    }

    /// The GPU.
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Free and total bytes of the GPU's memory.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn memory_bytes(&self) -> Result<(u64, u64), CudaFailure> {
        let (mut free, mut all) = (0, 0);
        self.call("cuMemGetInfo_v2", |calls| {
            // SAFETY: both numbers are valid for the write of a size.
            unsafe { (calls.memory_info)(&raw mut free, &raw mut all) }
        })?;
        Ok((free as u64, all as u64))
    }

    /// Waits for all work that was started in the context.
    ///
    /// # Errors
    /// The driver's reason, possibly for work that was started earlier.
    pub fn wait(&self) -> Result<(), CudaFailure> {
        self.call("cuCtxSynchronize", |_| {
            // SAFETY: the context is current.
            unsafe { self.library.own.synchronize() }
        })
    }

    /// Lets kernels and copies of this GPU access memory of another GPU's context.
    ///
    /// # Errors
    /// `OtherDriver`; `NoPeer` if the machine has no path between the two; or the driver's reason.
    pub fn reach(&self, peer: &Self) -> Result<(), CudaFailure> {
        self.check_driver(peer)?;
        if self.handle == peer.handle {
            return Ok(());
        }
        self.check_way((peer.ordinal, peer.device.number))?;
        self.call("cuCtxEnablePeerAccess", |_| {
            // SAFETY: both contexts are retained, and this one is current.
            match unsafe { self.library.own.enable_peer(peer.handle) } {
                PEER_ENABLED => 0,
                code => code,
            }
        })
    }

    /// Rejects a context of another library. Handles, GPU numbers and addresses are valid in one library only. Any
    /// other library would treat an unknown address as host memory.
    ///
    /// # Errors
    /// `OtherDriver`.
    pub(super) fn check_driver(&self, other: &Self) -> Result<(), CudaFailure> {
        if self.library.is_one_with(&other.library) {
            return Ok(());
        }
        Err(CudaFailure::OtherDriver {
            own: self.driver().name,
            other: other.driver().name,
        })
    }

    /// Makes the error for a stream of this context that was given memory of another context.
    pub(super) fn other_gpu(&self, memory: &Self) -> CudaFailure {
        CudaFailure::OtherGpu {
            name: self.driver().name,
            memory: memory.device.number,
            stream: self.device.number,
        }
    }

    /// If the machine has no path to the memory of a GPU that this process sees, rejects that GPU without opening it. A
    /// GPU that the driver cannot describe, for example a lost one, is accepted.
    ///
    /// # Errors
    /// `NoPeer`, or the driver's reason.
    pub fn check_way_to(&self, is_peer: impl Fn(&CudaDevice) -> bool) -> Result<(), CudaFailure> {
        if is_peer(&self.device) {
            return Ok(());
        }
        let seen = self.seen.get_or_init(|| self.library.described());
        seen.iter()
            .find(|seen| is_peer(seen))
            .map_or(Ok(()), |peer| {
                self.check_way((self.library.ordinal(peer.number)?, peer.number))
            })
    }

    /// Rejects the GPU with this ordinal and number if the machine has no path to its memory.
    pub(super) fn check_way(&self, (peer, number): (Ordinal, u32)) -> Result<(), CudaFailure> {
        let mut can = 0;
        self.call("cuDeviceCanAccessPeer", |calls| {
            // SAFETY: the number is valid for the write of an int; both ordinals came from the library.
            unsafe { (calls.can_access_peer)(&raw mut can, self.ordinal, peer) }
        })?;
        if can != 0 {
            return Ok(());
        }
        Err(CudaFailure::NoPeer {
            call: self.driver().called("cuDeviceCanAccessPeer"),
            name: self.driver().name,
            gpu: self.device.number,
            peer: number,
        })
    }

    /// Makes the context current on this thread, for calls of other libraries. CUDA's runtime uses the first GPU if the
    /// thread has no context.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn make_current(&self) -> Result<(), CudaFailure> {
        self.current().map(|_| ())
    }

    /// Makes the context current on this thread, and returns the table of calls. To make several calls, this is cheaper
    /// than [`Self::call`].
    #[inline]
    pub(super) fn current(&self) -> Result<&Calls, CudaFailure> {
        // SAFETY: the context is retained until this value is dropped.
        let code = unsafe { self.library.own.set_current(self.handle) };
        self.library.check("cuCtxSetCurrent", code)?;
        Ok(&self.library.calls)
    }

    /// Turns a call's result code into an error unless it is success.
    #[inline]
    pub(super) fn check(&self, name: &'static str, code: i32) -> Result<(), CudaFailure> {
        self.library.check(name, code)
    }

    /// Makes a call with this context current.
    pub(super) fn call(
        &self,
        name: &'static str,
        call: impl FnOnce(&Calls) -> i32,
    ) -> Result<(), CudaFailure> {
        let code = call(self.current()?);
        self.library.check(name, code)
    }

    /// Number of multiprocessors, at least one.
    #[inline]
    pub(super) fn multiprocessors(&self) -> u32 {
        self.device.multiprocessors.max(1)
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        // SAFETY: retained once, released once. Everything created in the context keeps it alive, and is therefore
        // gone.
        unsafe { self.library.own.release(self.ordinal) };
    }
}
