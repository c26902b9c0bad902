//! The plans that ship.

use super::*;

fn shipped(name: &str) -> Plan {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans");
    Plan::load(&std::path::Path::new(folder).join(format!("{name}.toml"))).unwrap()
}

const CORI: [&str; 7] = [
    "cori-lustre-posix",
    "cori-lustre-mpiio",
    "cori-lustre-2-buffered",
    "cori-lustre-2-direct",
    "cori-lustre-2-haswell",
    "cori-datawarp-1",
    "cori-datawarp-2",
];

/// The report of the acceptance tests, as far as a plan can say it.
#[test]
fn the_cori_plans_have_the_published_options_and_figures() {
    let points = |name: &str| {
        let plan = shipped(name);
        plan.file_points(plan.ranks.unwrap()).unwrap()
    };
    let total = |point: &FilePoint| point.bytes_of_rank() * u64::from(point.ranks);
    let posix = points("cori-lustre-posix");
    // 1638 and 51 segments are the whole numbers below 24 and 12 TiB.
    assert!((23 << 40..=24 << 40).contains(&total(&posix[0])));
    assert!((11 << 40..=12 << 40).contains(&total(&points("cori-lustre-mpiio")[0])));
    assert!((23 << 40..=24 << 40).contains(&total(&points("cori-lustre-2-direct")[0])));
    assert_eq!(posix[0].fsync, Fsync::End);
    assert_eq!(posix[1].read_from, ReadFrom::Shift { ranks: 4 });
    let all: Vec<_> = CORI.into_iter().flat_map(points).collect();
    assert!(all.iter().all(|point| point.barriers));
    let collective = all.iter().filter(|point| point.collective);
    let disabled = |point: &FilePoint| {
        ["romio_cb_write", "romio_cb_read"]
            .iter()
            .all(|hint| point.hints[*hint] == "disable")
    };
    assert!(collective.clone().count() == 2 && collective.clone().all(disabled));
}

/// Plan, label, phase, MiB/s, operations per second, percent of an earlier figure: as the report prints them.
type Figure = (
    &'static str,
    &'static str,
    Phase,
    Option<f64>,
    Option<f64>,
    Option<f64>,
);

const fn speed(plan: &'static str, label: &'static str, phase: Phase, mib: f64) -> Figure {
    (plan, label, phase, Some(mib), None, None)
}

const fn rate(plan: &'static str, phase: Phase, operations: f64) -> Figure {
    (plan, "IOPS", phase, None, Some(operations), None)
}

const REPORT: [Figure; 22] = [
    speed("cori-lustre-posix", "write", Phase::Write, 716_886.15),
    speed("cori-lustre-posix", "read", Phase::Read, 646_835.37),
    speed("cori-lustre-mpiio", "write", Phase::Write, 344_016.32),
    speed("cori-lustre-mpiio", "read", Phase::Read, 614_328.95),
    speed("cori-lustre-2-buffered", "write", Phase::Write, 562_701.01),
    speed("cori-lustre-2-buffered", "read", Phase::Read, 389_576.59),
    speed("cori-lustre-2-direct", "write", Phase::Write, 624_666.33),
    speed("cori-lustre-2-direct", "read", Phase::Read, 397_262.65),
    (
        "cori-lustre-2-haswell",
        "write",
        Phase::Write,
        Some(478_170.92),
        None,
        Some(66.0),
    ),
    (
        "cori-lustre-2-haswell",
        "read",
        Phase::Read,
        Some(346_969.69),
        None,
        Some(53.0),
    ),
    speed("cori-datawarp-1", "shared file", Phase::Write, 334_627.84),
    speed("cori-datawarp-1", "shared file", Phase::Read, 765_847.3),
    speed(
        "cori-datawarp-1",
        "file per process",
        Phase::Write,
        832_451.89,
    ),
    speed(
        "cori-datawarp-1",
        "file per process",
        Phase::Read,
        862_616.35,
    ),
    rate("cori-datawarp-1", Phase::Write, 12_527_427.06),
    rate("cori-datawarp-1", Phase::Read, 12_591_977.74),
    speed(
        "cori-datawarp-2",
        "file per process",
        Phase::Write,
        1_493_373.74,
    ),
    speed(
        "cori-datawarp-2",
        "file per process",
        Phase::Read,
        1_663_914.47,
    ),
    speed("cori-datawarp-2", "shared file", Phase::Write, 1_300_578.87),
    speed("cori-datawarp-2", "shared file", Phase::Read, 1_259_295.0),
    rate("cori-datawarp-2", Phase::Write, 13_135_292.56),
    rate("cori-datawarp-2", Phase::Read, 28_260_132.42),
];

/// Each where it belongs: a sum would not notice two that were exchanged.
#[test]
fn each_published_figure_stands_with_its_experiment_and_phase() {
    let mut found = Vec::new();
    for name in CORI {
        for job in jobs(&shipped(name)) {
            let label = job.files.label.clone().unwrap();
            let figures = job.results.published.iter().map(|figure| {
                let speed = figure.bandwidth_mib_per_s;
                let (rate, percent) = (figure.operations_per_s, figure.percent_of_earlier);
                (name, label.clone(), figure.phase, speed, rate, percent)
            });
            found.extend(figures);
        }
    }
    let expected = REPORT.map(|(plan, label, phase, speed, rate, percent)| {
        (plan, label.to_owned(), phase, speed, rate, percent)
    });
    assert_eq!(found, expected);
}

/// As `tonnage run plans/NAME.toml --scale 0.00001 --ranks 2 --path cori` runs them.
#[test]
fn the_cori_plans_run_on_a_small_machine() {
    let mut names = std::collections::HashSet::new();
    for name in CORI {
        let mut plan = shipped(name);
        plan.move_files("cori").unwrap();
        plan.scale(1e-5, 2).unwrap();
        plan.fit_ranks(2);
        let points = plan.file_points(2).unwrap();
        for (index, point) in points.iter().enumerate() {
            assert!(point.bytes_of_rank() <= 2 << 30, "{point:?}");
            assert!(point.bytes_of_rank() >= 8 << 20, "{point:?}");
            // Whoever reads what an earlier experiment wrote finds it, and the last one tidies up.
            let same = |other: &FilePoint| other.paths == point.paths;
            let last = !points[index + 1..].iter().any(same);
            assert_eq!(point.keep, !last, "{point:?}");
            if !point.phases.contains(&Phase::Write) {
                let writer = &points[index - 1];
                assert!(same(writer) && writer.layout == point.layout);
                assert_eq!(writer.bytes_of_rank(), point.bytes_of_rank());
                assert!(point.drop_caches);
            }
            assert!(point.phases.contains(&Phase::Read) || names.insert(point.paths.clone()));
        }
        assert_eq!(
            Plan::from_toml(&plan.to_toml().unwrap(), "printed").unwrap(),
            plan
        );
    }
    let posix = {
        let mut plan = shipped("cori-lustre-posix");
        plan.scale(1e-5, 2).unwrap();
        plan.fit_ranks(2);
        plan.file_points(2).unwrap()
    };
    assert_eq!(posix[0].segments, 31);
    assert_eq!(posix[1].read_from, ReadFrom::Shift { ranks: 1 });
}
