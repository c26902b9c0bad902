//! `--dry-run`: the points of a plan, and how long measuring them takes.

use std::fmt::Write;
use std::time::Duration;

use tonnage_plan::Planned;
use tonnage_units::quantity::human::size;

/// Time per point for opening engines and measuring its bound: on an idle host, and on a busy one.
const OVERHEAD_OF_POINT: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(700)];
/// Time for starting and ending ranks.
const OVERHEAD_OF_RUN: Duration = Duration::from_secs(1);

/// Maximum number of listed points. Of the rest, only the number is printed.
const LISTED_MAX: usize = 200;

/// Returns the page: each point with its time, and the sums over all runs.
pub fn page(points: &[Planned], ranks: u32, runs: u32) -> String {
    let mut text = String::new();
    let mut total = Duration::ZERO;
    let mut bytes = 0u64;
    let mut unknown = 0usize;
    for (at, planned) in points.iter().enumerate() {
        let point = planned.point.any();
        let time = point.planned_time();
        total += time.unwrap_or_default();
        let moved = point.planned_bytes();
        bytes = bytes.saturating_add(moved.unwrap_or(0));
        unknown += usize::from(time.is_none());
        if at < LISTED_MAX {
            let time = time.map_or_else(|| "-".to_owned(), seconds);
            let moved = moved.map_or_else(String::new, |bytes| format!(", {}", size(bytes)));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{time:>10}  {}{moved}", point.name());
        }
    }
    if points.len() > LISTED_MAX {
        let _ = writeln!(text, "            and {} more", points.len() - LISTED_MAX);
    }
    let total = total.saturating_mul(runs);
    let count = u32::try_from(points.len())
        .unwrap_or(u32::MAX)
        .saturating_mul(runs);
    let with = |overhead: Duration| {
        let all = total + overhead.saturating_mul(count) + OVERHEAD_OF_RUN.saturating_mul(runs);
        all.as_secs_f64().ceil()
    };
    let [least, most] = OVERHEAD_OF_POINT.map(with);
    let all = match (unknown, least == most) {
        (0, false) => format!("about {least} to {most} s"),
        (0, true) => format!("about {least} s"),
        _ => format!("at least {least} s"),
    };
    let runs = if runs > 1 {
        format!(", {runs} runs")
    } else {
        String::new()
    };
    let _ = writeln!(
        text,
        "\n{} with {}{runs}: {} of warm-up and trials, {all} in all",
        counted(points.len(), "point"),
        counted(ranks as usize, "rank"),
        seconds(total)
    );
    if unknown > 0 {
        let _ = writeln!(
            text,
            "not counted: {} with a number of operations or bytes, whose time depends on the speed",
            counted(unknown, "point")
        );
    }
    if bytes > 0 {
        let _ = writeln!(text, "files: {} written or read in each run", size(bytes));
    }
    text
}

fn counted(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use crate::args::Command;
    use crate::command::measure::resolve::{Resolved, job_of};
    use clap::Parser;

    fn of(line: &str) -> String {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Some(Command::Experiment(args)) = cli.command else {
            panic!("{line} is not an experiment");
        };
        let job = job_of(args.to_plan(), &args.ranks, &args.results).unwrap();
        let resolved = Resolved::for_job(&job).unwrap();
        page(&resolved.points, resolved.ranks, job.runs.unwrap_or(1))
    }

    #[test]
    fn times_of_points_add_up_over_runs() {
        let text = of(
            "tonnage transfer --engine shm --op write --ranks 2 --sizes 8,64 --trials 2 --trial-time 1s --warmup 500ms --runs 3",
        );
        assert_eq!(text.matches("    2.50 s  ").count(), 2, "{text}");
        let end =
            "2 points with 2 ranks, 3 runs: 15.00 s of warm-up and trials, about 19 to 23 s in all";
        assert!(text.contains(end), "{text}");
    }

    #[test]
    fn work_whose_speed_is_unknown_is_counted_apart() {
        let text = of("tonnage transfer --engine shm --op write --ranks 2 --sizes 8 --iters 1000");
        assert!(text.starts_with("         -  "), "{text}");
        assert!(
            text.contains("not counted: 1 point with a number of operations"),
            "{text}"
        );
        let text = of(
            "tonnage file --path t --block 1M --transfer 64k --ranks 2 --trials 3 --phases write,read",
        );
        assert!(text.contains("files: 12 MiB written or read"), "{text}");
    }
}
