//! The last resort: a bug that ends in a panic, and memory that has run out, are one line each that says which rank it
//! was and what to do. Nothing is meant to come here; what goes wrong by itself is a [`tonnage_units::Error`].

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tonnage_sys::out_of_memory;
use tonnage_units::message::say;

use crate::command::{env, program};

/// The thread that answers for this rank. Without it nobody would notice that the main thread waits in vain.
const CONTROL: &str = "control";

/// Code of a process that has come here.
static CODE: AtomicU8 = AtomicU8::new(1);

/// Sets the code of a process that comes here. For some who read it 1 is a verdict.
pub fn end_with(code: u8) {
    CODE.store(code, Ordering::SeqCst);
    out_of_memory::end_with(code);
}

/// Runs the program. A panic of the main thread ends it as any other failure does.
pub fn guard(program: impl FnOnce() -> ExitCode) -> ExitCode {
    out_of_memory::introduce(who());
    let said = AtomicBool::new(false);
    std::panic::set_hook(Box::new(move |panic| {
        // Further panics of this process follow from the first.
        if !said.swap(true, Ordering::SeqCst) {
            say(&describe(out_of_memory::who(), panic));
        }
        if std::thread::current().name() == Some(CONTROL) {
            std::process::exit(CODE.load(Ordering::SeqCst).into());
        }
    }));
    catch_unwind(AssertUnwindSafe(program)).unwrap_or_else(|_| CODE.load(Ordering::SeqCst).into())
}

/// This process in words: its rank, as far as its environment tells, and its host. A rank that ssh has started learns
/// later which one it is.
fn who() -> String {
    let host = tonnage_sys::host::name();
    match tonnage_ranks::detect(&env, None) {
        Ok(Some(identity)) => format!("rank {} on {host}", identity.rank),
        _ => host,
    }
}

fn describe(who: &str, panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let what = payload.downcast_ref::<&str>().copied();
    let what = what.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let what = what.unwrap_or("a panic without words");
    // A message is one line.
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let program = program();
    let place = panic.location().map_or_else(String::new, |place| {
        format!(" at {}:{}", place.file(), place.line())
    });
    format!(
        "error: {who}: internal error{place}: {what}. This is a bug of tonnage {} ({}): please report this line and the \
         command to whoever you have tonnage from",
        program.version, program.git_revision
    )
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_panic_is_one_line_and_a_failure() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let before = std::panic::take_hook();
        let name = std::thread::current().id();
        let code = guard(|| {
            // In place of the hook that writes to standard error, one that keeps the line.
            std::panic::set_hook(Box::new(move |panic| {
                if std::thread::current().id() == name {
                    kept.lock().unwrap().push(describe("rank 1 on n7", panic));
                }
            }));
            panic!("a bug\nof two lines");
        });
        std::panic::set_hook(before);
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), 1);
        let line = &lines[0];
        assert!(
            line.starts_with("error: rank 1 on n7: internal error at "),
            "{line}"
        );
        assert!(
            line.contains(": a bug of two lines. ") && line.contains("please report"),
            "{line}"
        );
    }

    /// Variable that makes a process of this test one that panics.
    const PANICS: &str = "TONNAGE_TEST_PANICS";

    /// The code of processes that come here, in this test.
    const ENDS_WITH: u8 = 7;

    /// Panics as it is told to, where the test has started it for that.
    fn panic_as_told(which: &str) -> ! {
        end_with(ENDS_WITH);
        let code = guard(|| {
            if which == CONTROL {
                let control = std::thread::Builder::new().name(CONTROL.into());
                drop(control.spawn(|| panic!("a bug in the thread")));
                // The main thread is stuck in a library, and nobody else would end this process.
                std::thread::sleep(std::time::Duration::from_secs(600));
            }
            let worker = std::thread::Builder::new().name("worker 1".into());
            let worker = worker.spawn(|| panic!("a bug in the thread")).unwrap();
            assert!(worker.join().is_err());
            panic!("the main thread fails because of it");
        });
        let is_right = format!("{code:?}") == format!("{:?}", ExitCode::from(ENDS_WITH));
        std::process::exit(if is_right { ENDS_WITH.into() } else { 99 })
    }

    /// A process says its first panic and no other, ends with the code that it is to have, and does so too where the
    /// panic is the control thread's and the main thread never returns.
    #[test]
    fn a_process_that_panics_ends_with_one_line_and_its_code() {
        if let Ok(which) = std::env::var(PANICS) {
            panic_as_told(&which);
        }
        let this = "last_resort::tests::a_process_that_panics_ends_with_one_line_and_its_code";
        for which in ["main", CONTROL] {
            let mut process = std::process::Command::new(std::env::current_exe().unwrap());
            process
                .args(["--exact", this, "--nocapture"])
                .env(PANICS, which);
            let ended = process.output().unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(
                ended.status.code(),
                Some(ENDS_WITH.into()),
                "{which}: {said}"
            );
            let lines: Vec<_> = said.lines().collect();
            let [line] = lines[..] else {
                panic!("{which}: {said}")
            };
            assert!(line.starts_with("error: "), "{line}");
            assert!(
                line.contains(": a bug in the thread. This is a bug of"),
                "{line}"
            );
        }
    }
}
