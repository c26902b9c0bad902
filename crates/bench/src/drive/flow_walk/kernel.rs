//! The orders of the kernel's module, which a C compiler makes of its own file here: the same slots as in user space.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::*;

/// Slots of a flow that one comparison asks for.
const STEPS: u64 = 40;

/// Needs of the module's file, which the kernel's headers have.
const KERNEL: &str = "#include <stdbool.h>\n#include <stdio.h>\ntypedef unsigned long long u64;\ntypedef unsigned int u32;\n\
    static inline int fls64(u64 x) { return x ? 64 - __builtin_clzll(x) : 0; }\n\
    static inline u64 mul_u64_u64_shr(u64 a, u64 b, unsigned int s) { return ((unsigned __int128)a * b) >> s; }\n\
    #include \"walk.h\"\n\
    static void walk(u32 local, u32 remote, u64 slots, u64 seed, u64 begin, int steps) {\n\
    struct tkr_walk w; u64 a, b; tkr_walk_init(&w, local, remote, slots, seed, begin);\n\
    while (steps--) { tkr_walk_next(&w, &a, &b); printf(\"%llu %llu\\n\", a, b); } }\n";

fn number(addresses: Addresses) -> &'static str {
    match addresses {
        Addresses::Fixed => "TKR_FIXED",
        Addresses::Sequential => "TKR_SEQUENTIAL",
        Addresses::Random => "TKR_RANDOM",
        Addresses::Permuted => "TKR_PERMUTED",
    }
}

#[test]
fn the_kernel_goes_through_the_same_slots() {
    let (mut program, mut ours) = (format!("{KERNEL}int main(void) {{\n"), String::new());
    for local in Addresses::ALL {
        for remote in Addresses::ALL {
            for (slots, seed, begin) in [
                (1, 0, 0),
                (7, 5, 0),
                (12, u64::MAX, 1_000_003),
                (65_536, 9, 65_530),
                (1 << 40, 1 << 63, u64::MAX - 3),
            ] {
                let (one, other) = (number(local), number(remote));
                writeln!(
                    program,
                    "walk({one}, {other}, {slots}ull, {seed}ull, {begin}ull, {STEPS});"
                )
                .unwrap();
                let mut walk = FlowWalk::over((local, remote), slots, seed);
                walk.skip(begin);
                for _ in 0..STEPS {
                    let (here, there) = walk.next_slots();
                    writeln!(ours, "{here} {there}").unwrap();
                }
            }
        }
    }
    program.push_str("}\n");
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("walk.c"), folder.path().join("walk"));
    std::fs::write(&source, program).unwrap();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/tonnage_kread");
    let compiled = Command::new("cc")
        .arg("-I")
        .args([&module, &source])
        .arg("-o")
        .arg(&binary)
        .status()
        .unwrap();
    assert!(compiled.success());
    let said = Command::new(&binary).output().unwrap().stdout;
    assert!(String::from_utf8(said).unwrap() == ours);
}
