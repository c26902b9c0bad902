//! Assembles the kernels' PTX texts with NVIDIA's assembler, for each architecture that it supports.

use std::path::{Path, PathBuf};
use std::process::Command;

use tonnage_sys::cuda::{COPY_PTX, PATTERN_PTX};

/// The environment variable that names the assembler.
const VARIABLE: &str = "TONNAGE_PTXAS";

/// Architectures of CUDA 11 to 13; each assembler supports some of them. The assembler of CUDA 12.9 lacks sm_88 and
/// sm_110. The assembler of 13.5 begins at sm_75 and no longer has sm_101, which was renamed to sm_110.
const ARCHITECTURES: [u32; 21] = [
    50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121,
];

fn assembler() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let found = named.map_or_else(|| "ptxas".into(), PathBuf::from);
    let runs = Command::new(&found).arg("--version").output();
    runs.is_ok_and(|output| output.status.success())
        .then_some(found)
}

#[test]
fn every_architecture_takes_the_text() {
    let Some(assembler) = assembler() else {
        println!(
            "skip: no ptxas (pip install nvidia-cuda-nvcc-cu12, and name its bin/ptxas in {VARIABLE})"
        );
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for ptx in [PATTERN_PTX, COPY_PTX] {
        let taken = architectures_that_take(&assembler, ptx, directory.path());
        assert!(taken > 0, "the assembler knows none of {ARCHITECTURES:?}");
        println!("{taken} of {} architectures", ARCHITECTURES.len());
    }
    // The assembler rejects wrong texts.
    let text = directory.path().join("text.ptx");
    std::fs::write(&text, PATTERN_PTX.replace("xor.b64", "xor.b63")).unwrap();
    let refused = Command::new(&assembler)
        .arg(&text)
        .current_dir(&directory)
        .output()
        .unwrap();
    assert!(!refused.status.success());
}

/// Returns the number of architectures for which the assembler accepts a text. It must accept the text for every
/// architecture that it supports.
fn architectures_that_take(assembler: &Path, ptx: &str, directory: &Path) -> u32 {
    let text = directory.join("text.ptx");
    std::fs::write(&text, ptx).unwrap();
    let mut taken = 0;
    for architecture in ARCHITECTURES {
        let output = Command::new(assembler)
            .args(["--gpu-name", &format!("sm_{architecture}"), "-o"])
            .arg(directory.join("text.cubin"))
            .arg(&text)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // The assembler is too old or too new for this architecture.
        if said.contains("'gpu-name'") {
            continue;
        }
        assert!(
            output.status.success() && said.is_empty(),
            "sm_{architecture}: {said}"
        );
        taken += 1;
    }
    taken
}
