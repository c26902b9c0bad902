//! The shipped plans, and the published cells that they must contain.

use super::*;

/// Every plan in plans/ must be readable and expand, and its head must name the command that runs it.
#[test]
fn plans_that_ship_expand() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans");
    let mut names = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let plan = Plan::load(&path).unwrap();
        let ranks = plan.ranks.unwrap_or(2);
        let points = plan.points(ranks, &SHIPPED).unwrap();
        assert!(!points.is_empty(), "{}", path.display());
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert_eq!(plan.name, stem);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{stem} has no head");
        let command = format!("tonnage run plans/{stem}.toml");
        assert!(
            text.contains(&command) || stem == "tour",
            "{stem} does not name its command"
        );
        names.push(stem);
    }
    for expected in [
        "tour",
        "mori-io-read",
        "mori-io-write",
        "efa-write",
        "one-sided-read",
        "torch-distributed",
        "gpu-node",
        "gpu-node-amd",
    ] {
        assert!(
            names.iter().any(|name| name == expected),
            "{expected} is missing"
        );
    }
}

#[test]
fn the_tour_measures_less_than_20_seconds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans/tour.toml");
    let plan = Plan::load(std::path::Path::new(path)).unwrap();
    let mut total_ns = 0;
    for planned in plan.points(2, &SHIPPED).unwrap() {
        let crate::Point::Transfer(point) = planned.point else {
            panic!("{planned:?}");
        };
        let TrialLength::DurationNs(trial_ns) = point.length.trial else {
            panic!("the tour is bounded by time");
        };
        assert_eq!(point.length.until_ci, None);
        assert!(
            ["null", "shm", "fabric:shm", "fabric:tcp", "cuda", "hip"]
                .contains(&point.engine.as_str()),
            "{point:?}"
        );
        total_ns += point.length.warmup_ns + trial_ns * u64::from(point.length.trials);
    }
    assert!(total_ns < 20_000_000_000, "{}", Nanos(total_ns));
}

/// The plan for an AMD node must equal the plan for an NVIDIA node except for names.
#[test]
fn both_pages_of_a_node_measure_the_same() {
    let [nvidia, amd] = ["gpu-node", "gpu-node-amd"].map(|name| shipped(name, Some(3)));
    assert_eq!(nvidia.len(), amd.len());
    for (nvidia, amd) in nvidia.iter().zip(&amd) {
        let text = |point: &TransferPoint| serde_json::to_string(point).unwrap();
        assert_eq!(text(nvidia).replace("cuda", "hip"), text(amd));
    }
}

fn loaded(name: &str, ranks: Option<u32>) -> (Plan, u32) {
    let path = format!("{}/../../plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let mut plan = Plan::load(std::path::Path::new(&path)).unwrap();
    let ranks = ranks.or(plan.ranks).unwrap();
    plan.fit_ranks(ranks);
    (plan, ranks)
}

fn shipped(name: &str, ranks: Option<u32>) -> Vec<TransferPoint> {
    let (plan, ranks) = loaded(name, ranks);
    let planned = plan.points(ranks, &SHIPPED).unwrap().into_iter();
    let points = planned.map(|planned| match planned.point {
        crate::Point::Transfer(point) => point,
        other => panic!("{other:?}"),
    });
    points.collect()
}

/// Checks the operation, batch, queue pairs and sizes of each experiment of the published page.
#[test]
fn the_mori_io_plans_have_the_published_cells() {
    let cells = |points: &[TransferPoint]| -> Vec<_> {
        let cell = |point: &TransferPoint| {
            let Pacing::Batch { batch } = point.pacing else {
                panic!("{point:?}");
            };
            let [initiator, target] = [0, point.roles.targets(0)[0]];
            (
                batch,
                point.division.queue_pairs,
                point.slots.size_bytes,
                (initiator, target),
            )
        };
        points.iter().map(cell).collect()
    };
    let reads = shipped("mori-io-read", None);
    assert!(
        reads
            .iter()
            .all(|point| point.op == Verb::Read && point.roles.ranks == 16)
    );
    let (small, large): (Vec<u32>, Vec<u32>) = (
        (3..=20).map(|bit| 1 << bit).collect(),
        (10..=26).map(|bit| 1 << bit).collect(),
    );
    let all = |sizes: &[u32], batch, queue_pairs, pair| -> Vec<_> {
        sizes
            .iter()
            .map(|&size| (batch, queue_pairs, size, pair))
            .collect()
    };
    let expected = [all(&small, 256, 2, (0, 8)), all(&large, 1, 4, (0, 8))].concat();
    assert_eq!(cells(&reads), expected);
    assert_eq!(reads[0].roles.initiating_ranks().0, 8);
    let writes = shipped("mori-io-write", None);
    assert!(
        writes
            .iter()
            .all(|point| point.op == Verb::Write && point.roles.ranks == 2)
    );
    let batches = (0..=15).map(|bit| (1 << bit, 16, 1024, (0, 1)));
    let expected = [
        all(&small, 128, 4, (0, 1)),
        batches.collect(),
        all(&large, 1, 4, (0, 1)),
    ];
    assert_eq!(cells(&writes), expected.concat());
}

/// Checks the published page's four configurations, and its two configurations with several devices and host memory. An
/// experiment must be optional only if it needs hardware that a machine may lack.
#[test]
fn the_efa_plan_has_the_published_cells() {
    let (plan, ranks) = loaded("efa-write", None);
    let planned = plan.points(ranks, &SHIPPED).unwrap();
    let points = planned.into_iter().map(|planned| match planned.point {
        crate::Point::Transfer(point) => (point, planned.reading),
        other => panic!("{other:?}"),
    });
    let points: Vec<_> = points.collect();
    let each = points.chunk_by(|(one, _), (other, _)| one.label == other.label);
    let configurations: Vec<_> = each
        .map(|points| {
            let (first, reading) = &points[0];
            let sizes: Vec<_> = points
                .iter()
                .map(|(point, _)| point.slots.size_bytes)
                .collect();
            assert_eq!(sizes, (18..=30).map(|bit| 1 << bit).collect::<Vec<u32>>());
            assert!(points.iter().all(|(point, _)| point.depth() == 1
                && point.op == Verb::WriteImm
                && point.slots.footprint_bytes == u64::from(point.slots.size_bytes)));
            assert_eq!(reading.tables.len(), 1);
            assert_eq!(reading.tables[0].rows.len(), sizes.len());
            let (memory, traffic) = (first.memories.memory.as_str(), first.roles.traffic.name());
            (
                first.division.rails.name(),
                traffic,
                memory.to_owned(),
                reading.optional,
            )
        })
        .collect();
    let expected = [
        ("single", "in-turn", "host", false),
        ("stripe", "in-turn", "host", true),
        ("round-robin", "fan-out", "host", true),
        ("single", "in-turn", "cuda", true),
        ("stripe", "in-turn", "cuda", true),
        ("round-robin", "fan-out", "cuda", true),
    ];
    let expected = expected
        .map(|(rails, traffic, memory, optional)| (rails, traffic, memory.to_owned(), optional));
    assert_eq!(configurations, expected);
}

#[test]
fn the_one_sided_read_plan_has_the_published_cells_by_each_engine() {
    const ENGINES: [&str; 4] = ["shm", "verbs:rc", "verbs:dc", "verbs:kernel"];
    let points = shipped("one-sided-read", None);
    let cell = |point: &TransferPoint| {
        assert_eq!((point.op, point.threads), (Verb::Read, 12));
        assert_eq!(
            (point.slots.footprint_bytes, point.slots.access),
            (4 << 20, Access::Random)
        );
        let cell = (
            point.slots.size_bytes,
            point.depth(),
            point.roles.initiators.unwrap(),
        );
        (point.engine.clone(), cell)
    };
    let mut cells: Vec<_> = points.iter().map(cell).collect();
    // The published signalling is an option of the kernel engine only.
    let first: Vec<_> = points
        .iter()
        .filter(|point| !point.engine_options.is_empty())
        .map(cell)
        .collect();
    let kernel = |clients| ("verbs:kernel".to_owned(), (64, 12, clients));
    assert_eq!(first, [1, 4, 8].map(kernel));
    assert!(cells.ends_with(&first));
    cells.truncate(cells.len() - first.len());
    cells.sort_unstable();
    let mut expected = Vec::new();
    for engine in ENGINES {
        for size in [64, 4096] {
            for depth in [1, 12] {
                let all = [1, 4, 8].map(|clients| (engine.to_owned(), (size, depth, clients)));
                expected.extend(all);
            }
        }
    }
    expected.sort_unstable();
    assert_eq!(cells, expected);
    // Published RC rows with 12 outstanding operations belong to the experiment with the signalling mode in which they
    // were measured.
    let (plan, ranks) = loaded("one-sided-read", None);
    let planned = plan.points(ranks, &SHIPPED).unwrap();
    let rows = planned.iter().map(|planned| {
        let tables = planned.reading.tables.iter();
        tables.map(|table| table.rows.len()).collect::<Vec<_>>()
    });
    let mut rows: Vec<_> = rows.collect();
    rows.dedup();
    assert_eq!(rows, [vec![3, 6], vec![2, 2], vec![3]]);
}

/// If the command line names engines, experiments about other engines are left out.
#[test]
fn the_published_signalling_stays_with_the_kernel() {
    let of = |engines: &[&str]| {
        let (mut plan, ranks) = loaded("one-sided-read", None);
        let engines: Vec<_> = engines.iter().map(|&name| name.to_owned()).collect();
        plan.use_engines(&engines).unwrap();
        let planned = plan.points(ranks, &SHIPPED).unwrap();
        assert!(planned.iter().all(|planned| planned.reading.optional));
        planned.len()
    };
    assert_eq!(of(&["null"]), 12);
    assert_eq!(of(&["verbs:rc", "verbs:kernel"]), 2 * 12 + 3);
    let (mut plan, _) = loaded("one-sided-read", None);
    plan.experiments.drain(..2);
    let refused = plan.use_engines(&["shm".to_owned()]).unwrap_err();
    assert!(refused.to_string().contains("uses shm"), "{refused}");
}

#[test]
fn a_plan_for_more_ranks_has_as_many_initiators_as_fit() {
    let clients = |ranks| -> Vec<u32> {
        let points = shipped("one-sided-read", Some(ranks));
        points
            .iter()
            .filter(|point| {
                point.engine == "shm" && point.slots.size_bytes == 64 && point.depth() == 1
            })
            .map(|point| point.roles.initiators.unwrap())
            .collect()
    };
    assert_eq!(clients(3), [1, 2]);
    assert_eq!(clients(6), [1, 4, 5]);
    assert_eq!(clients(9), [1, 4, 8]);
    let pairs = shipped("mori-io-read", Some(4));
    let last = pairs.last().unwrap().roles;
    assert_eq!(
        (last.targets(0), last.initiating_ranks()),
        (vec![3], (1, 1))
    );
    assert_eq!(
        shipped("mori-io-read", Some(2))
            .last()
            .unwrap()
            .roles
            .targets(0),
        [1]
    );
}
