use super::point::*;
use super::*;
use crate::fixture::{Expand, LISTS, Refused, cases};
use crate::point::{BoundChoice, PointNotes};
use crate::testing::file_point;
use crate::{Experiment, Plan};

mod refused;
mod scaling;
mod shipped;

/// A plan of one job with these lines.
fn plan(lines: &str) -> Plan {
    let text = format!("name = \"test\"\n[[file]]\npath = 't.dat'\n{lines}");
    Plan::from_toml(&text, "test.toml").unwrap()
}

fn jobs(plan: &Plan) -> Vec<FileJob> {
    let jobs = plan.experiments.iter().map(|experiment| match experiment {
        Experiment::File(job) => (**job).clone(),
        other => panic!("{other:?}"),
    });
    jobs.collect()
}

fn points(lines: &str) -> Vec<FilePoint> {
    plan(lines).file_points(2).unwrap()
}

fn point(lines: &str) -> FilePoint {
    let mut points = points(lines);
    assert_eq!(points.len(), 1);
    points.remove(0)
}

fn message(lines: &str) -> String {
    message_for(2, lines)
}

fn message_for(ranks: u32, lines: &str) -> String {
    let error = plan(lines).file_points(ranks).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn options_that_are_not_given_have_their_defaults() {
    assert_eq!(point(""), file_point());
    assert_eq!(plan("").file_points(1).unwrap()[0].ranks, 1);
}

/// `--resume` must compare neither published figures nor thresholds.
#[test]
fn published_figures_and_thresholds_are_not_part_of_the_point() {
    let lines = "outlier = '2s'\npublished = [{ phase = 'write', operations-per-s = 5, ranks = 9, what = 'x' }]";
    let planned = plan(lines).points(2, &LISTS).unwrap();
    let published = Published {
        phase: Phase::Write,
        bandwidth_mib_per_s: None,
        operations_per_s: Some(5.0),
        ranks: Some(9),
        percent_of_earlier: None,
        what: "x".into(),
    };
    let reading = PointNotes {
        published: vec![published],
        outlier_ns: Some(2_000_000_000),
        ..PointNotes::default()
    };
    let point = crate::Point::File(file_point());
    assert_eq!(
        planned,
        [crate::Planned {
            point,
            reading,
            impossible: None
        }]
    );
}

#[test]
fn every_given_option_is_in_the_point() {
    let found = point(
        "label = 'mine'\nengine = 'uring'\nengine-options = { polling = 'on' }\nlayout = 'per-process'\n\
         directory-per-rank = true\nfile-per-trial = true\nblock = '8M'\ntransfer = '2M'\nsegments = 3\n\
         order = 'shuffled'\nseed = 7\nphases = 'write,read,mixed'\nread-percent = 70\nread-shift = 1\nfsync = 'end'\n\
         direct = true\nbarriers = true\nkeep = true\nexisting = true\nthreads = 2\ndepth = 4\nstonewall = '30s'\n\
         wear-out = true\nwear-out-transfers = 5\nstonewall-status = 's.json'\nprefill = true\n\
         data = 'compressible=30%'\ndata-seed = 9\nverify = ['write', 'mixed']\ndrop-caches = true\n\
         stripe-count = 'all'\nstripe-size = '8M'\ntrials = 3\ndelay = '1s'\nmax-duration = '1h'\n\
         bound = '2GB/s'",
    );
    let expected = FilePoint {
        label: Some("mine".into()),
        engine: "uring".into(),
        engine_options: [("polling".to_owned(), "on".to_owned())].into(),
        threads: 2,
        layout: FileLayout::PerProcess,
        directory_per_rank: true,
        file_per_trial: true,
        block_bytes: 8 << 20,
        transfer_bytes: 2 << 20,
        segments: 3,
        order: FileOrder::Shuffled,
        seed: 7,
        phases: Phase::ALL.to_vec(),
        read_percent: Some(70),
        read_from: ReadFrom::Shift { ranks: 1 },
        fsync: Fsync::End,
        direct: true,
        barriers: true,
        keep: true,
        existing: true,
        depth: 4,
        stonewall: Some(Stonewall {
            after_ns: 30_000_000_000,
            wear_out: true,
            transfers_min: 5,
        }),
        status_file: Some("s.json".into()),
        prefill: true,
        data: DataKind::Compressible { percent: 30 },
        data_seed: Some(9),
        verify_after: vec![Phase::Write, Phase::Mixed],
        drop_caches: true,
        striping: Some(Striping {
            count: None,
            size_bytes: Some(8 << 20),
        }),
        trials: 3,
        delay_ns: 1_000_000_000,
        max_duration_ns: Some(3_600_000_000_000),
        bound: BoundChoice::Stated { bytes_per_s: 2e9 },
        ..file_point()
    };
    assert_eq!(found, expected);
    let together = point(
        "engine = 'mpiio'\ncollective = true\nfile-view = true\nhints = { romio_cb_write = 'disable', cb_nodes = 4 }\n\
         read-shuffled = 5",
    );
    assert!(together.collective && together.file_view);
    assert_eq!(together.hints["cb_nodes"], "4");
    assert_eq!(together.read_from, ReadFrom::Shuffled { seed: 5 });
}

#[test]
fn several_values_multiply_with_the_transfer_varying_fastest() {
    let points =
        points("engine = ['posix', 'uring']\nblock = '1M,2M'\ntransfer = '4k,8k'\ndepth = 1");
    let cell = |point: &FilePoint| {
        (
            point.engine.clone(),
            point.block_bytes,
            point.transfer_bytes,
        )
    };
    let mega = 1 << 20;
    assert_eq!(points.len(), 8);
    assert_eq!(cell(&points[0]), ("posix".into(), mega, 4096));
    assert_eq!(cell(&points[1]), ("posix".into(), mega, 8192));
    assert_eq!(cell(&points[2]), ("posix".into(), 2 * mega, 4096));
    assert_eq!(cell(&points[4]), ("uring".into(), mega, 4096));
}

#[test]
fn the_window_of_an_engine_with_queues_fits_the_transfer() {
    let depth = |lines: &str| point(&format!("engine = 'uring'\nblock = '1G'\n{lines}")).depth;
    assert_eq!(depth("transfer = '4k'"), 32);
    assert_eq!(depth("transfer = '4M'"), 16);
    assert_eq!(depth("transfer = '1G'"), 1);
    assert_eq!(depth("transfer = '4M'\ndepth = 100"), 100);
}

/// Lines with wrong phases or options that do not fit the phases, and text that the message must contain.
const PHASES_REFUSED: [&str; 18] = [
    "phases = 'mixed' => add read-percent 70",
    "phases = 'write'; read-percent = 70 => is for phases mixed, which is not asked for",
    "read-percent = 100 => use 1 to 99",
    "phases = 'write,write' => phases has write twice",
    "phases = 'read'; verify = 'write' => verify=write checks a phase that is not measured",
    "verify = 'read,read' => verify has phase read twice",
    "phases = 'write'; drop-caches = true => drop-caches is for phases that read",
    "phases = 'write'; read-shift = 1 => are for phases that read, and there is none",
    "phases = 'write'; read-shift = 'node' => are for phases that read, and there is none",
    "phases = 'write'; read-shuffled = 1 => are for phases that read, and there is none",
    "phases = 'read'; fsync = 'end' => fsync is for phases that write, and there is none",
    "phases = 'read'; existing = true => existing is about files that will be written",
    "phases = 'read'; data = 'compressible=30%' => data applies to bytes that are written or verified, and there are \
     none",
    "phases = 'read'; data-seed = 3 => data-seed applies to bytes that are written or verified",
    "seed = 3 => seed is for order shuffled and for phases mixed",
    "phases = 'read'; stripe-count = 4 => apply to new files, and no phase writes",
    "phases = 'read'; published = [{ phase = 'write', operations-per-s = 1.0, what = '' }] => phase write, which is not measured",
    "published = [{ phase = 'write', what = '' }] => write bandwidth-mib-per-s or operations-per-s",
];

#[test]
fn phases_and_the_read_percentage_fit_each_other() {
    let mixed = point("read-percent = 70");
    assert_eq!(
        (mixed.phases, mixed.read_percent),
        (vec![Phase::Mixed], Some(70))
    );
    for (lines, part) in cases(PHASES_REFUSED) {
        let message = message(lines);
        assert!(message.contains(part), "{lines}: {message}");
    }
    // In each of these, every option has an effect.
    for lines in [
        "phases = 'read'\nverify = true\ndata = 'compressible=30%'\ndata-seed = 3",
        "phases = 'read'\nprefill = true\nexisting = true\ndata-seed = 3",
        "phases = 'read'\nfsync = 'none'",
        "phases = 'write'\nread-shift = 0",
        "read-percent = 50\nseed = 3\nread-shift = 1",
        "order = 'shuffled'\nseed = 3",
    ] {
        point(lines);
    }
    assert_eq!(point("fsync = 'each'").fsync, Fsync::Each);
    assert_eq!(point("verify = true").verify_after, [Phase::Read]);
    assert_eq!(point("verify = false").verify_after, []);
}

#[test]
fn kinds_of_data_and_stripes_read_back() {
    for percent in 1..=99 {
        let data = DataKind::Compressible { percent };
        assert_eq!(data.to_string().parse::<DataKind>().unwrap(), data);
    }
    for wrong in ["randm", "compressible", "=30", "=0%", "=1.5%"] {
        let text = wrong.replace('=', "compressible=");
        text.parse::<DataKind>().refused("compressible=");
    }
    for wrong in ["0", "-1", "some", "5000000000"] {
        wrong
            .parse::<StripeCount>()
            .refused("use a number from 1, or all");
    }
}
