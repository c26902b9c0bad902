//! Registrations of device memory, with a domain that records requests.

use std::cell::RefCell;
use std::fs::File;
use std::ptr::{null, null_mut};

use super::super::post::may_inject;
use super::super::{Action, Route};
use super::tests::endpoint;
use super::*;
use crate::cuda::DmabufFile;
use crate::error::LibraryErrorKind;
use crate::mapping::{Pages, Sharing};

/// A request: flags, the interface with its number, and the file's offset, length and base address.
type Asked = (u64, (c_int, u64), (u64, usize, usize));

thread_local! {
    static ASKED: RefCell<Vec<Asked>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" fn closed(fid: *mut abi::fid) -> c_int {
    // SAFETY: `fid` is a registration that `registered` made, together with its operations, and is closed once.
    unsafe {
        drop(Box::from_raw((*fid).ops));
        drop(Box::from_raw(fid.cast::<abi::fid_mr>()));
    }
    0
}

unsafe extern "C" fn bound(_: *mut abi::fid, _: *mut abi::fid, _: u64) -> c_int {
    0
}

unsafe extern "C" fn controlled(_: *mut abi::fid, _: c_int, _: *mut c_void) -> c_int {
    0
}

unsafe extern "C" fn registered(
    _: *mut abi::fid,
    attr: *const abi::fi_mr_attr,
    flags: u64,
    into: *mut *mut abi::fid_mr,
) -> c_int {
    // SAFETY: the caller's attribute is live, and with this flag it leads to a file.
    let (attr, file) = unsafe { (&*attr, &*(*attr).mr_iov.cast::<abi::fi_mr_dmabuf>()) };
    let of_file = (file.offset, file.len, file.base_addr.addr());
    ASKED.with_borrow_mut(|all| all.push((flags, (attr.iface, attr.device), of_file)));
    let ops = Box::into_raw(Box::new(abi::fi_ops {
        size: size_of::<abi::fi_ops>(),
        close: closed,
        bind: bound,
        control: controlled,
    }));
    let fid = abi::fid {
        fclass: 0,
        context: null_mut(),
        ops,
    };
    let mr = abi::fid_mr {
        fid,
        mem_desc: null_mut(),
        key: attr.requested_key,
    };
    // SAFETY: the caller's pointer is valid for the write.
    unsafe { *into = Box::into_raw(Box::new(mr)) };
    0
}

/// An endpoint of the embedded library that registers memory with `registered`.
fn noting(ops: &mut abi::fi_ops_mr) -> Endpoint {
    let mut endpoint = endpoint();
    let domain: *mut abi::fid_domain = endpoint.domain.as_ref().unwrap().cast();
    // SAFETY: the domain is open, and the operations outlive it.
    unsafe { (*domain).mr = ops };
    endpoint.peer_to_peer = Some(PeerToPeer::Required);
    endpoint
}

fn ops() -> abi::fi_ops_mr {
    abi::fi_ops_mr {
        size: size_of::<abi::fi_ops_mr>(),
        reg: null(),
        regv: null(),
        regattr: registered,
    }
}

/// Memory at offset 512 of its file's page, with a matching address.
fn device() -> Arc<DeviceBytes> {
    let file = DmabufFile {
        file: File::open("/dev/null").unwrap().into(),
        offset: 512,
    };
    Arc::new(DeviceBytes::of_file(file, 0x7f00_0000_0200, 4096))
}

#[test]
fn a_file_is_registered_with_its_offset_and_nothing_of_it_is_injected() {
    let mut ops = ops();
    let mut endpoint = noting(&mut ops);
    let cuda = (HmemInterface::Cuda, 3);
    endpoint.peer_to_peer = Some(PeerToPeer::NotConfirmed);
    let refused = endpoint.register_device(device(), cuda, 1).unwrap_err();
    assert!(
        matches!(*refused, LibraryErrorKind::Unsupported(_)),
        "{refused}"
    );
    endpoint.peer_to_peer = Some(PeerToPeer::Required);
    let registered = endpoint.register_device(device(), cuda, 1);
    if endpoint.library().release() < FILES_SINCE {
        // The embedded library's release is too old for files: only its refusal can be tested.
        assert!(matches!(
            *registered.unwrap_err(),
            LibraryErrorKind::Unsupported(_)
        ));
        return;
    }
    let region = registered.unwrap();
    // The address is `base + offset`.
    let expected = (1 << 40, (1, 3), (512, 4096, 0x7f00_0000_0000));
    assert_eq!(ASKED.take(), [expected]);
    let remote = endpoint.remote(region).unwrap();
    assert_eq!((remote.key, remote.len), (1, 4096));
    let name = endpoint.name().to_vec();
    let peer = endpoint.insert(&name).unwrap();
    let route = Route {
        action: Action::Write,
        peer,
        remote,
        local: region,
        delivered: false,
        inject_bytes_max: 64,
    };
    let of_device = &endpoint.regions[region.0].as_ref().unwrap().bytes;
    assert!(!may_inject(&route, 8, of_device));
    let arena = Arena::allocate(4096, Pages::Normal, Sharing::Private, None).unwrap();
    let of_host = RegisteredBytes::new(RegisteredMemory::Host(Arc::new(arena)));
    assert!(may_inject(&route, 8, &of_host) && !may_inject(&route, 65, &of_host));
    endpoint.deregister(region).unwrap();
}

/// Deregistering must close the registration's descriptor. Otherwise the process would run out of descriptors.
#[test]
fn registering_in_turns_leaves_nothing_behind() {
    let mut ops = ops();
    let mut endpoint = noting(&mut ops);
    if endpoint.library().release() < FILES_SINCE {
        return;
    }
    for _ in 0..2000 {
        let cuda = (HmemInterface::Cuda, 0);
        let region = endpoint.register_device(device(), cuda, 1).unwrap();
        endpoint.deregister(region).unwrap();
    }
    assert!(endpoint.retired.is_empty());
}
