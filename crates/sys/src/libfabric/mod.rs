//! libfabric, loaded at run time: which providers and domains it offers.
//!
//! What lives here: finding the library, its version, and a copy of what `fi_getinfo` lists. What does not: moving
//! bytes with it. The symbols are pinned to the oldest version that all releases since 1.9 still carry, and of every
//! struct that the library allocates only the leading part is declared, because later releases grow them at the end.

mod abi;
#[cfg(test)]
mod layout;

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;

use crate::library::{Library, file_of, text};

/// Where an installation for EFA puts its own library, which is preferred to the distribution's.
const EFA_PATHS: [&str; 2] = [
    "/opt/amazon/efa/lib64/libfabric.so.1",
    "/opt/amazon/efa/lib/libfabric.so.1",
];
/// What the loader searches for in its own directories.
const LOADER_NAME: &str = "libfabric.so.1";

/// The newest interface that this file was written for; an older library is asked for its own.
const INTERFACE_MAX: u32 = 1 << 16 | 20;
/// The answer to a question that nothing matches, which here means that no provider is usable.
const FI_ENODATA: c_int = 61;
/// A bound on the list that is followed, far above what any host lists.
const OFFERS_MAX: usize = 1 << 16;

type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const Info,
    list: *mut *mut Info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(list: *mut Info);
type Version = unsafe extern "C" fn() -> u32;
type Strerror = unsafe extern "C" fn(code: c_int) -> *const c_char;

/// The start of `struct fi_info`.
#[repr(C)]
struct Info {
    next: *mut Info,
    caps: u64,
    mode: u64,
    addr_format: u32,
    src_addrlen: usize,
    dest_addrlen: usize,
    src_addr: *mut c_void,
    dest_addr: *mut c_void,
    handle: *mut c_void,
    tx_attr: *mut c_void,
    rx_attr: *mut c_void,
    ep_attr: *mut EndpointAttr,
    domain_attr: *mut DomainAttr,
    fabric_attr: *mut FabricAttr,
}

/// The start of `struct fi_ep_attr`.
#[repr(C)]
struct EndpointAttr {
    kind: c_int,
}

/// The start of `struct fi_domain_attr`.
#[repr(C)]
struct DomainAttr {
    domain: *mut c_void,
    name: *mut c_char,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
struct FabricAttr {
    fabric: *mut c_void,
    name: *mut c_char,
    prov_name: *mut c_char,
    prov_version: u32,
    api_version: u32,
}

// The layout is that of 64-bit Linux; another pointer width would move the fields.
const _: () = assert!(size_of::<usize>() == 8 && std::mem::offset_of!(Info, fabric_attr) == 104);

/// A release, as libfabric packs it into 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(u32);

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 >> 16, self.0 & 0xffff)
    }
}

/// One way to communicate that the library offers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offer {
    /// Provider, layered ones with a semicolon: "tcp;ofi_rxm".
    pub provider: String,
    /// The provider's own version.
    pub provider_version: Release,
    /// Fabric (network) name; may be empty.
    pub fabric: String,
    /// Domain (device) name; may be empty.
    pub domain: String,
    /// Kind of endpoint: "msg", "datagram", "rdm" (reliable datagram) or another kind's number.
    pub endpoint: String,
}

/// A loaded libfabric. It stays loaded until the process ends (see [`crate::library`] for why).
#[derive(Debug)]
pub struct Libfabric {
    // Held so that the functions below are never without their code, whatever becomes of the loader's policy.
    _library: Library,
    getinfo: GetInfo,
    freeinfo: FreeInfo,
    strerror: Strerror,
    release: Release,
    path: String,
}

impl Libfabric {
    /// Loads libfabric from `path` alone where one is given; else from the places of an EFA installation, else by the
    /// loader's own search. The first time can take some tenths of a second, because of the libraries that it brings
    /// along; loading it again is cheap and gives the same library.
    ///
    /// # Errors
    /// One line that says what was tried and the loader's reason. A library that is there but broken is an error, not
    /// a reason to try the next one.
    pub fn load(path: Option<&str>) -> Result<Self, String> {
        let installed = EFA_PATHS.into_iter().find(|path| Path::new(path).exists());
        let name = path.or(installed).unwrap_or(LOADER_NAME);
        Self::with_symbols_of(Library::open(name)?, name)
    }

    /// The libfabric that this process has loaded already, if any; never loads one.
    pub fn loaded() -> Option<Self> {
        Self::with_symbols_of(Library::loaded(LOADER_NAME)?, LOADER_NAME).ok()
    }

    fn with_symbols_of(library: Library, name: &str) -> Result<Self, String> {
        let getinfo = library.symbol(c"fi_getinfo", c"FABRIC_1.3")?;
        let freeinfo = library.symbol(c"fi_freeinfo", c"FABRIC_1.3")?;
        let version = library.symbol(c"fi_version", c"FABRIC_1.0")?;
        let strerror = library.symbol(c"fi_strerror", c"FABRIC_1.0")?;
        let path = file_of(getinfo).unwrap_or_else(|| name.to_owned());
        // SAFETY: the symbol of this name and version is a function of this signature in every release that has it.
        let version: Version = unsafe { function(version) };
        Ok(Self {
            // SAFETY: as for fi_version; FABRIC_1.3 fixes the structs of which `Info` is the leading part.
            getinfo: unsafe { function(getinfo) },
            // SAFETY: as for fi_getinfo.
            freeinfo: unsafe { function(freeinfo) },
            // SAFETY: as for fi_version.
            strerror: unsafe { function(strerror) },
            // SAFETY: takes nothing, returns a number, and needs no set-up.
            release: Release(unsafe { version() }),
            path,
            _library: library,
        })
    }

    /// The library's release.
    pub fn release(&self) -> Release {
        self.release
    }

    /// The file that it was loaded from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Everything that its providers offer on this host, sorted, each once; empty when none is usable. This makes the
    /// providers look for their devices, which can take some tenths of a second.
    ///
    /// # Errors
    /// The library's own reason.
    pub fn offers(&self) -> Result<Vec<Offer>, String> {
        let version = self.release.0.min(INTERFACE_MAX);
        let mut list: *mut Info = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: node, service and hints may be null ("everything"); `list` is valid for the one write of a pointer.
        let code =
            unsafe { (self.getinfo)(version, none, none, 0, std::ptr::null(), &raw mut list) };
        if code == -FI_ENODATA {
            return Ok(Vec::new());
        }
        if code != 0 {
            return Err(format!(
                "fi_getinfo of {} failed: {}",
                self.path,
                self.reason(code)
            ));
        }
        // SAFETY: after success `list` is null or the head of a list that belongs to us until fi_freeinfo.
        let offers = unsafe { copy_list(list) };
        if !list.is_null() {
            // SAFETY: the list came from this library's fi_getinfo, is freed once, and nothing points into it any more.
            unsafe { (self.freeinfo)(list) };
        }
        Ok(offers.into_iter().collect())
    }

    fn reason(&self, code: c_int) -> String {
        // SAFETY: takes any code and returns a constant NUL-terminated string, which is copied.
        let reason = unsafe { text((self.strerror)(code.saturating_neg())) };
        reason.unwrap_or_else(|| format!("error {code}"))
    }
}

/// Copies what is used of a list of `fi_info`.
///
/// # Safety
/// `list` is null or the head of a list that fi_getinfo made and nobody has freed.
unsafe fn copy_list(mut list: *mut Info) -> BTreeSet<Offer> {
    let mut offers = BTreeSet::new();
    for _ in 0..OFFERS_MAX {
        // SAFETY: null ends the list; every other entry is a live fi_info whose leading part is `Info`.
        let Some(info) = (unsafe { list.as_ref() }) else {
            break;
        };
        // SAFETY: the attributes are null or live, as long as the list is, and their names null or NUL-terminated.
        if let Some(offer) = unsafe { copy_entry(info) } {
            offers.insert(offer);
        }
        list = info.next;
    }
    offers
}

/// Copies one entry; `None` for one without fabric attributes, which names no provider.
///
/// # Safety
/// `info` is an entry that fi_getinfo made and nobody has freed.
unsafe fn copy_entry(info: &Info) -> Option<Offer> {
    // SAFETY: null or a live attribute of this entry, by the caller's promise; so for the two below.
    let fabric = unsafe { info.fabric_attr.as_ref() }?;
    // SAFETY: as above.
    let domain = unsafe { info.domain_attr.as_ref() };
    // SAFETY: as above.
    let endpoint = unsafe { info.ep_attr.as_ref() };
    let domain_name = domain.map_or(std::ptr::null_mut(), |domain| domain.name);
    Some(Offer {
        // SAFETY: names are null or NUL-terminated and unchanged while the list lives; so for the two below.
        provider: unsafe { text(fabric.prov_name) }.unwrap_or_default(),
        provider_version: Release(fabric.prov_version),
        // SAFETY: as above.
        fabric: unsafe { text(fabric.name) }.unwrap_or_default(),
        // SAFETY: as above.
        domain: unsafe { text(domain_name) }.unwrap_or_default(),
        endpoint: endpoint_name(endpoint.map_or(0, |endpoint| endpoint.kind)),
    })
}

fn endpoint_name(kind: c_int) -> String {
    match kind {
        0 => "unspecified".to_owned(),
        1 => "msg".to_owned(),
        2 => "datagram".to_owned(),
        3 => "rdm".to_owned(),
        other => format!("kind {other}"),
    }
}

/// Makes a function pointer of a symbol's address.
///
/// # Safety
/// `F` is a function pointer type, and the code at `address` has that signature and stays loaded while it is used.
unsafe fn function<F: Copy>(address: NonNull<c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    // SAFETY: the sizes agree, and the caller promises that the address is such a function's.
    unsafe { std::mem::transmute_copy(&address) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_was_asked_for_is_the_only_one_tried() {
        let message = Libfabric::load(Some("/nonexistent/libfabric.so.1")).unwrap_err();
        assert!(message.contains("/nonexistent/libfabric.so.1"), "{message}");
    }

    #[test]
    fn a_library_that_is_not_libfabric_is_refused() {
        let message = Libfabric::load(Some("libc.so.6")).unwrap_err();
        assert!(message.contains("fi_getinfo"), "{message}");
    }

    #[test]
    fn releases_are_printed_as_libfabric_numbers_them() {
        assert_eq!(Release(1 << 16 | 17).to_string(), "1.17");
        assert_eq!(Release(117 << 16).to_string(), "117.0");
    }

    #[test]
    fn an_installed_library_lists_providers() {
        let library = match Libfabric::load(None) {
            Ok(library) => library,
            Err(why) => return eprintln!("skip: no libfabric here: {why}"),
        };
        assert!(
            library.release() >= Release(1 << 16 | 9),
            "{}",
            library.release()
        );
        assert!(library.path().contains("libfabric"), "{}", library.path());
        assert_eq!(Libfabric::loaded().unwrap().path(), library.path());
        let offers = library.offers().unwrap();
        assert!(offers.is_sorted() && offers.iter().all(|offer| !offer.provider.is_empty()));
        // Sockets need no device, so that a library that works offers at least this.
        assert!(
            offers.iter().any(|offer| offer.provider.contains("tcp")),
            "{offers:?}"
        );
        assert_eq!(offers, library.offers().unwrap());
    }
}
