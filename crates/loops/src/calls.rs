//! The loop that times collectives of backends inside this process. Iterations are few and long beside the clock reads,
//! of which there are two for each; where calls follow each other there are two for all of them.

use tonnage_sys::clock::Clock;
use tonnage_units::Result;

/// Begin and end of an iteration on one rank, nanoseconds on its clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallSpan {
    /// The call began.
    pub begin_ns: u64,
    /// The call ended.
    pub end_ns: u64,
}

impl CallSpan {
    /// Time of it.
    pub fn took_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// Whoever carries out the calls of this rank.
pub trait Caller {
    /// Waits until all ranks are here, by the caller's own means.
    fn align(&mut self) -> Result<()>;

    /// Carries out one call.
    fn call(&mut self) -> Result<()>;
}

/// Calls so often, each aligned and with its own time; `before` is called before each with its number.
pub fn aligned(
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

/// Calls so often, one call after the other: one span is from the first begin to the last end.
pub fn back_to_back(
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

    /// Writes down what is asked of it; fails at the call with this number.
    struct Noted<'a> {
        asked: &'a RefCell<Vec<&'static str>>,
        calls: u64,
        fails_at: u64,
    }

    impl Caller for Noted<'_> {
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
        let mut noted = Noted {
            asked: &asked,
            calls: 0,
            fails_at,
        };
        let mut before = |_| {
            asked.borrow_mut().push("before");
            Ok(())
        };
        let mut spans = Vec::with_capacity(3);
        let ended = of(&mut noted, &Clock::new(), 3, &mut before, &mut spans);
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
        let (asked, spans, ended) = run(aligned, 0);
        assert!(ended.is_ok());
        assert_eq!(asked, ["before", "align", "call"].repeat(3));
        assert_eq!(spans.len(), 3);
        assert!(spans.iter().all(|span| span.begin_ns <= span.end_ns));
        assert!(spans.windows(2).all(|two| two[0].end_ns <= two[1].begin_ns));
    }

    #[test]
    fn calls_that_follow_each_other_have_one_time() {
        let (asked, spans, ended) = run(back_to_back, 0);
        assert!(ended.is_ok());
        assert_eq!(asked, ["before", "align", "call", "call", "call"]);
        assert_eq!(spans.len(), 1);
    }

    #[test]
    fn a_call_that_fails_ends_the_loop_and_has_no_time() {
        let (asked, spans, ended) = run(aligned, 2);
        assert!(ended.is_err());
        assert_eq!((asked.len(), spans.len()), (6, 1));
        assert!(run(back_to_back, 2).1.is_empty());
    }
}
