//! Simulated driver libraries, compiled by the C compiler of the machine: `double.c` simulates NVIDIA's driver or AMD's
//! runtime, and `double_nvml.c` simulates NVIDIA's management library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A copy of the simulated library that shares nothing with other copies. Dropping this value removes the copy.
pub struct Double {
    directory: tempfile::TempDir,
    /// Name of the file.
    name: &'static str,
}

/// Names of the real libraries, which the simulated libraries use too.
const LIBCUDA: &str = "libcuda.so.1";
const LIBNVML: &str = "libnvidia-ml.so.1";
const LIBHIP: &str = "libamdhip64.so.6";

#[allow(
    dead_code,
    reason = "not every test that includes this file has a use for all of it"
)]
impl Double {
    /// Makes a simulated driver that these lines configure (`double.c` lists them). Without a C compiler, prints a skip
    /// and returns `None`.
    pub fn with(lines: &str) -> Option<Self> {
        static BYTES: OnceLock<Option<Vec<u8>>> = OnceLock::new();
        let bytes = BYTES.get_or_init(|| compiled("double.c", &[]));
        Some(Self::of(LIBCUDA, bytes.as_ref()?, lines))
    }

    /// Makes a simulated management library that these lines configure (`double_nvml.c` lists them).
    pub fn nvml(lines: &str) -> Option<Self> {
        Some(Self::of(LIBNVML, &compiled("double_nvml.c", &[])?, lines))
    }

    /// Makes a simulated AMD runtime and compiler.
    pub fn hip(lines: &str) -> Option<Self> {
        static BYTES: OnceLock<Option<Vec<u8>>> = OnceLock::new();
        let bytes = BYTES.get_or_init(|| compiled("double.c", &["-DHIP"]));
        Some(Self::of(LIBHIP, bytes.as_ref()?, lines))
    }

    /// Makes a simulated driver that lacks a call that CUDA 11.0 introduced.
    pub fn old(lines: &str) -> Option<Self> {
        let bytes = compiled("double.c", &["-DOLD_DRIVER"])?;
        Some(Self::of(LIBCUDA, &bytes, lines))
    }

    fn of(name: &'static str, bytes: &[u8], lines: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let double = Self { directory, name };
        std::fs::write(double.path(), bytes).unwrap();
        let settings = double.directory.path().join(format!("{name}.conf"));
        std::fs::write(settings, lines).unwrap();
        double
    }

    /// The file to load.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(self.name)
    }
}

/// Returns the library built from a source, as bytes.
fn compiled(source: &str, more: &[&str]) -> Option<Vec<u8>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sys/tests/cuda");
    let source = sources.join(source);
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
