//! Loops that time collective calls of a backend in this process. The clock is read twice per call, or twice per series
//! if calls follow each other directly. These reads are short compared with a call.

use tonnage_sys::clock::Clock;
use tonnage_units::Result;

/// Begin and end of one call, or of a series of calls, on one rank, in nanoseconds on its clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallSpan {
    /// Start of the call, or of the first call of the series.
    pub begin_ns: u64,
    /// End of the call, or of the last call of the series.
    pub end_ns: u64,
}

impl CallSpan {
    /// Duration of the call or series.
    pub fn took_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// Makes this rank's collective calls.
pub trait Caller {
    /// Waits until all ranks have arrived, using the backend itself.
    fn align(&mut self) -> Result<()>;

    /// Makes one call.
    fn call(&mut self) -> Result<()>;
}

/// Makes `iterations` calls, each aligned and timed separately. `before` is called before each call with its number.
pub fn time_aligned_calls(
    caller: &mut dyn Caller,
    clock: &Clock,
    iterations: u64,
    before: &mut dyn FnMut(u64) -> Result<()>,
    spans: &mut Vec<CallSpan>,
) -> Result<()> {
    for iteration in 0..iterations {
        before(iteration)?;
        caller.align()?;
        let begin_ns = clock.now_ns();
        caller.call()?;
        let end_ns = clock.now_ns();
        spans.push(CallSpan { begin_ns, end_ns });
    }
    Ok(())
}

/// Makes `iterations` calls, one directly after the other. A single span covers the first begin to the last end.
pub fn time_back_to_back_calls(
    caller: &mut dyn Caller,
    clock: &Clock,
    iterations: u64,
    before: &mut dyn FnMut(u64) -> Result<()>,
    spans: &mut Vec<CallSpan>,
) -> Result<()> {
    before(0)?;
    caller.align()?;
    let begin_ns = clock.now_ns();
    for _ in 0..iterations {
        caller.call()?;
    }
    let end_ns = clock.now_ns();
    spans.push(CallSpan { begin_ns, end_ns });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use tonnage_units::Error;

    /// Records the calls it receives, and fails at call `fails_at`.
    struct CallLog<'a> {
        asked: &'a RefCell<Vec<&'static str>>,
        calls: u64,
        fails_at: u64,
    }

    impl Caller for CallLog<'_> {
        fn align(&mut self) -> Result<()> {
            self.asked.borrow_mut().push("align");
            Ok(())
        }

        fn call(&mut self) -> Result<()> {
            self.asked.borrow_mut().push("call");
            self.calls += 1;
            match self.calls == self.fails_at {
                true => Err(Error::Failed("as asked".into())),
                false => Ok(()),
            }
        }
    }

    type Loop = fn(
        &mut dyn Caller,
        &Clock,
        u64,
        &mut dyn FnMut(u64) -> Result<()>,
        &mut Vec<CallSpan>,
    ) -> Result<()>;

    fn run(of: Loop, fails_at: u64) -> (Vec<&'static str>, Vec<CallSpan>, Result<()>) {
        let asked = RefCell::new(Vec::new());
        let mut log = CallLog {
            asked: &asked,
            calls: 0,
            fails_at,
        };
        let mut before = |_| {
            asked.borrow_mut().push("before");
            Ok(())
        };
        let mut spans = Vec::with_capacity(3);
        let ended = of(&mut log, &Clock::new(), 3, &mut before, &mut spans);
        (asked.take(), spans, ended)
    }

    #[test]
    fn a_span_takes_the_time_between_its_ends() {
        let span = |begin_ns, end_ns| CallSpan { begin_ns, end_ns };
        assert_eq!(span(5, 12).took_ns(), 7);
        assert_eq!(span(12, 5).took_ns(), 0);
    }

    #[test]
    fn each_call_is_prepared_aligned_and_timed_alone() {
        let (asked, spans, ended) = run(time_aligned_calls, 0);
        assert!(ended.is_ok());
        assert_eq!(asked, ["before", "align", "call"].repeat(3));
        assert_eq!(spans.len(), 3);
        assert!(spans.iter().all(|span| span.begin_ns <= span.end_ns));
        assert!(spans.windows(2).all(|two| two[0].end_ns <= two[1].begin_ns));
    }

    #[test]
    fn calls_that_follow_each_other_have_one_time() {
        let (asked, spans, ended) = run(time_back_to_back_calls, 0);
        assert!(ended.is_ok());
        assert_eq!(asked, ["before", "align", "call", "call", "call"]);
        assert_eq!(spans.len(), 1);
    }

    #[test]
    fn a_call_that_fails_ends_the_loop_and_has_no_time() {
        let (asked, spans, ended) = run(time_aligned_calls, 2);
        assert!(ended.is_err());
        assert_eq!((asked.len(), spans.len()), (6, 1));
        assert!(run(time_back_to_back_calls, 2).1.is_empty());
    }
}
