//! Handles bugs and exhausted memory. Each prints one line with the rank and advice. Expected failures are a
//! [`tonnage_units::Error`] instead.

use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

use tonnage_sys::out_of_memory;
use tonnage_units::message::truncate_message;

use crate::command::{env, program};

/// Installs the panic hook. A panic in any thread prints one line and ends the process at once. An orderly shutdown is
/// impossible, because other threads may wait for the thread that panicked. Other ranks notice a lost rank, as after a
/// SIGKILL.
pub fn prepare() {
    out_of_memory::introduce(who());
    let is_ending = AtomicBool::new(false);
    std::panic::set_hook(Box::new(move |panic| {
        while is_ending.swap(true, Ordering::SeqCst) {
            // The first thread that panicked prints the line and ends the process, so all others only wait.
            std::thread::park();
        }
        let line = describe(out_of_memory::who(), panic);
        out_of_memory::end_with_line(format!("{}\n", truncate_message(&line)).as_bytes());
    }));
}

/// Describes this process: its rank, if its environment has one, and its host. A rank that ssh started learns its
/// number later.
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
    let what = what.unwrap_or("a panic without a message");
    // The message must be a single line.
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let program = program();
    let place = panic.location().map_or_else(String::new, |place| {
        format!(" at {}:{}", place.file(), place.line())
    });
    format!(
        "error: {who}: internal error{place}: {what}. This is a bug of tonnage {} ({}): please report this line and the \
         command to the distributor of your tonnage",
        program.version, program.git_revision
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variable that makes a process of this test panic.
    const PANICS: &str = "TONNAGE_TEST_PANICS";

    /// Exit code of processes that panic in this test.
    const ENDS_WITH: u8 = 7;

    /// Panics in a thread with this name. Runs in a process that the test has started for this.
    fn panic_in(thread: &str) {
        out_of_memory::end_with(ENDS_WITH);
        prepare();
        let bug = || panic!("a bug\nof two lines");
        if thread == "main" {
            bug();
        }
        let thread = std::thread::Builder::new().name(thread.into());
        drop(thread.spawn(bug));
        // The main thread waits, as if it were stuck in a library.
        std::thread::sleep(std::time::Duration::from_secs(600));
    }

    #[test]
    fn a_process_that_panics_ends_with_one_line_and_its_code() {
        if let Ok(thread) = std::env::var(PANICS) {
            panic_in(&thread);
        }
        let this = "last_resort::tests::a_process_that_panics_ends_with_one_line_and_its_code";
        for thread in ["main", "control", "thread 1"] {
            let mut process = std::process::Command::new(std::env::current_exe().unwrap());
            process
                .args(["--exact", this, "--nocapture"])
                .env(PANICS, thread);
            let ended = process.output().unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(
                ended.status.code(),
                Some(ENDS_WITH.into()),
                "{thread}: {said}"
            );
            let lines: Vec<_> = said.lines().collect();
            let [line] = lines[..] else {
                panic!("{thread}: {said}")
            };
            assert!(
                line.starts_with("error: ") && line.contains(": internal error at "),
                "{line}"
            );
            assert!(
                line.contains(": a bug of two lines. ") && line.contains("please report"),
                "{line}"
            );
        }
    }
}
