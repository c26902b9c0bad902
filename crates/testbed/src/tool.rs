//! Runs system programs and classifies their failures; runs code in a network namespace.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Error, Result};

/// Error texts of system programs when the kernel or the container does not support a request. Only [`probe`]
/// interprets them this way. Elsewhere the same texts are failures, because a probe has succeeded before.
const LACKING: [&str; 5] = [
    "Operation not permitted",
    "Permission denied",
    "Operation not supported",
    "Unknown device type",
    "Specified qdisc kind is unknown",
];

/// Returns a command for a system program, with English messages. It also searches the sbin directories, because not
/// every user has them in PATH.
pub(crate) fn tool(program: impl AsRef<OsStr>) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    let mut command = Command::new(program);
    command
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

/// Runs a program with arguments separated by blanks, and returns its output.
pub(crate) fn run(program: &str, arguments: &str) -> Result<String> {
    output(tool(program).args(arguments.split_whitespace()))
}

/// Like [`run`], for requests that a machine may not support.
pub(crate) fn probe(program: &str, arguments: &str) -> Result<String> {
    run(program, arguments).map_err(|error| match error {
        Error::Failed(why) if LACKING.iter().any(|text| why.contains(text)) => Error::Unavailable(
            format!("this kernel or container does not support it: {why}"),
        ),
        other => other,
    })
}

/// Runs a command to its end, and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let what = describe(command);
    let output = command.output().map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            let name = command.get_program().display();
            Error::Unavailable(format!(
                "{name} is not installed{}",
                package_hint(command.get_program())
            ))
        } else {
            Error::Failed(format!("cannot run {what}: {error}"))
        }
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    Err(Error::Failed(format!(
        "{what} failed ({status}): {}",
        said.trim()
    )))
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Names the Debian package that has the program.
fn package_hint(program: &OsStr) -> String {
    let package = match program.to_str() {
        Some("ip" | "tc") => "iproute2",
        Some("nsenter" | "unshare") => "util-linux",
        Some("munged") => "munge",
        Some("sshd") => "openssh-server",
        Some("ssh" | "ssh-keygen") => "openssh-client",
        Some("slurmctld" | "slurmd" | "sinfo" | "srun" | "scancel") => "slurm-wlm",
        _ => return String::new(),
    };
    format!(" (on Debian or Ubuntu: apt-get install {package})")
}

/// Fails with [`Error::Unavailable`] if a program is not installed.
pub(crate) fn require(programs: &[&str]) -> Result<()> {
    let path = tool("sh")
        .get_envs()
        .find_map(|(name, value)| (name == "PATH").then_some(value).flatten())
        .map(OsStr::to_owned)
        .unwrap_or_default();
    for program in programs {
        if !std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
            return Err(Error::Unavailable(format!(
                "{program} is not installed{}",
                package_hint(OsStr::new(program))
            )));
        }
    }
    Ok(())
}

/// Runs `work` in a thread that has entered the namespace of this name.
pub(crate) fn within<T: Send>(space: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let path = Path::new("/run/netns").join(space);
    let failed = |error: String| Error::Failed(format!("cannot work in {space}: {error}"));
    let file = File::open(&path).map_err(|error| failed(error.to_string()))?;
    let done = std::thread::scope(|scope| {
        let work = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok::<T, Errno>(work())
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, work);
        thread.map(|thread| thread.join())
    });
    match done.map_err(|error| failed(format!("no thread was started: {error}")))? {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("the work panicked".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = require(&["sh", "tc-that-is-not-there"]).unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable(why) if why == "tc-that-is-not-there is not installed")
        );
        assert!(package_hint(OsStr::new("tc")).contains("apt-get install iproute2"));
        let error = run("program-that-is-not-there", "").unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
    }

    #[test]
    fn a_refusal_is_distinguished_from_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let saying = |text: &str| {
            let script = folder.path().join("script");
            std::fs::write(&script, format!("echo {text} >&2; exit 1")).unwrap();
            script.display().to_string()
        };
        let refused = saying("Operation not permitted");
        assert!(matches!(probe("sh", &refused), Err(Error::Unavailable(_))));
        // `run` reports the same text as a failure, because only probes depend on the machine's features.
        let again = run("sh", &refused);
        assert!(matches!(&again, Err(Error::Failed(why)) if why.contains("not permitted")));
        let failed = probe("sh", &saying("File exists"));
        assert!(matches!(failed, Err(Error::Failed(why)) if why.contains("File exists")));
    }
}
