//! Requirements that are not installed, and the store without ranks.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use tonnage_units::Error;

use super::*;

fn start(python: &str, backend: TorchBackend) -> Result<TorchWorker, WorkerFailure> {
    let settings = settings(python, backend);
    let mut all = run(1, move |rank| {
        let started = TorchWorker::start(&rank, settings.clone(), &|_| None);
        rank.close().unwrap();
        started
    });
    all.remove(0)
}

fn missing(python: &str, backend: TorchBackend) -> [String; 2] {
    match start(python, backend).map(|_| ()).map_err(Error::from) {
        Err(Error::Unavailable { why, how, .. }) => [why, how],
        other => panic!("{other:?}"),
    }
}

/// Returns a script that runs Python with these additional arguments.
fn wrapped(python: &str, arguments: &str) -> tempfile::TempPath {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "#!/bin/sh\nexec {python} {arguments} \"$@\"").unwrap();
    let path = file.into_temp_path();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

#[test]
fn a_missing_python_is_unavailable() {
    let [why, how] = missing("/nonexistent/python", TorchBackend::Gloo);
    assert!(why.contains("/nonexistent/python"), "{why}");
    assert!(how.contains("--python"), "{how}");
}

#[test]
fn a_missing_torch_comes_with_how_to_install_it() {
    // Without the directories of installed packages, no Python finds torch.
    let bare = wrapped("python3", "-S -I");
    let [why, how] = missing(bare.to_str().unwrap(), TorchBackend::Gloo);
    assert!(why.contains("No module named 'torch'"), "{why}");
    assert!(how.contains("-m pip install torch"), "{how}");
}

#[test]
fn a_program_other_than_python_shows_its_last_lines() {
    let failure = start("/bin/ls", TorchBackend::Gloo)
        .map(|_| ())
        .unwrap_err();
    let error = text(failure);
    assert!(
        error.contains("ended with code 2 while it loaded torch")
            || error.contains("ended with code 2 while it started"),
        "{error}"
    );
    assert!(error.contains("ls: "), "{error}");
}

#[test]
fn a_backend_that_torch_lacks_is_unavailable() {
    let Some(python) = python() else { return };
    let [why, how] = missing(&python, TorchBackend::Mpi);
    assert!(why.contains("was built without it (it has: gloo"), "{why}");
    assert!(how.contains("build PyTorch"), "{how}");
    let [_, how] = missing(&python, TorchBackend::Nccl);
    assert!(how.contains("CUDA") || how.contains("GPU"), "{how}");
}

#[test]
fn the_store_behaves_as_torch_expects() {
    let Some(python) = python() else { return };
    let script = [include_str!("../worker/store.py"), include_str!("store.py")].join("\n");
    let done = Command::new(python).args(["-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stderr}");
}
