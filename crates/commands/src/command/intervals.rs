//! Prints a line for each interval of a trial when it ends. The lines go to standard error, because standard output has
//! the report.

use std::io::Write;

use tonnage_bench::observer::{IntervalListener, IntervalReport};
use tonnage_units::quantity::human;

use super::screen::MessageWriter;

/// Returns a listener that prints a line for each interval.
pub fn printer() -> IntervalListener {
    Box::new(|report| {
        // If a line cannot be written, nothing else is lost.
        let _ = writeln!(MessageWriter, "{}", line(report));
    })
}

/// Formats an interval as one line: its end, the total of all clients, latencies, each client, and stalled ranks.
fn line(report: &IntervalReport) -> String {
    let mut parts = vec![format!(
        "[{:>7.2} s] {}op/s, {}",
        report.end.as_secs_f64(),
        human::prefixed(report.operations_per_s),
        human::bandwidth(report.bytes_per_s)
    )];
    if let Some(latency) = &report.latency {
        let [p50, p99, max] = latency.shown_us();
        parts.push(format!("p50 {p50}, p99 {p99}, max {max} us"));
    }
    parts.extend(clients(report));
    parts.extend(silent(&report.silent));
    if report.trial > 1 {
        parts.push(format!("trial {}", report.trial));
    }
    parts.join("; ")
}

fn clients(report: &IntervalReport) -> Option<String> {
    let named = |(rank, rate): &(u32, f64)| format!("rank {rank} {}", human::prefixed(*rate));
    match &report.clients[..] {
        [] | [_] => None,
        [slowest, fastest] if report.clients_count > 2 => Some(format!(
            "of {} clients the slowest: {}, the fastest: {}",
            report.clients_count,
            named(slowest),
            named(fastest)
        )),
        all => Some(all.iter().map(named).collect::<Vec<_>>().join(", ")),
    }
}

/// Maximum number of silent ranks that are named. The rest are only counted.
const SILENT_NAMED_MAX: usize = 8;

fn silent(ranks: &[u32]) -> Option<String> {
    let named: Vec<String> = ranks
        .iter()
        .take(SILENT_NAMED_MAX)
        .map(u32::to_string)
        .collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let more = match ranks.len().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!ranks.is_empty()).then(|| format!("nothing moved: {word} {}{more}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonnage_record::transfer::IntervalLatency;

    use super::*;

    fn report() -> IntervalReport {
        IntervalReport {
            trial: 1,
            end: Duration::from_secs(3),
            operations_per_s: 2_740_000.0,
            bytes_per_s: 2_740_000.0 * 64.0,
            clients: vec![(1, 920_000.0), (2, 910_000.0), (3, 910_000.0)],
            clients_count: 3,
            silent: Vec::new(),
            latency: None,
        }
    }

    #[test]
    fn a_line_has_the_sum_and_each_client() {
        assert_eq!(
            line(&report()),
            "[   3.00 s] 2.74Mop/s, 175 MB/s; rank 1 920k, rank 2 910k, rank 3 910k"
        );
    }

    #[test]
    fn many_clients_are_their_extremes_and_who_stood_still_is_named() {
        let many = IntervalReport {
            trial: 2,
            clients: vec![(7, 0.0), (9, 2e6)],
            clients_count: 40,
            silent: (0..10).collect(),
            latency: Some(IntervalLatency {
                samples: 1,
                latency_ns_p50: 4_100,
                latency_ns_p99: 9_000,
                latency_ns_max: 2_000_000,
                lower_bounds: None,
            }),
            ..report()
        };
        assert_eq!(
            line(&many),
            "[   3.00 s] 2.74Mop/s, 175 MB/s; p50 4.10, p99 9.00, max 2000 us; of 40 clients the slowest: rank 7 0, the \
             fastest: rank 9 2.00M; nothing moved: ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more; trial 2"
        );
        let alone = IntervalReport {
            clients: vec![(0, 1.0)],
            clients_count: 1,
            silent: vec![0],
            ..report()
        };
        assert_eq!(
            line(&alone),
            "[   3.00 s] 2.74Mop/s, 175 MB/s; nothing moved: rank 0"
        );
    }
}
