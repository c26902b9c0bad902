//! Prints a line for each call of each rank. The lines go to standard error, because standard output has the report.
//!
//! The format is that of torch.distributed scripts, so that programs that read their output can parse these lines. Such
//! a script has only one operation, but a run has several points. A separate line therefore names the point first.

use std::io::Write;

use tonnage_bench::observer::TrialCalls;

use super::screen::MessageWriter;

/// Prints the lines of a trial. The first lines of a point have a heading.
pub fn print_all(heading: Option<&str>, calls: &TrialCalls<'_>) {
    let text = headed(heading, calls);
    // If the lines cannot be written, nothing else is lost.
    let _ = MessageWriter.write_all(text.as_bytes());
}

/// Returns the heading for a point's lines: its number and its description. Points with the same description differ in
/// their number.
pub fn heading(index: usize, of: usize, words: &str) -> String {
    format!("point {} of {of}: {words}", index + 1)
}

fn headed(heading: Option<&str>, calls: &TrialCalls<'_>) -> String {
    let heading = heading.map(|heading| format!("{heading}\n"));
    heading.unwrap_or_default() + &lines(calls)
}

/// Formats the lines, ordered by call and then by rank.
fn lines(calls: &TrialCalls<'_>) -> String {
    let most = calls.took_ns.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for call in 0..most {
        for (rank, took_ns) in calls.took_ns.iter().enumerate() {
            if let Some(&ns) = took_ns.get(call) {
                text += &line(calls, rank, ns);
            }
        }
    }
    text
}

fn line(calls: &TrialCalls<'_>, rank: usize, ns: u64) -> String {
    let backend = calls.backend.map(|name| format!("{name}: "));
    let backend = backend.unwrap_or_default();
    let ms = milliseconds(ns);
    match calls.size_bytes {
        Some(bytes) => {
            let megabytes = bytes as f64 / 1e6;
            let rate = megabytes / (ns.max(1) as f64 / 1e9);
            format!(
                "{backend}Process {rank} transferred {megabytes} MB in {ms} ms ({rate:.1} MB/sec)\n"
            )
        }
        None => format!("{backend}Process {rank} took {ms} ms\n"),
    }
}

/// Formats milliseconds. Short calls get more digits.
fn milliseconds(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    match ms {
        _ if ms >= 10.0 => format!("{ms:.1}"),
        _ if ms >= 0.1 => format!("{ms:.3}"),
        _ => format!("{ms:.6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_scripts() {
        let calls = TrialCalls {
            backend: None,
            size_bytes: Some(100_000_000),
            took_ns: vec![vec![83_264_000, 854_430_000], vec![83_300_000, 9_876_543]],
        };
        assert_eq!(
            lines(&calls),
            "Process 0 transferred 100 MB in 83.3 ms (1201.0 MB/sec)\n\
             Process 1 transferred 100 MB in 83.3 ms (1200.5 MB/sec)\n\
             Process 0 transferred 100 MB in 854.4 ms (117.0 MB/sec)\n\
             Process 1 transferred 100 MB in 9.877 ms (10125.0 MB/sec)\n"
        );
    }

    #[test]
    fn the_first_lines_of_a_point_have_a_heading() {
        let calls = TrialCalls {
            backend: None,
            size_bytes: None,
            took_ns: vec![vec![10_000_000]],
        };
        let heading = heading(1, 3, "native:shm all-reduce 64k");
        assert_eq!(
            headed(Some(&heading), &calls),
            "point 2 of 3: native:shm all-reduce 64k\nProcess 0 took 10.0 ms\n"
        );
        assert_eq!(headed(None, &calls), "Process 0 took 10.0 ms\n");
    }

    #[test]
    fn short_calls_keep_their_digits_and_several_backends_their_names() {
        let calls = TrialCalls {
            backend: Some("native:shm"),
            size_bytes: Some(8),
            took_ns: vec![vec![131]],
        };
        let said = "native:shm: Process 0 transferred 0.000008 MB in 0.000131 ms (61.1 MB/sec)\n";
        assert_eq!(lines(&calls), said);
        let nothing = TrialCalls {
            size_bytes: None,
            ..calls
        };
        assert_eq!(lines(&nothing), "native:shm: Process 0 took 0.000131 ms\n");
    }
}
