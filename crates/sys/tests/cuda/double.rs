//! The double of a driver's library, NVIDIA's or AMD's: `double.c`, compiled by the C compiler of the machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A copy of the double, which no other one shares anything with. It is removed when this is dropped.
pub struct Double {
    directory: tempfile::TempDir,
    /// Name of the file.
    file: &'static str,
}

/// Name of NVIDIA's library.
const CUDA: &str = "libcuda.so.1";

impl Double {
    /// A double that does as the lines say, which `double.c` lists; `None`, and a visible skip, without a C compiler.
    pub fn with(lines: &str) -> Option<Self> {
        static BYTES: OnceLock<Option<Vec<u8>>> = OnceLock::new();
        let bytes = BYTES.get_or_init(|| compiled(&[]));
        Some(Self::of(bytes.as_ref()?, CUDA, lines))
    }

    /// A double of AMD's runtime and of its compiler.
    #[allow(
        dead_code,
        reason = "not every test that includes this file has a use for it"
    )]
    pub fn hip(lines: &str) -> Option<Self> {
        static BYTES: OnceLock<Option<Vec<u8>>> = OnceLock::new();
        let bytes = BYTES.get_or_init(|| compiled(&["-DHIP"]));
        Some(Self::of(bytes.as_ref()?, "libamdhip64.so.6", lines))
    }

    /// A double of a driver that lacks the newest call.
    #[allow(
        dead_code,
        reason = "not every test that includes this file has a use for it"
    )]
    pub fn old(lines: &str) -> Option<Self> {
        Some(Self::of(&compiled(&["-DOLD_DRIVER"])?, CUDA, lines))
    }

    fn of(bytes: &[u8], file: &'static str, lines: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(file), bytes).unwrap();
        std::fs::write(directory.path().join(format!("{file}.conf")), lines).unwrap();
        Self { directory, file }
    }

    /// The file to load.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(self.file)
    }
}

/// The library's bytes.
fn compiled(more: &[&str]) -> Option<Vec<u8>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sys/tests/cuda/double.c");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("double.so");
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o"])
        .arg(&file)
        .args(more)
        .arg(source)
        .args(["-lpthread", "-ldl"])
        .output();
    match output {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "the double does not compile: {said}"
            );
            Some(std::fs::read(file).unwrap())
        }
        Err(error) => {
            println!(
                "skip: no C compiler for the double of the driver (apt-get install gcc): {error}"
            );
            None
        }
    }
}
