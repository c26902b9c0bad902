//! Cached verdicts. They are printed again while they are recent, so that a prolog right after a check takes no time.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tonnage_judge::check::reason::truncate_before;
use tonnage_judge::check::{CHECK_FORMAT, CheckReport, CheckVerdict};
use tonnage_plan::given::checksum;
use tonnage_units::{Error, Result};

use super::clock::unix_ns;
use super::task::CheckTask;
use crate::args::check::CheckArgs;
use crate::command::atomic_file::replace;

/// Permission bits that let other users write to a directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A file of verdicts.
pub struct Cache {
    file: PathBuf,
    age_s_max: f64,
}

impl Cache {
    /// Opens the cache of this check with exactly these options. Returns `None` if no cache was requested.
    pub fn open(task: &CheckTask) -> Result<Option<Self>> {
        let args = &task.args;
        let (Some(cache), Some(state)) = (args.cache, &args.state) else {
            return Ok(None);
        };
        check_directory(state)?;
        let asked = CheckArgs {
            output: None,
            nodelist: None,
            force: false,
            cache: None,
            state: None,
            exit: tonnage_judge::check::ExitStyle::Plain,
            ..args.clone()
        };
        let host = tonnage_sys::host::name();
        let key = checksum(&format!("{asked:?}\n{host}\n{}", task.baseline_text));
        Ok(Some(Self {
            file: state.join(format!("check-{key}.json")),
            age_s_max: cache.0 as f64 / 1e9,
        }))
    }

    /// Returns the cached verdicts if they are recent enough. An unreadable file counts as missing.
    pub fn recent(&self) -> Option<CheckReport> {
        let text = text_of(&self.file).ok()?;
        let mut report: CheckReport = serde_json::from_str(&text)
            .inspect_err(|error| log::warn!("{}: {error}", self.file.display()))
            .ok()?;
        // If the clock was set back, the verdicts do not count as recent.
        let age_s = unix_ns().checked_sub(report.time_unix_ns)? as f64 / 1e9;
        if age_s > self.age_s_max || report.format != CHECK_FORMAT {
            return None;
        }
        report.cached_for_s = Some(age_s);
        report.reason = truncate_before(&report.reason, &format!(", {age_s:.0} s ago"));
        Some(report)
    }

    /// Stores verdicts. Errors are not stored, because the next check may succeed.
    pub fn store(&self, report: &CheckReport) -> Result<()> {
        if report.verdict == CheckVerdict::Error {
            return Ok(());
        }
        let text = serde_json::to_string(report)
            .map_err(|error| Error::Failed(format!("the verdicts have no JSON form: {error}")))?;
        let kept = replace(&self.file, &text, true);
        match report.verdict {
            // If the disk is full, a failure must stay a failure, and not become an error.
            CheckVerdict::Fail => {
                kept.inspect_err(|error| log::error!("{error}")).ok();
                Ok(())
            }
            _ => kept,
        }
    }
}

fn check_directory(path: &Path) -> Result<()> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).map_err(|error| {
        Error::Usage(format!(
            "--state {shown} cannot be used: {error}; create it with mode 0700"
        ))
    })?;
    let own = rustix::process::geteuid().as_raw();
    match () {
        () if !metadata.is_dir() => {
            Err(Error::Usage(format!("--state {shown} is not a directory")))
        }
        () if metadata.mode() & WRITABLE_BY_OTHERS != 0 => Err(Error::Usage(format!(
            "--state {shown} may be written by others (mode {:04o}), who could forge verdicts: chmod go-w {shown}",
            metadata.mode() & 0o7777
        ))),
        () if metadata.uid() != own && metadata.uid() != 0 => Err(Error::Usage(format!(
            "--state {shown} belongs to another user, who could forge verdicts: name a directory of your own"
        ))),
        () => Ok(()),
    }
}

/// Reads a file. The error names the file.
fn text_of(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::io(format!("cannot read {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |mode| {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            check_directory(folder.path())
        };
        assert!(mode(0o700).is_ok() && mode(0o755).is_ok());
        for wrong in [0o777, 0o720, 0o702] {
            let message = mode(wrong).unwrap_err().to_string();
            assert!(message.contains("may be written by others"), "{message}");
        }
        mode(0o700).unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(
            check_directory(&file)
                .unwrap_err()
                .to_string()
                .contains("not a directory")
        );
        assert!(
            check_directory(&folder.path().join("none"))
                .unwrap_err()
                .exit_code()
                == 2
        );
    }

    /// If a directory cannot be written, for example because the disk is full, a pass must become an error. A failure
    /// must stay a failure.
    #[test]
    fn verdicts_that_cannot_be_stored_are_errors_unless_they_fail() {
        let folder = tempfile::tempdir().unwrap();
        let kept = |file: PathBuf, verdict| {
            let report = CheckReport {
                format: CHECK_FORMAT,
                program: "1".to_owned(),
                hosts: vec!["n1".to_owned()],
                baseline: "f.toml".to_owned(),
                time_unix_ns: unix_ns(),
                budget_s: 20.0,
                took_s: 9.0,
                verdict,
                reason: format!("{verdict}: x"),
                failed_hosts: Vec::new(),
                entries: Vec::new(),
                not_measured: Vec::new(),
                cached_for_s: None,
            };
            let cache = Cache {
                file,
                age_s_max: 600.0,
            };
            let kept = cache.store(&report);
            (kept, cache.recent().map(|told| told.verdict))
        };
        for (verdict, is_told) in [
            (CheckVerdict::Pass, true),
            (CheckVerdict::Warn, true),
            (CheckVerdict::Fail, false),
            (CheckVerdict::Error, false),
        ] {
            let (lost, young) = kept(folder.path().join("none/check.json"), verdict);
            assert_eq!((lost.is_err(), young), (is_told, None), "{verdict}");
            let (fine, young) = kept(folder.path().join("check.json"), verdict);
            // Errors are not stored, so the cache still has the previous failure.
            let expected = match verdict {
                CheckVerdict::Error => CheckVerdict::Fail,
                verdict => verdict,
            };
            assert_eq!((fine.is_ok(), young), (true, Some(expected)), "{verdict}");
        }
    }
}
