//! libnvidia-ml (NVML), loaded at run time: links of NVIDIA GPUs to each other and to the host, and their MIG slices.
//! It comes with the driver. It describes all GPUs with device files on this machine, even GPUs that are hidden from
//! this process's CUDA. This module only reads.
//!
//! Calls are looked up one by one, and data of a missing call are unknown. Only initialisation is required.

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::NonNull;

use crate::error::LibraryError;
use crate::library::{SharedLibrary, text};

/// The file that the loader searches for.
const NAME: &str = "libnvidia-ml.so.1";

/// `nvmlReturn_t`.
pub type NvmlCode = c_int;
/// `nvmlDevice_t`.
type NvmlHandle = *mut c_void;

const SUCCESS: NvmlCode = 0;
/// `NVML_ERROR_NO_PERMISSION`.
const NO_PERMISSION: NvmlCode = 4;
/// `NVML_ERROR_GPU_IS_LOST`.
const GPU_IS_LOST: NvmlCode = 15;
/// `NVML_FEATURE_ENABLED`, and `NVML_DEVICE_MIG_ENABLE`.
const ENABLED: c_uint = 1;
/// `NVML_NVLINK_DEVICE_TYPE_GPU`.
const REMOTE_GPU: c_uint = 0;
/// `NVML_NVLINK_DEVICE_TYPE_IBMNPU`.
const REMOTE_PROCESSOR: c_uint = 1;
/// `NVML_NVLINK_DEVICE_TYPE_SWITCH`.
const REMOTE_SWITCH: c_uint = 2;
/// `NVML_P2P_CAPS_INDEX_READ`.
const P2P_READ: c_uint = 0;
/// `NVML_P2P_CAPS_INDEX_NVLINK`.
const P2P_NVLINK: c_uint = 2;
/// `NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON`: speed of each active link, in 10^6 bytes per second and direction.
const FIELD_LINK_SPEED: c_uint = 90;
/// `NVML_FI_DEV_C2C_LINK_COUNT`.
const FIELD_C2C_COUNT: c_uint = 170;
/// `NVML_FI_DEV_C2C_LINK_GET_MAX_BW`: speed of each C2C link, in 10^6 bytes per second.
const FIELD_C2C_SPEED: c_uint = 172;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const VALUE_UNSIGNED: c_uint = 1;

/// Number of links to query, more than any GPU has. NVML rejects the number of a link that does not exist, but it may
/// also reject an existing link. Therefore all numbers are tried.
const LINKS_MAX: u32 = 64;
/// Buffer size for names and identifiers (`NVML_DEVICE_UUID_V2_BUFFER_SIZE`).
const TEXT_BYTES: usize = 96;

/// Meanings of `nvmlGpuP2PStatus_t`, indexed by number.
const P2P_REASONS: [&str; 6] = [
    "it is supported",
    "the chipset does not support it",
    "a GPU does not support it",
    "they are below different root complexes",
    "a driver setting disables it",
    "it is not supported",
];

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Default)]
struct PciInfo {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    address: [c_char; 32],
}

/// `nvmlFieldValue_t`, with its union as plain bytes.
#[repr(C)]
#[derive(Default)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency: i64,
    kind: c_uint,
    code: NvmlCode,
    value: [c_uint; 2],
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct NvmlMemory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

macro_rules! optional {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// Exported calls; `None` for those that the library lacks.
        struct NvmlCalls {
            $($name: Option<unsafe extern "C" fn($($argument),*) -> NvmlCode>,)*
        }

        impl NvmlCalls {
            fn look_up(library: &SharedLibrary) -> Self {
                Self {
                    $($name: library.symbol_without_version($symbol).ok().map(|address| {
                        // SAFETY: the symbol has the signature that the header declares for the name with its version,
                        // which is given here.
                        unsafe {
                            std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($argument),*) -> NvmlCode>(
                                address,
                            )
                        }
                    }),)*
                }
            }
        }
    };
}

optional! {
    init = c"nvmlInit_v2" ();
    shutdown = c"nvmlShutdown" ();
    by_address = c"nvmlDeviceGetHandleByPciBusId_v2" (*const c_char, *mut NvmlHandle);
    link_state = c"nvmlDeviceGetNvLinkState" (NvmlHandle, c_uint, *mut c_uint);
    link_type = c"nvmlDeviceGetNvLinkRemoteDeviceType" (NvmlHandle, c_uint, *mut c_uint);
    link_remote = c"nvmlDeviceGetNvLinkRemotePciInfo_v2" (NvmlHandle, c_uint, *mut PciInfo);
    fields = c"nvmlDeviceGetFieldValues" (NvmlHandle, c_int, *mut FieldValue);
    p2p_status = c"nvmlDeviceGetP2PStatus" (NvmlHandle, NvmlHandle, c_uint, *mut c_uint);
    mig_mode = c"nvmlDeviceGetMigMode" (NvmlHandle, *mut c_uint, *mut c_uint);
    mig_count = c"nvmlDeviceGetMaxMigDeviceCount" (NvmlHandle, *mut c_uint);
    mig_slice = c"nvmlDeviceGetMigDeviceHandleByIndex" (NvmlHandle, c_uint, *mut NvmlHandle);
    name = c"nvmlDeviceGetName" (NvmlHandle, *mut c_char, c_uint);
    uuid = c"nvmlDeviceGetUUID" (NvmlHandle, *mut c_char, c_uint);
    memory = c"nvmlDeviceGetMemoryInfo" (NvmlHandle, *mut NvmlMemory);
}

/// The initialised library. It is shut down when this is dropped.
pub struct Nvml {
    calls: NvmlCalls,
    // The library that the calls belong to. It stays loaded even after this handle is dropped.
    _library: SharedLibrary,
}

/// A GPU that the library knows.
pub struct NvmlGpu<'a> {
    nvml: &'a Nvml,
    handle: NvmlHandle,
}

/// The remote end of an active link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NvlinkEnd {
    /// A GPU, by its PCI address in the kernel's format.
    Gpu(String),
    /// A switch.
    Switch,
    /// A processor of the host.
    Processor,
    /// Another device, or an unknown one.
    Other,
}

/// A slice of a GPU (MIG).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigSlice {
    /// Model and profile, such as "NVIDIA H100 MIG 1g.10gb".
    pub name: String,
    /// Identifier for `CUDA_VISIBLE_DEVICES`.
    pub uuid: String,
    /// Memory size in bytes.
    pub memory_bytes: Option<u64>,
}

impl Nvml {
    /// `NVML_ERROR_LIB_RM_VERSION_MISMATCH`: the code of [`Nvml::load`] if library and kernel driver have different
    /// versions.
    pub const VERSION_MISMATCH: NvmlCode = 18;

    /// Loads `file`, or the library that the loader finds, and initialises it.
    ///
    /// # Errors
    /// The loader's reason, or the library's code.
    pub fn load(file: Option<&str>) -> Result<Self, LibraryError> {
        let library = SharedLibrary::open(file.unwrap_or(NAME))?;
        let calls = NvmlCalls::look_up(&library);
        let init = calls
            .init
            .ok_or_else(|| LibraryError::unsupported("it has no nvmlInit_v2"))?;
        // SAFETY: takes no arguments, and may be called more than once.
        match unsafe { init() } {
            SUCCESS => Ok(Self {
                calls,
                _library: library,
            }),
            code => {
                let text = match code {
                    Self::VERSION_MISMATCH => {
                        "error 18, library and kernel driver have different versions"
                    }
                    code => &format!("error {code}"),
                };
                Err(LibraryError::call("nvmlInit_v2", code, text))
            }
        }
    }

    /// Returns the GPU with this PCI address; `None` if the library does not know it.
    pub fn gpu(&self, address: &str) -> Option<NvmlGpu<'_>> {
        let (call, address) = (self.calls.by_address?, CString::new(address).ok()?);
        let mut handle = std::ptr::null_mut();
        // SAFETY: the text is NUL-terminated, and the handle valid for the write.
        let code = unsafe { call(address.as_ptr(), &raw mut handle) };
        (code == SUCCESS).then_some(NvmlGpu { nvml: self, handle })
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        if let Some(shutdown) = self.calls.shutdown {
            // SAFETY: initialised once, shut down once; handles borrow this value and are gone.
            unsafe { shutdown() };
        }
    }
}

impl NvmlGpu<'_> {
    /// Returns the remote ends of the active links.
    ///
    /// # Errors
    /// The library's code, for a lost GPU or one that this process may not query.
    pub fn links(&self) -> Result<Vec<NvlinkEnd>, LibraryError> {
        let Some(state) = self.nvml.calls.link_state else {
            return Ok(Vec::new());
        };
        let mut ends = Vec::new();
        for link in 0..LINKS_MAX {
            let mut active = 0;
            // SAFETY: the handle is the library's, and the number valid for the write.
            match unsafe { state(self.handle, link, &raw mut active) } {
                SUCCESS if active == ENABLED => ends.push(self.link_end(link)),
                NO_PERMISSION => {
                    return Err(LibraryError::unsupported(
                        "no permission to query its NVLinks (error 4)",
                    ));
                }
                GPU_IS_LOST => {
                    return Err(LibraryError::unsupported("the GPU is lost (error 15)"));
                }
                // The link is down, does not exist, or may not be queried. Other links may still work.
                _ => {}
            }
        }
        Ok(ends)
    }

    fn link_end(&self, link: u32) -> NvlinkEnd {
        // If the library cannot report the type, the PCI address decides.
        let mut kind = REMOTE_GPU;
        if let Some(call) = self.nvml.calls.link_type {
            // SAFETY: as for the link's state.
            let code = unsafe { call(self.handle, link, &raw mut kind) };
            match (code, kind) {
                (SUCCESS, REMOTE_SWITCH) => return NvlinkEnd::Switch,
                (SUCCESS, REMOTE_PROCESSOR) => return NvlinkEnd::Processor,
                (SUCCESS, _) => {}
                _ => kind = REMOTE_GPU,
            }
        }
        let Some(call) = self.nvml.calls.link_remote.filter(|_| kind == REMOTE_GPU) else {
            return NvlinkEnd::Other;
        };
        let mut info = PciInfo::default();
        // SAFETY: as for the link's state; the struct is that of the header.
        match unsafe { call(self.handle, link, &raw mut info) } {
            // A guest that does not see the remote end reads all ones.
            SUCCESS if info.bus <= 0xff && info.device <= 0x1f => NvlinkEnd::Gpu(format!(
                "{:04x}:{:02x}:{:02x}.0",
                info.domain, info.bus, info.device
            )),
            _ => NvlinkEnd::Other,
        }
    }

    /// Returns the nominal bandwidth of one link and direction in bytes per second; `None` if the library does not
    /// report it.
    pub fn link_bytes_per_s(&self) -> Option<u64> {
        Some(u64::from(self.field(FIELD_LINK_SPEED)?) * 1_000_000)
    }

    /// Returns the number of NVLink-C2C links, and the nominal bandwidth of each link per direction in bytes per
    /// second. These links connect the GPU's memory to the host's. `None` for a GPU without such links, or if the
    /// library does not report them.
    pub fn c2c(&self) -> Option<(u32, Option<u64>)> {
        let count = self.field(FIELD_C2C_COUNT)?;
        let megabytes = self.field(FIELD_C2C_SPEED);
        Some((count, megabytes.map(|speed| u64::from(speed) * 1_000_000)))
    }

    /// Returns the value of a numbered field; `None` if it is missing or zero.
    fn field(&self, number: c_uint) -> Option<c_uint> {
        let call = self.nvml.calls.fields?;
        let mut field = FieldValue {
            field: number,
            ..FieldValue::default()
        };
        // SAFETY: the handle is the library's; there is one field, which is valid for the write.
        let code = unsafe { call(self.handle, 1, &raw mut field) };
        let known = code == SUCCESS && field.code == SUCCESS && field.kind == VALUE_UNSIGNED;
        known.then_some(field.value[0]).filter(|&value| value > 0)
    }

    /// Whether the GPU is connected to another GPU by NVLink; `None` if the library does not report it.
    pub fn is_linked(&self, peer: &NvmlGpu<'_>) -> Option<bool> {
        Some(self.status(peer, P2P_NVLINK)? == 0)
    }

    /// Returns why the GPU cannot read another GPU's memory; `None` if it can, or the library gives no reason.
    pub fn why_not_peer(&self, peer: &NvmlGpu<'_>) -> Option<&'static str> {
        let status = self.status(peer, P2P_READ).filter(|&status| status > 0)?;
        P2P_REASONS.get(status as usize).copied()
    }

    fn status(&self, peer: &NvmlGpu<'_>, capability: c_uint) -> Option<c_uint> {
        let (call, mut status) = (self.nvml.calls.p2p_status?, 0);
        // SAFETY: both handles are the library's, and the number is valid for the write.
        let code = unsafe { call(self.handle, peer.handle, capability, &raw mut status) };
        (code == SUCCESS).then_some(status)
    }

    /// Returns the MIG slices; `None` for a GPU that is not divided.
    pub fn slices(&self) -> Option<Vec<MigSlice>> {
        let calls = &self.nvml.calls;
        let (mut current, mut pending, mut count) = (0, 0, 0);
        // SAFETY: the handle is the library's, and both numbers are valid for the write.
        let code = unsafe { (calls.mig_mode?)(self.handle, &raw mut current, &raw mut pending) };
        if code != SUCCESS || current != ENABLED {
            return None;
        }
        // SAFETY: as above.
        let code = unsafe { (calls.mig_count?)(self.handle, &raw mut count) };
        if code != SUCCESS {
            return None;
        }
        let slice = calls.mig_slice?;
        let slices = (0..count).filter_map(|index| {
            let mut handle = std::ptr::null_mut();
            // SAFETY: as above; an index without a slice is an error of the call.
            let code = unsafe { slice(self.handle, index, &raw mut handle) };
            let slice = NvmlGpu {
                nvml: self.nvml,
                handle,
            };
            (code == SUCCESS).then(|| slice.described())
        });
        Some(slices.collect())
    }

    fn described(&self) -> MigSlice {
        let calls = &self.nvml.calls;
        let mut memory = NvmlMemory::default();
        // SAFETY: the handle is the library's, and the struct that of the header.
        let asked = calls
            .memory
            .map(|call| unsafe { call(self.handle, &raw mut memory) });
        MigSlice {
            name: self.text_of(calls.name).unwrap_or_default(),
            uuid: self.text_of(calls.uuid).unwrap_or_default(),
            memory_bytes: (asked == Some(SUCCESS)).then_some(memory.total),
        }
    }

    fn text_of(
        &self,
        call: Option<unsafe extern "C" fn(NvmlHandle, *mut c_char, c_uint) -> NvmlCode>,
    ) -> Option<String> {
        let mut room: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
        // SAFETY: the array has one byte more than the call may write, which keeps the text NUL-terminated.
        let code = unsafe { call?(self.handle, room.as_mut_ptr(), TEXT_BYTES as c_uint - 1) };
        if code != SUCCESS {
            return None;
        }
        // SAFETY: the array is NUL-terminated, and nothing else refers to it.
        unsafe { text(room.as_ptr()) }
    }
}
