use clap::CommandFactory;
use clap::error::ErrorKind;
use tonnage_engine::Verb;
use tonnage_engines::LISTS;
use tonnage_plan::point::Traffic;
use tonnage_plan::transfer::{Pacing, TransferPoint, TrialLength};
use tonnage_plan::{Plan, Point};

use super::*;

mod collectives;
mod file;
mod repeated;

use crate::args::verify::Ranks;
use tonnage_bench::settings::Numa;
use tonnage_machine::CpuChoice;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

/// Parses a command line of a kind.
fn experiment(line: &str) -> ExperimentArgs {
    match parse(line).unwrap().command {
        Some(Command::Experiment(args)) => *args,
        other => panic!("{line} is no experiment: {other:?}"),
    }
}

fn expand(plan: &Plan, ranks: u32) -> Vec<TransferPoint> {
    let planned = plan.points(ranks, &LISTS).unwrap();
    let points = planned.into_iter().map(|planned| match planned.point {
        Point::Transfer(point) => point,
        other => panic!("{other:?}"),
    });
    points.collect()
}

/// Returns the message for a command line that the parser refuses.
fn refused(line: &str) -> String {
    let error = parse(line).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
    assert_eq!(parse("tonnage").unwrap().command, None);
    assert_eq!(
        parse("tonnage --help").unwrap_err().kind(),
        ErrorKind::DisplayHelp
    );
}

#[test]
fn a_stress_may_be_a_flag() {
    let stress = "stress --engine shm --ranks 2 --duration 2s";
    let flag = parse(&format!("tonnage --{stress}")).unwrap();
    assert_eq!(flag, parse(&format!("tonnage {stress}")).unwrap());
}

/// Promised commands must expand to the given number of points.
#[test]
fn promised_commands_expand() {
    for (count, line) in [
        (18, "shm --op read --sizes 8..1M --batch 128"),
        (16, "shm --op write --sizes 1k --batch 1..32768 -o r.jsonl"),
        (
            2,
            "shm --op write-imm --sizes 8,4k --ping-pong --duration 2s",
        ),
        (
            1,
            "shm --op write --sizes 64 --depth 64 --rate 200000 --duration 3s",
        ),
        (1, "null --op write --sizes 64 --depth 64 --duration 1s"),
        (
            14,
            "shm --op write --sizes 64,4k --depth 1..64 --until-ci 2% --max-duration 5s --verify",
        ),
    ] {
        let plan = experiment(&format!("tonnage transfer --ranks 2 --engine {line}")).to_plan();
        assert_eq!(plan.ranks, Some(2));
        assert_eq!(expand(&plan, 2).len(), count, "{line}");
        let printed = plan.to_toml().unwrap();
        assert_eq!(
            Plan::from_toml(&printed, "printed").unwrap(),
            plan,
            "{line}"
        );
    }
}

/// Every key of a transfer must have an option of the same name.
#[test]
fn flags_are_the_keys_of_a_plan() {
    let base = "tonnage transfer --engine shm,null --op write,read --sizes 8..1M";
    let paced = " --label x --traffic fan-in --depth 4 --rate 5k --threads 2 --memory huge --footprint 2M \
                 --target-footprint shared --stride 1M --gap 3 --access random --local-access fixed --seed 9 --latency on --verify --bound 100Gb/s --session on,fresh --trials 3 \
                 --trial-time 10ms --warmup 0 --until-ci 1% --max-duration 9s";
    let others = " --batch 7 --ping-pong --iters 5 --duration 4s";
    let plan = experiment(&format!("{base}{paced}{others}")).to_plan();
    let expected = "name = \"transfer\"\n\n[[transfer]]\nlabel = \"x\"\nengine = [\"shm\", \"null\"]\n\
        op = [\"write\", \"read\"]\ntraffic = \"fan-in\"\nsizes = \"8..1M\"\nthreads = 2\ndepth = 4\nbatch = 7\n\
        ping-pong = true\nrate = \"5000\"\nsession = [\"on\", \"fresh\"]\nmemory = \"huge\"\nfootprint = \"2M\"\ntarget-footprint = \"shared\"\nstride = \"1M\"\n\
        gap = \"3\"\naccess = \"random\"\nlocal-access = \"fixed\"\nseed = 9\nlatency = true\nverify = true\nbound = \"12.5GB/s\"\ntrials = 3\n\
        trial-time = \"10ms\"\niters = 5\nduration = \"4s\"\nwarmup = \"0ns\"\nuntil-ci = \"1%\"\n\
        max-duration = \"9s\"\n";
    assert_eq!(plan.to_toml().unwrap(), expected);
}

#[test]
fn where_ranks_run_is_read() {
    let args = experiment(
        "tonnage transfer --engine shm --op write --sizes 8 --cpus 0-1 --numa none --control-interface lo --ranks 4",
    );
    let expected = common::RankArgs {
        ranks: Some(4),
        cpus: Some(CpuChoice::List(vec![0, 1])),
        numa: Numa::None,
        control_interface: Some("lo".to_owned()),
        ..common::RankArgs::default()
    };
    assert_eq!(args.ranks, expected);
    assert!(args.ranks.explicit().is_none());
    let level = |line| parse(line).unwrap().log_level;
    assert_eq!(
        level("tonnage devices --json --log-level debug"),
        LogLevel::Debug
    );
    assert_eq!(level("tonnage"), LogLevel::Warn);
}

#[test]
fn a_place_in_the_run_is_stated_wholly_or_not_at_all() {
    let base = "tonnage transfer --engine shm --op write --sizes 8";
    let all = ["--rank 1", "--world-size 2", "--master a:7"];
    let args = experiment(&format!("{base} {}", all.join(" ")));
    let explicit = args.ranks.explicit().unwrap();
    assert_eq!((explicit.rank, explicit.size), (1, 2));
    assert_eq!((explicit.host.as_str(), explicit.port), ("a", 7));
    for left_out in 0..3 {
        let mut some = all.to_vec();
        let missing = some.remove(left_out).split(' ').next().unwrap();
        let message = refused(&format!("{base} {}", some.join(" ")));
        assert!(message.contains(missing), "{message}");
        let message = refused(&format!("{base} {}", all[left_out]));
        assert!(message.contains("required"), "{message}");
    }
}

#[test]
fn results_go_to_one_file() {
    for (more, expected) in [
        ("", None),
        ("-o a.jsonl", Some(false)),
        ("--resume a.jsonl", Some(true)),
        ("-o a.jsonl --resume a.jsonl", Some(true)),
    ] {
        let line = format!("tonnage transfer --engine shm --op write --sizes 8 {more}");
        let output = experiment(&line).results.output().unwrap();
        assert_eq!(
            output,
            expected.map(|resume| ("a.jsonl".into(), resume)),
            "{more}"
        );
    }
}

/// Loads a shipped plan with these options, scaled for this number of ranks.
fn shipped(name: &str, ranks: u32, more: &str) -> Plan {
    let plans = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans");
    match parse(&format!("tonnage run {plans}/{name}.toml {more}"))
        .unwrap()
        .command
    {
        Some(Command::Run(args)) => {
            let (plan, _) = args.to_plan().unwrap();
            args.results.scaled(plan, ranks).unwrap()
        }
        other => panic!("not a run: {other:?}"),
    }
}

#[test]
fn a_plan_file_can_be_run_with_other_engines_and_ranks() {
    assert_eq!(shipped("mori-io-write", 2, "").ranks, Some(2));
    let plan = shipped("mori-io-write", 4, "--engine null --ranks 4 --scale 0.5");
    assert_eq!(plan.ranks, Some(4));
    let length = TrialLength::DurationNs(100_000_000);
    let points = expand(&plan, 4);
    assert!(
        points
            .iter()
            .all(|it| it.engine == "null" && it.length.trial == length)
    );
}

#[test]
fn the_tour_carries_its_plan() {
    let plan = TourArgs {
        scale: Some(0.1),
        ..TourArgs::default()
    }
    .to_plan()
    .unwrap();
    assert_eq!(plan.name, "tour");
    let points = plan.points(2, &LISTS).unwrap();
    assert!(!points.is_empty());
}

fn verify(line: &str) -> VerifyArgs {
    match parse(&format!("tonnage verify {line}")).unwrap().command {
        Some(Command::Verify(args)) => args,
        other => panic!("not a verify: {other:?}"),
    }
}

#[test]
fn verify_moves_every_operation_once_at_many_sizes() {
    let plan = |line: &str| verify(line).to_plan(&LISTS, Ranks::of(None, 2)).unwrap();
    let all = expand(&plan(""), 2);
    let has = |engine: &str| all.iter().any(|point| point.engine == engine);
    assert!(has("shm") && has("fabric:tcp") && !has("null"));
    let points = expand(&plan("--engine shm"), 2);
    assert!(points.iter().all(|point| {
        point.verify.is_on()
            && point.pacing == Pacing::Batch { batch: 4 }
            && point.length.trials == 1
    }));
    let of = |verb: Verb| points.iter().filter(move |point| point.op == verb);
    for verb in [Verb::FetchAdd, Verb::CompareSwap] {
        let atomics: Vec<_> = of(verb).collect();
        assert_eq!(atomics.len(), 1);
        assert_eq!(
            (atomics[0].slots.size_bytes, atomics[0].slots.count()),
            (8, 2)
        );
        assert_eq!(atomics[0].length.trial, TrialLength::Iterations(256));
    }
    for verb in Verb::COPYING {
        assert!(of(verb).all(|point| point.length.trial == TrialLength::Iterations(1)));
        for size in [1, 3, 7, 63, 64, 65, 4095, 4096, 4097, 65535, 1_048_577] {
            let found = points
                .iter()
                .any(|point| (point.op, point.slots.size_bytes) == (verb, size));
            // On machines with larger pages, the sizes around 4096 differ.
            assert!(found || size.abs_diff(4096) <= 1, "{verb:?} of {size}");
        }
    }
}

/// In a matrix, pairs take turns. There is no contention, so atomic operations are left out by default.
#[test]
fn verify_takes_every_traffic() {
    for traffic in Traffic::ALL.into_iter().filter(|&it| it != Traffic::File) {
        let line = format!("--traffic {} --engine shm", traffic.name());
        let plan = verify(&line).to_plan(&LISTS, Ranks::of(None, 4)).unwrap();
        let ops = expand(&plan, 4)
            .iter()
            .filter(|it| it.op.is_atomic())
            .count();
        assert_eq!(
            ops,
            if traffic == Traffic::Matrix { 0 } else { 2 },
            "{line}"
        );
    }
}

#[test]
fn verify_runs_only_the_named_operations() {
    let line = "--op read --engine shm --sizes 8..64 --traffic fan-out --ranks 3";
    let plan = verify(line).to_plan(&LISTS, Ranks::of(None, 3)).unwrap();
    assert_eq!(plan.ranks, Some(3));
    assert_eq!(expand(&plan, 3).len(), 4);
}

#[test]
fn verify_leaves_no_rank_out() {
    for (ranks, traffic) in [(2, Traffic::Pair), (3, Traffic::AllToAll)] {
        let plan = verify("--sizes 8")
            .to_plan(&LISTS, Ranks::of(None, ranks))
            .unwrap();
        let points = expand(&plan, ranks);
        assert!(
            points.iter().all(|point| point.roles.traffic == traffic),
            "{ranks}"
        );
    }
}

#[test]
fn json_is_the_format_of_each_command_that_has_one() {
    for (line, json) in [
        ("show r.jsonl", "Jsonl"),
        ("compare a.jsonl", "Json"),
        ("history r.jsonl", "Json"),
        ("run tour", "Jsonl"),
        ("transfer --engine shm --op write", "Jsonl"),
    ] {
        for option in ["--json", "-j"] {
            let parsed = parse(&format!("tonnage {line} {option}")).unwrap();
            assert!(
                format!("{parsed:?}").contains(&format!("format: {json},")),
                "{parsed:?}"
            );
        }
        let both = format!("tonnage {line} --json --format csv");
        assert_eq!(
            parse(&both).unwrap_err().kind(),
            ErrorKind::ArgumentConflict
        );
    }
}

#[test]
fn the_commonest_options_have_letters() {
    let letters = "tonnage transfer --engine verbs:rc --op write -s 8,64 -d mlx5_0 -H n1,n2 -j";
    let names = "tonnage transfer --engine verbs:rc --op write --sizes 8,64 --devices mlx5_0 --hosts n1,n2 --json";
    assert_eq!(parse(letters).unwrap(), parse(names).unwrap());
}
