//! Compiles the kernels' HIP text with Clang for generations of AMD GPUs. hiprtc, which compiles them for users, is
//! based on Clang. Its header is missing without ROCm, so the few declarations that the text needs are repeated here.

use std::path::{Path, PathBuf};
use std::process::Command;

use tonnage_sys::hip::{COPY_HIP, PATTERN_HIP};

/// The environment variable that names the compiler.
const VARIABLE: &str = "TONNAGE_HIP_CLANG";

/// Generations from Fiji (2015) on. Clang 15 supports all of them; other versions report the generations that they
/// lack.
const GENERATIONS: [&str; 6] = ["gfx803", "gfx906", "gfx908", "gfx90a", "gfx1030", "gfx1100"];

const HEADER: &str = "
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define PLACE(name, value) struct name##_type { struct one { \\
    __device__ operator unsigned() const { return value; } } x; }; static const __device__ name##_type name
PLACE(threadIdx, __builtin_amdgcn_workitem_id_x());
PLACE(blockIdx, __builtin_amdgcn_workgroup_id_x());
PLACE(blockDim, __builtin_amdgcn_workgroup_size_x());
PLACE(gridDim, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x());
static inline __device__ void atomicMin(unsigned long long *at, unsigned long long x)
{ __atomic_fetch_min(at, x, __ATOMIC_RELAXED); }
static inline __device__ void atomicMax(unsigned long long *at, unsigned long long x)
{ __atomic_fetch_max(at, x, __ATOMIC_RELAXED); }
";

/// Returns a Clang that compiles for AMD GPUs.
fn compiler() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let found = named.map_or_else(|| "clang".into(), PathBuf::from);
    let targets = Command::new(&found).arg("--print-targets").output().ok()?;
    let targets = String::from_utf8_lossy(&targets.stdout).into_owned();
    targets.contains("amdgcn").then_some(found)
}

#[test]
fn every_generation_takes_the_text() {
    let Some(compiler) = compiler() else {
        println!(
            "skip: no clang for GPUs of AMD (apt-get install clang-15, and name it in {VARIABLE})"
        );
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for text in [PATTERN_HIP, COPY_HIP] {
        let mut taken = 0;
        for generation in GENERATIONS {
            let said = complaints(&compiler, text, generation, directory.path());
            if said.contains("invalid target ID") {
                continue;
            }
            assert_eq!(said, "", "{generation}");
            taken += 1;
        }
        assert!(taken > 0, "the compiler knows none of {GENERATIONS:?}");
        println!("{taken} of {} generations", GENERATIONS.len());
    }
    // The compiler rejects wrong texts.
    let spoiled = PATTERN_HIP.replace("u64 word;", "u64 wort;");
    let said = complaints(&compiler, &spoiled, "gfx90a", directory.path());
    assert!(said.contains("undeclared identifier"), "{said}");
}

/// Returns the compiler's complaints about a text.
fn complaints(compiler: &Path, text: &str, generation: &str, directory: &Path) -> String {
    let (header, source) = (directory.join("header.h"), directory.join("text.hip"));
    std::fs::write(&header, HEADER).unwrap();
    std::fs::write(&source, text).unwrap();
    let output = Command::new(compiler)
        .args([
            "-x",
            "hip",
            "--offload-device-only",
            "-nogpulib",
            "-nogpuinc",
        ])
        .args(["-std=c++14", "-O3", "-Wall", "-Wextra", "-S", "-o"])
        .arg(directory.join("text.s"))
        .arg(format!("--offload-arch={generation}"))
        .arg("-include")
        .args([&header, &source])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}
