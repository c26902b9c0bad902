//! Compares our declarations in [`super::abi`] with the headers of the embedded libfabric.
//!
//! What lives here: a test, and the list of everything that is declared, which the test holds to be complete by reading
//! the sources of `abi`. The other side of the comparison is `crates/libfabric-embedded/c/layout.c`: what is declared
//! anew goes into both.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_char;
use std::mem::offset_of;

use super::abi;
use crate::library::text;

/// A row of the table in C.
#[repr(C)]
struct Row {
    name: *const c_char,
    value: u64,
    size: u64,
}

unsafe extern "C" {
    /// A row that lives as long as the program; null behind the last.
    safe fn tonnage_libfabric_layout(row: usize) -> *const Row;
}

/// Offset or value, and size.
type StructLayout = BTreeMap<String, (u64, u64)>;

/// Structs that we allocate and a library reads or writes: their size must be the headers'. Of all others we declare
/// the leading part of what a library allocates.
const ALLOCATED_BY_US: [&str; 9] = [
    "fid",
    "fi_av_attr",
    "fi_cq_attr",
    "fi_cq_data_entry",
    "fi_cq_err_entry",
    "fi_mr_attr",
    "fi_mr_dmabuf",
    "fi_msg_rma",
    "fi_rma_iov",
];

/// Fields that came after the embedded release, at the end of a struct that we allocate.
const NEWER: [&str; 2] = ["fi_mr_attr.base_mr", "fi_mr_attr.sub_mr_cnt"];

/// Layout by the compiler of C.
fn of_the_headers() -> StructLayout {
    tonnage_libfabric_embedded::link();
    let mut layout = StructLayout::new();
    for index in 0.. {
        let row = tonnage_libfabric_layout(index);
        // SAFETY: null, or a row of a constant table.
        let Some(row) = (unsafe { row.as_ref() }) else {
            break;
        };
        // SAFETY: the names are constant NUL-terminated strings.
        let name = unsafe { text(row.name) }.unwrap();
        assert!(
            layout.insert(name.clone(), (row.value, row.size)).is_none(),
            "{name} is twice in layout.c"
        );
    }
    layout
}

fn size_of_field<S, F>(_: fn(&S) -> &F) -> u64 {
    size_of::<F>() as u64
}

macro_rules! structs {
    ($layout:ident: $($name:ident { $($field:ident),* })*) => {
        $(
            $layout.insert(
                concat!("struct ", stringify!($name)).to_owned(),
                (0, size_of::<abi::$name>() as u64),
            );
            $(
                // A word that Rust keeps for itself has a line behind it here.
                let field = stringify!($field).trim_end_matches('_');
                $layout.insert(
                    format!("{}.{field}", stringify!($name)),
                    (
                        offset_of!(abi::$name, $field) as u64,
                        size_of_field(|whole: &abi::$name| &whole.$field),
                    ),
                );
            )*
        )*
    };
}

macro_rules! values {
    ($layout:ident: $($name:ident)*) => {
        $($layout.insert(stringify!($name).to_owned(), (abi::$name as i64 as u64, 0));)*
    };
}

/// Layout by the compiler of Rust.
fn of_our_declarations() -> StructLayout {
    let mut layout = StructLayout::new();
    add_attributes(&mut layout);
    add_objects(&mut layout);
    add_values(&mut layout);
    layout
}

fn add_attributes(layout: &mut StructLayout) {
    structs! { layout:
        fi_tx_attr {
            caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit
        }
        fi_rx_attr {
            caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit
        }
        fi_ep_attr { type_, protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size }
        fi_domain_attr {
            domain, name, threading, control_progress, data_progress, resource_mgmt, av_type,
            mr_mode, mr_key_size, cq_data_size, cq_cnt, ep_cnt
        }
        fi_fabric_attr { fabric, name, prov_name, prov_version, api_version }
        fi_info {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle,
            tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, nic
        }
        fi_device_attr { name, device_id, device_version, vendor_id, driver, firmware }
        fi_link_attr { address, mtu, speed, state, network_type }
        fi_av_attr { type_, rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
        fi_cq_attr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
        fi_mr_attr {
            mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key,
            iface, device, hmem_data, page_size, base_mr, sub_mr_cnt
        }
        fi_mr_dmabuf { fd, offset, len, base_addr }
        fi_cq_data_entry { op_context, flags, len, buf, data }
        fi_cq_err_entry {
            op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size,
            src_addr
        }
        fi_rma_iov { addr, len, key }
        fi_msg_rma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
    }
}

fn add_objects(layout: &mut StructLayout) {
    structs! { layout:
        fid_nic { fid, device_attr, bus_attr, link_attr, prov_attr }
        fid { fclass, context, ops }
        fi_ops { size, close, bind, control }
        fi_ops_fabric { size, domain, passive_ep, eq_open, wait_open, trywait }
        fid_fabric { fid, ops, api_version }
        fi_ops_domain { size, av_open, cq_open, endpoint }
        fi_ops_mr { size, reg, regv, regattr }
        fid_domain { fid, ops, mr }
        fid_mr { fid, mem_desc, key }
        fi_ops_av { size, insert }
        fid_av { fid, ops }
        fi_ops_cq { size, read, readfrom, readerr, sread, sreadfrom, signal, strerror }
        fid_cq { fid, ops }
        fi_ops_cm { size, setname, getname }
        fi_ops_msg { size, recv, recvv, recvmsg, send, sendv, sendmsg, inject }
        fi_ops_ep { size, cancel, getopt, setopt }
        fi_ops_tagged { size, recv, recvv, recvmsg, send, sendv, sendmsg, inject }
        fi_ops_rma { size, read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata }
        fid_ep { fid, ops, cm, msg, rma, tagged }
    }
}

fn add_values(layout: &mut StructLayout) {
    values! { layout:
        FI_MSG FI_RMA FI_TAGGED FI_READ FI_WRITE FI_RECV FI_SEND FI_TRANSMIT FI_REMOTE_READ FI_REMOTE_WRITE
        FI_REMOTE_CQ_DATA FI_COMPLETION FI_MR_DMABUF FI_HMEM FI_HMEM_SYSTEM FI_HMEM_CUDA FI_HMEM_ROCR
        FI_DELIVERY_COMPLETE FI_PROV_ATTR_ONLY FI_CONTEXT
        FI_CONTEXT2 FI_MR_LOCAL FI_MR_RAW FI_MR_VIRT_ADDR FI_MR_ALLOCATED FI_MR_PROV_KEY
        FI_MR_MMU_NOTIFY FI_MR_RMA_EVENT FI_MR_ENDPOINT FI_MR_HMEM FI_MR_COLLECTIVE FI_ORDER_RAR
        FI_ORDER_RAW FI_ORDER_RAS FI_ORDER_WAR FI_ORDER_WAW FI_ORDER_WAS FI_ORDER_SAR FI_ORDER_SAW
        FI_ORDER_SAS FI_ORDER_RMA_RAR FI_ORDER_RMA_RAW FI_ORDER_RMA_WAR FI_ORDER_RMA_WAW FI_EP_MSG
        FI_EP_DGRAM FI_EP_RDM FI_AV_TABLE FI_CQ_FORMAT_DATA FI_WAIT_NONE FI_WAIT_FD FI_GETWAIT FI_ENABLE FI_ADDR_UNSPEC
        FI_THREAD_UNSPEC FI_THREAD_SAFE FI_THREAD_FID FI_THREAD_DOMAIN FI_THREAD_COMPLETION
        FI_THREAD_ENDPOINT FI_PROGRESS_UNSPEC FI_PROGRESS_AUTO FI_PROGRESS_MANUAL
        FI_OPT_ENDPOINT FI_OPT_FI_HMEM_P2P FI_OPT_INJECT_RMA_SIZE FI_HMEM_P2P_REQUIRED
        FI_SOCKADDR FI_SOCKADDR_IN FI_SOCKADDR_IN6 FI_PROGRESS_CONTROL_UNIFIED FI_EAGAIN FI_ENOMEM FI_EINVAL FI_ENODATA
        FI_ENOPROTOOPT FI_EAVAIL
    }
}

/// The names of all that `abi.rs` declares, read from its source.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut inside = None;
    let sources = [include_str!("abi.rs"), include_str!("abi/constants.rs")];
    for line in sources.iter().flat_map(|source| source.lines()) {
        if let Some(rest) = line.strip_prefix("pub const ") {
            names.insert(rest.split(':').next().unwrap().to_owned());
        } else if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.split([' ', '<']).next().unwrap();
            names.insert(format!("struct {name}"));
            inside = Some(name);
        } else if line == "}" {
            inside = None;
        } else if let (Some(name), Some(rest)) = (inside, line.strip_prefix("    pub ")) {
            let field = rest.split(':').next().unwrap().trim_end_matches('_');
            names.insert(format!("{name}.{field}"));
        }
    }
    names
}

#[test]
fn the_list_of_what_is_compared_is_complete() {
    let declared = declared();
    assert!(declared.contains("fi_info.nic") && declared.contains("FI_ENABLE"));
    let compared: BTreeSet<String> = of_our_declarations().into_keys().collect();
    let differing = |other: &BTreeSet<String>| -> Vec<String> {
        compared.symmetric_difference(other).cloned().collect()
    };
    let missing = differing(&declared);
    assert!(missing.is_empty(), "abi.rs and layout.rs: {missing:?}");
    let mut in_c: BTreeSet<String> = of_the_headers().into_keys().collect();
    in_c.extend(NEWER.map(str::to_owned));
    let missing = differing(&in_c);
    assert!(missing.is_empty(), "layout.c and layout.rs: {missing:?}");
}

#[test]
fn every_field_and_constant_is_where_and_what_the_headers_say() {
    let (ours, headers) = (of_our_declarations(), of_the_headers());
    let mut wrong = Vec::new();
    for (name, layout) in &ours {
        if name.starts_with("struct ") || NEWER.contains(&name.as_str()) {
            continue;
        }
        if headers.get(name) != Some(layout) {
            wrong.push(format!("{name}: {layout:?}, not {:?}", headers.get(name)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn structs_have_the_size_of_the_headers_or_are_their_leading_part() {
    let (ours, headers) = (of_our_declarations(), of_the_headers());
    for (name, (_, size)) in &ours {
        let Some(bare) = name.strip_prefix("struct ") else {
            continue;
        };
        let (_, of_header) = headers[name];
        let newer = NEWER
            .iter()
            .filter(|newer| newer.starts_with(&format!("{bare}.")));
        let end = newer.map(|newer| ours[*newer].0).min().unwrap_or(*size);
        if ALLOCATED_BY_US.contains(&bare) {
            assert_eq!(end, of_header, "{name}");
        } else {
            assert!(*size <= of_header, "{name}: {size} > {of_header}");
        }
    }
}
