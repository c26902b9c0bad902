//! Calls that may never return, such as statfs on a dead file server, with a timeout.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Time limit for a driver's answer. A driver that needs longer to start is treated as missing.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the answer of `question`, or `None` if it takes longer than `timeout` or no thread can be started. After a
/// timeout the thread is abandoned, because a thread that hangs in the kernel or a library cannot be stopped.
pub(super) fn with_timeout<T: Send + 'static>(
    timeout: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = mpsc::channel();
    let asked = thread::Builder::new().name("devices".to_owned());
    // Sending fails only after the timeout, when the receiver is gone.
    asked.spawn(move || drop(answer.send(question()))).ok()?;
    answered.recv_timeout(timeout).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_time_is_given_and_a_late_one_is_not() {
        assert_eq!(with_timeout(Duration::from_secs(10), || 7), Some(7));
        let (never, wait) = mpsc::channel::<()>();
        let late = with_timeout(Duration::from_millis(10), move || wait.recv().is_ok());
        assert_eq!(late, None);
        drop(never);
    }
}
