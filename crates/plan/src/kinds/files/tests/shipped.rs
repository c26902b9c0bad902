//! Tests of the shipped plans for files.

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

/// Checks those parts of the published acceptance tests that a plan can express.
#[test]
fn the_cori_plans_have_the_published_options_and_figures() {
    let points = |name: &str| {
        let plan = shipped(name);
        plan.file_points(plan.ranks.unwrap()).unwrap()
    };
    let total = |point: &FilePoint| point.bytes_of_rank() * u64::from(point.ranks);
    let posix = points("cori-lustre-posix");
    // With whole segments, the totals are just below the published 24 and 12 TiB.
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

/// Checks only the number of figures. Expansion already checks that each figure belongs to a measured phase.
#[test]
fn each_experiment_of_the_report_has_its_figures() {
    let figures = |name: &str| {
        let jobs = jobs(&shipped(name)).into_iter();
        jobs.map(|job| job.results.published.len())
            .collect::<Vec<_>>()
    };
    assert_eq!(figures("cori-datawarp-1"), [2, 2, 2]);
    assert_eq!(figures("cori-datawarp-2"), [2, 2, 2]);
    assert!(CORI[..5].iter().all(|name| figures(name) == [1, 1]));
}

/// Expands the plans like `tonnage run plans/NAME.toml --scale 0.00001 --ranks 2 --path cori`.
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
            // Files stay until the last experiment that uses them, so that later experiments can read them.
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
