use super::*;
use crate::Plan;
use crate::conflicts::trial::Lines;
use crate::fixture::{Expand, Holds, LISTS, Refused, SHIPPED, cases};
use crate::point::{BoundChoice, Traffic};
use crate::testing::transfer_point;
use crate::transfer::{Access, Rate, TargetFootprint, TrialLength};
use tonnage_units::{Nanos, PairPlace};

mod shipped;

/// A plan of one transfer with these lines.
fn plan(lines: &str) -> Plan {
    let text = format!("name = \"test\"\n[[transfer]]\n{lines}");
    Plan::from_toml(&text, "test.toml").unwrap()
}

const WRITE: &str = "engine = \"shm\"\nop = \"write\"\nsizes = 64\n";

fn points(lines: &str) -> Vec<TransferPoint> {
    plan(lines).transfer_points(2).unwrap()
}

fn message(lines: &str) -> String {
    plan(lines).transfer_points(2).unwrap_err().to_string()
}

fn message_for(ranks: u32, more: &str) -> String {
    plan(&format!("{WRITE}{more}"))
        .transfer_points(ranks)
        .unwrap_err()
        .to_string()
}

#[test]
fn options_that_are_not_given_have_their_defaults() {
    assert_eq!(points(WRITE), [transfer_point()]);
}

#[test]
fn every_given_option_is_in_the_point() {
    let point = points(
        "engine = 'shm'\nop = 'read'\nsizes = '4k'\nlabel = 'mine'\ntraffic = 'fan-in'\ninitiators = 1\n\
         depth = 8\nrate = '200k'\nthreads = 3\nplace = 'near'\nmemory = 'huge'\nfootprint = '1M'\ntarget-footprint = 'shared'\nstride = '8k'\n\
         access = 'random'\nseed = 7\nverify = true\nbound = '12.5GB/s'\ntrials = 3\n\
         trial-time = '10ms'\nwarmup = 0\nuntil-ci = '2%'\nmax-duration = '5s'",
    )
    .remove(0);
    let expected = TransferPoint {
        label: Some("mine".into()),
        op: Verb::Read,
        roles: Roles {
            initiators: Some(1),
            ..Roles::new(Traffic::FanIn, 2)
        },
        threads: 3,
        place: Some(PairPlace::Near),
        pacing: Pacing::Paced {
            depth: 8,
            rate: Rate::per_s(200_000.0),
        },
        memories: Memories {
            memory: "huge".to_owned(),
            ..transfer_point().memories
        },
        slots: Slots {
            size_bytes: 4096,
            footprint_bytes: 1 << 20,
            target_footprint: TargetFootprint::Shared,
            stride_bytes: 8192,
            access: Access::Random,
            local_access: None,
            seed: 7,
        },
        verify: crate::transfer::Verification::Last,
        bound: BoundChoice::Stated {
            bytes_per_s: 12.5e9,
        },
        length: PointLength {
            trials: 3,
            trial: TrialLength::DurationNs(10_000_000),
            warmup_ns: 0,
            until_ci: Some(0.02),
            max_duration_ns: Some(5_000_000_000),
            interval_ns: None,
            checkpoint_ns: None,
        },
        ..transfer_point()
    };
    assert_eq!(point, expected);
    assert!(!points(&format!("{WRITE}latency = false")).remove(0).latency);
}

#[test]
fn places_multiply_and_far_needs_two_sides() {
    let points = points("engine = 'shm'\nop = 'write'\nsizes = '8,16'\nplace = 'near,far'");
    let cells: Vec<_> = points
        .iter()
        .map(|point| (point.place.unwrap().name(), point.slots.size_bytes))
        .collect();
    assert_eq!(cells, [("near", 8), ("near", 16), ("far", 8), ("far", 16)]);
    let all = "traffic = 'all-to-all'\nplace = ['near', 'far']";
    let message = message_for(4, all);
    message.holds("place far and traffic all-to-all are mutually exclusive");
    // Two ranks fit two sockets.
    let two = plan(&format!("{WRITE}{all}")).transfer_points(2).unwrap();
    assert_eq!(two.len(), 2);
}

#[test]
fn sweeps_multiply_with_the_size_varying_fastest() {
    let points =
        points("engine = 'null,shm'\nop = ['write', 'read']\nsizes = '8,16'\nbatch = '1,2'");
    assert_eq!(points.len(), 16);
    let cell = |point: &TransferPoint| {
        (
            point.engine.clone(),
            point.op,
            point.depth(),
            point.slots.size_bytes,
        )
    };
    assert_eq!(cell(&points[0]), ("null".into(), Verb::Write, 1, 8));
    assert_eq!(cell(&points[1]), ("null".into(), Verb::Write, 1, 16));
    assert_eq!(cell(&points[2]), ("null".into(), Verb::Write, 2, 8));
    assert_eq!(cell(&points[4]), ("null".into(), Verb::Read, 1, 8));
    assert_eq!(cell(&points[8]), ("shm".into(), Verb::Write, 1, 8));
}

#[test]
fn unknown_engines_and_verbs_name_the_nearest() {
    assert_eq!(
        message("engine = 'shmm'\nop = 'write'\nsizes = 8"),
        "unknown engine \"shmm\": did you mean \"shm\"? engines: null, shm, loose"
    );
    assert_eq!(
        message("engine = 'loose'\nop = 'send'\nsizes = 8"),
        "engine loose cannot do op send: use one of write, write-imm, read, or use engine null"
    );
    assert_eq!(
        message("engine = 'loose'\nop = 'write'\nsizes = 8\nping-pong = true"),
        "ping-pong with op write waits for the last byte to appear, and engine loose does not promise \
         that it appears last: use op write-imm, or use engine null"
    );
    assert_eq!(
        message("engine = 'null'\nop = 'write'\nsizes = 8\nverify = true"),
        "engine null moves no bytes, so there is nothing to verify: leave verify out, or use engine shm"
    );
    assert_eq!(
        points("engine = 'loose'\nop = 'read'\nsizes = 8\nping-pong = true").len(),
        1
    );
}

#[test]
fn ranks_must_fit_the_traffic() {
    assert_eq!(
        message_for(1, ""),
        "a transfer needs two ranks and there is one: use --ranks 2"
    );
    assert!(message_for(0, "").contains("use --ranks 2"));
    assert_eq!(
        message_for(3, ""),
        "traffic pair needs an even number of ranks and there are 3: use --ranks 4, initiators 1, \
         or another pattern such as traffic fan-out"
    );
    assert!(message_for(u32::MAX, "").contains("the most is --ranks 65536"));
    let fan_out = plan(&format!("{WRITE}traffic = 'fan-out'"));
    assert_eq!(fan_out.transfer_points(3).unwrap()[0].roles.ranks, 3);
}

#[test]
fn a_rank_cannot_both_begin_and_answer() {
    for op in Verb::ALL {
        let lines = format!(
            "engine = \"shm\"\nop = \"{}\"\nsizes = 8\ntraffic = \"all-to-all\"\n",
            op.name()
        );
        assert!(plan(&lines).transfer_points(3).is_ok(), "{op:?}");
        let ping_pong = plan(&format!("{lines}ping-pong = true")).transfer_points(3);
        let Err(error) = ping_pong else {
            assert!(
                op.returns_bytes(),
                "only an operation that returns bytes needs no answer"
            );
            continue;
        };
        let message = error.to_string();
        message.holds("use traffic pair, traffic fan-out or traffic fan-in, or op read");
    }
}

/// Options vary in this order, the slowest first: memory, initiators, threads, depth.
#[test]
fn several_values_multiply_in_a_fixed_order() {
    let lines = "memory = ['huge', 'host']\nthreads = '1,2'\ntraffic = 'fan-in'\ninitiators = '1,2'\ndepth = '3,4'";
    let points = plan(&format!("{WRITE}{lines}"));
    let points = points.transfer_points(3).unwrap();
    let cell = |point: &TransferPoint| {
        let Pacing::Stream { depth } = point.pacing else {
            panic!("{point:?}")
        };
        let initiators = point.roles.initiators.unwrap();
        format!(
            "{} {initiators} {} {depth}",
            point.memories.memory, point.threads
        )
    };
    let cells: Vec<_> = points.iter().map(cell).collect();
    assert_eq!(cells.len(), 16);
    let first = [
        "huge 1 1 3",
        "huge 1 1 4",
        "huge 1 2 3",
        "huge 1 2 4",
        "huge 2 1 3",
    ];
    assert_eq!(cells[..5], first);
    assert_eq!(cells[8..10], ["host 1 1 3", "host 1 1 4"]);
}

#[test]
fn each_group_of_options_is_checked() {
    for (more, part) in cases([
        "depth = 0 => the smallest is 1",
        "trials = 0 => the fewest is trials 1",
        "footprint = 8 => use footprint 64 or more",
        "stride = 8 => use stride 64 or more",
        "footprint = '1T' => needs more than 1T in one rank: use footprint 512G or less",
        "threads = 0 => the fewest is threads 1",
        "threads = 1025 => the most is threads 1024",
        "rate = 2 => less than one operation in a trial of 200ms: use trial-time 1s or more",
        "seed = 7 => seed 7 changes nothing",
    ]) {
        let message = message_for(2, more);
        assert!(message.contains(part), "{more}: {message}");
    }
    assert!(message("engine = 'shm'\nop = 'write'\nsizes = '0,8'").contains("smallest is sizes 1"));
    for more in ["access = 'random'", "verify = true"] {
        assert_eq!(points(&format!("{WRITE}seed = 7\n{more}"))[0].slots.seed, 7);
    }
    assert_eq!(points(&format!("{WRITE}rate = 1\niters = 3")).len(), 1);
}

#[test]
fn a_plan_that_takes_days_is_refused() {
    let message = message("engine = 'shm'\nop = 'write'\nsizes = '1..4096+1'\nbatch = '1..25+1'");
    assert!(message.contains("more than 100000 points"), "{message}");
    message.holds("this transfer alone has 102400");
}

#[test]
fn errors_of_one_transfer_among_several_name_it() {
    let text = format!(
        "name = 'two'\n[[transfer]]\n{WRITE}[[transfer]]\nlabel = 'second'\n{WRITE}depth = 0\n"
    );
    Plan::from_toml(&text, "t")
        .unwrap()
        .transfer_points(2)
        .refused("transfer 2 (\"second\"): depth 0 would move nothing");
}

#[test]
fn the_same_point_twice_is_refused_unless_labels_tell_them_apart() {
    let twice = |more: &str| {
        let text = format!("name = 'two'\n[[transfer]]\n{WRITE}[[transfer]]\n{WRITE}{more}");
        Plan::from_toml(&text, "t").unwrap().transfer_points(2)
    };
    twice("")
        .refused("transfer 2: the same point is asked for twice (engine shm, op write, size 64)");
    assert_eq!(twice("label = 'again'").unwrap().len(), 2);
}

#[test]
fn a_label_is_one_line_of_text() {
    for bad in ["a\\nb", "\\u001b[31mred"] {
        let text = format!("name = 'n'\n[[transfer]]\n{WRITE}label = \"{bad}\"\n");
        let error = Plan::from_toml(&text, "t").unwrap().transfer_points(2);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("one line of text"), "{error}");
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
}

#[test]
fn plans_built_in_code_are_checked_too() {
    let nothing = Plan::default().transfer_points(2).unwrap_err().to_string();
    assert!(nothing.contains(
        "add a [[transfer]], a [[file]], a [[connect]], a [[stress]], a [[tune]] or a \
         [[collective]] table"
    ));
    let mut transfer = Transfer::default();
    let message = |transfer: &Transfer| {
        let plan = Plan {
            experiments: vec![transfer.clone().into()],
            ..Plan::default()
        };
        plan.transfer_points(2).unwrap_err().to_string()
    };
    assert!(message(&transfer).starts_with("engine is missing"));
    transfer.what.engine = Some(Many(vec!["shm".into()]));
    assert!(message(&transfer).starts_with("--op is required"));
    transfer.what.op = Some(Many(vec![Verb::Write]));
    assert!(message(&transfer).starts_with("--sizes is required"));
}

#[test]
fn scaling_a_plan_shortens_its_points_and_nothing_else() {
    let mut scaled = plan(WRITE);
    scaled.scale(0.1, 2).unwrap();
    let mut point = scaled.transfer_points(2).unwrap().remove(0);
    assert_eq!(point.length.trial, TrialLength::DurationNs(20_000_000));
    point.length.trial = TrialLength::DurationNs(200_000_000);
    assert_eq!(points(WRITE), [point]);
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        scaled
            .scale(wrong, 2)
            .refused("use a factor from 0.000000001 to 100000");
    }
}

#[test]
fn memories_are_known_by_name_and_a_ping_pong_needs_to_see_its_last_byte() {
    let lines = "engine = 'shm'\nop = ['write', 'read']\nsizes = 8\n";
    let unknown = message(&format!("{lines}memory = 'hugh'"));
    assert!(unknown.contains("did you mean \"huge\"?"), "{unknown}");
    let variant = message(&format!("{lines}memory = 'host:1'"));
    assert!(variant.contains("use memory host"), "{variant}");
    // An optional experiment may name a memory that another version has, but not a misspelled one.
    let optional = format!("{lines}optional = true\nmemory = ");
    let hip = points(&format!("{optional}['host', 'hip:1']"));
    assert!(hip.iter().any(|point| point.memories.memory == "hip:1"));
    assert!(message(&format!("{lines}memory = 'hip'")).starts_with("unknown memory \"hip\""));
    assert!(message(&format!("{optional}'hugh'")).contains("did you mean \"huge\"?"));
    let far = points(&format!("{lines}memory = 'far'"));
    assert!(far.iter().all(|point| point.memories.memory == "far"));
    let write = "engine = 'shm'\nop = 'write'\nsizes = 8\nmemory = 'far'\nping-pong = true";
    let unseen = message(write);
    unseen.holds("the CPU cannot read memory far: use op write-imm, or op send");
    let read = "engine = 'shm'\nop = 'read'\nsizes = 8\nmemory = 'far'\nping-pong = true";
    assert_eq!(points(read).len(), 1);
}

#[test]
fn every_row_of_conflicts_refuses_its_options_and_suggests_valid_ones() {
    let file = std::env::temp_dir().join(format!("tonnage-rows-{}", std::process::id()));
    std::fs::write(&file, "0 64\n64 0").unwrap();
    let traffic_file = format!("--traffic-file {}", file.display());
    let lines = Lines {
        base: "--engine shm --op write --sizes 64",
        samples: &[
            ("background", "--ping-pong --background op=write"),
            ("background-rate", "--ping-pong --background-rate 1k"),
            ("batch", "--batch 4"),
            ("bidirectional", "--bidirectional"),
            ("burst", "--burst 2"),
            ("checkpoint", "--duration 10s --checkpoint 1s"),
            ("cq event", "--cq event"),
            ("depth", "--depth 4"),
            ("duration", "--duration 5s"),
            ("gap", "--gap 8"),
            ("initiators", "--initiators 1"),
            ("interval", "--interval 100ms"),
            ("iters", "--iters 3"),
            ("latency off", "--latency off"),
            ("matrix", "--matrix alone"),
            ("max-duration", "--max-duration 5s"),
            ("ping-pong", "--ping-pong"),
            ("rate", "--rate 1000"),
            ("shift", "--shift 1"),
            ("stride", "--stride 64"),
            ("target-shift", "--target-shift 1"),
            ("traffic-file", &traffic_file),
            ("trial-time", "--trial-time 1s"),
            ("trials 1", "--trials 1"),
            ("until-ci", "--until-ci 2%"),
        ],
        lists: &LISTS,
    };
    lines.try_rows::<Transfer>(CONFLICTS);
    std::fs::remove_file(file).unwrap();
}
