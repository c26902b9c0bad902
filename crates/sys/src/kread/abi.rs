//! Declarations of `kernel/tonnage_kread/tonnage_kread.h`; a test compares them with the header as compiled by a C
//! compiler.

use crate::header::{numbers, structures, zeroed};

numbers! { fn values;
    u32:
        /// Version of this layout.
        TKR_ABI = 1,
        TKR_READ = 0, TKR_WRITE = 1, TKR_EACH = 0, TKR_FIRST = 1, TKR_BATCH = 2, TKR_FIXED = 0, TKR_SEQUENTIAL = 1,
        TKR_RANDOM = 2, TKR_PERMUTED = 3, TKR_RUN_UNTIMED = 1, TKR_HIST_CLEAR = 1, TKR_PEEK_STORE = 1;
    usize: TKR_BINS = 27_648;
    u8: TKR_PATH_GLOBAL = 1;
    u32: TKR_IOC_SETUP = call(BOTH, 0xb0, size_of::<tkr_setup>()), TKR_IOC_LANE = call(BOTH, 0xb1, size_of::<tkr_lane>()),
        TKR_IOC_CONNECT = call(WRITE, 0xb2, size_of::<tkr_connect>()),
        TKR_IOC_RUN = call(BOTH, 0xb3, size_of::<tkr_run>()), TKR_IOC_STATS = call(BOTH, 0xb4, size_of::<tkr_stats>()),
        TKR_IOC_HIST = call(BOTH, 0xb5, size_of::<tkr_hist>()), TKR_IOC_PEEK = call(WRITE, 0xb6, size_of::<tkr_peek>()),
        TKR_IOC_STOP = call(NONE, 0xb7, 0);
}

structures! { fn layouts;
    tkr_setup {
        abi: u32, port: u32, device: [u8; 64], gid_index: u32, lanes: u32, depth: u32, slots: u32, slot_bytes: u32,
        reserved: u32, gid: [u8; 16], lid: u32, mtu_bytes: u32, rd_atomic: u32, link_layer: u32,
    }
    tkr_lane { lane: u32, reserved: u32, qpn: u32, psn: u32 }
    tkr_connect {
        lane: u32, qpn: u32, psn: u32, lid: u32, gid: [u8; 16], mtu_bytes: u32, flow_label: u32, pkey_index: u16,
        timeout: u8, retry: u8, rnr_retry: u8, rd_atomic: u8, hop_limit: u8, traffic_class: u8, service_level: u8,
        flags: u8, reserved: [u8; 6],
    }
    tkr_flow {
        lane: u32, lanes: u32, remote: u64, remote_bytes: u64, local: u64, seed: u64, begin: u64, rkey: u32,
        reserved: u32, issued: u64,
    }
    tkr_run {
        verb: u32, bytes: u32, window: u32, pacing: u32, local_order: u32, remote_order: u32, flags: u32, flows: u32,
        flows_at: u64, slots: u64, stride: u64, ops_max: u64, duration_ns: u64, patience_ns: u64, stop_at: u64,
        reserved: u64, ops: u64, begin_ns: u64, end_ns: u64, polls: u64, empty_polls: u64, in_flight_max: u32,
        status: u32, vendor: u32, failed_lane: u32,
    }
    tkr_stats { lane: u32, reserved: u32, ops: u64, now_ns: u64, running: u32, status: u32 }
    tkr_hist {
        lane: u32, flags: u32, bins_at: u64, samples: u64, min_ns: u64, max_ns: u64, sum_ns: u64,
    }
    tkr_peek { offset: u64, bytes: u64, at: u64, flags: u32, reserved: u32 }
}

zeroed! { tkr_setup tkr_lane tkr_connect tkr_flow tkr_run tkr_stats tkr_hist tkr_peek }

/// Encodes a call's number like `_IOC` of `linux/ioctl.h`.
const fn call(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | 0x74 << 8 | number
}

const NONE: u32 = 0;
const WRITE: u32 = 1;
const BOTH: u32 = 3;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Compiles a program that prints the header's values, and compares all of them.
    #[test]
    fn the_declarations_match_the_header() {
        let (mut program, mut ours) = (String::new(), String::new());
        program.push_str("#include <stddef.h>\n#include <stdio.h>\n#include \"tonnage_kread.h\"\nint main(void) {\n");
        for (name, (value, size)) in values().into_iter().chain(layouts()) {
            let (asked, value) = match (name.strip_prefix("struct "), name.split_once('.')) {
                (Some(_), _) => (format!("sizeof({name})"), size),
                (_, Some((name, field))) => (format!("offsetof(struct {name}, {field})"), value),
                _ => (name.clone(), value),
            };
            writeln!(
                program,
                "printf(\"{name} %llu\\n\", (unsigned long long){asked});"
            )
            .unwrap();
            writeln!(ours, "{name} {value}").unwrap();
        }
        program.push_str("}\n");
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("says.c"), folder.path().join("says"));
        std::fs::write(&source, program).unwrap();
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/tonnage_kread");
        let compiled = Command::new("cc")
            .arg("-I")
            .args([&header, &source])
            .arg("-o")
            .arg(&binary)
            .status()
            .unwrap();
        assert!(compiled.success());
        let said = Command::new(&binary).output().unwrap().stdout;
        assert_eq!(String::from_utf8(said).unwrap(), ours);
    }

    /// No structure has padding, because padding bytes would be neither checked nor zero.
    #[test]
    fn structures_have_no_padding() {
        let named = 4 * 2 + 64 + 4 * 6 + 16 + 4 * 4;
        assert_eq!(size_of::<tkr_setup>(), named);
        assert_eq!(size_of::<tkr_lane>(), 16);
        assert_eq!(size_of::<tkr_connect>(), 16 + 16 + 8 + 2 + 8 + 6);
        assert_eq!(size_of::<tkr_flow>(), 8 + 5 * 8 + 8 + 8);
        assert_eq!(size_of::<tkr_run>(), 8 * 4 + 8 * 8 + 5 * 8 + 4 * 4);
        assert_eq!(size_of::<tkr_stats>(), 8 + 16 + 8);
        assert_eq!(size_of::<tkr_hist>(), 8 + 5 * 8);
        assert_eq!(size_of::<tkr_peek>(), 24 + 8);
    }
}
