//! Asking something that may never answer, such as a dead file server, without waiting for ever.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Time for a driver that is asked: one that takes longer to start is not waited for.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

/// The answer of `question`, or `None` when it takes longer than `timeout` (or cannot be asked at all, for want of a
/// thread). Its thread is then left behind: it hangs inside the kernel or a library and cannot be stopped.
pub(super) fn within<T: Send + 'static>(
    timeout: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = mpsc::channel();
    let asked = thread::Builder::new().name("devices".to_owned());
    // Nobody listens any more when the answer comes too late, which is no fault.
    asked.spawn(move || drop(answer.send(question()))).ok()?;
    answered.recv_timeout(timeout).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_time_is_given_and_a_late_one_is_not() {
        assert_eq!(within(Duration::from_secs(10), || 7), Some(7));
        let (never, wait) = mpsc::channel::<()>();
        let late = within(Duration::from_millis(10), move || wait.recv().is_ok());
        assert_eq!(late, None);
        drop(never);
    }
}
