use std::path::Path;
use std::sync::Arc;

use clap::CommandFactory;
use clap::error::ErrorKind;
use tonnage_engine::{Domain, Entry, Lifecycle, Lists, OpenRequest, Verb};
use tonnage_plan::point::Traffic;
use tonnage_plan::transfer::{Pacing, TransferPoint, TrialLength};
use tonnage_plan::{Plan, Point};
use tonnage_units::Error;

use super::*;

mod collectives;
mod file;
mod repeated;

use crate::args::common::Destination;
use crate::args::verify::Ranks;
use tonnage_bench::settings::Numa;
use tonnage_machine::CpuChoice;

fn closed(_: &OpenRequest<'_>) -> tonnage_units::Result<Vec<Arc<dyn Domain>>> {
    Err(Error::Failed(
        "tests of arguments open no engine".to_owned(),
    ))
}

static LISTS: Lists = Lists {
    engines: &ENGINES,
    ..tonnage_engines::LISTS
};

const ENGINES: [Entry; 2] = [
    Entry {
        name: "null",
        about: "",
        variant: None,
        options: &[],
        has_devices: false,
        libraries: &[],
        lifecycle: Lifecycle::NONE,
        device_memory: None,
        one_process: false,
        verbs: &Verb::ALL,
        ordered_writes: true,
        moves_bytes: false,
        open: closed,
    },
    Entry {
        name: "shm",
        about: "",
        variant: None,
        options: &[],
        has_devices: false,
        libraries: &[],
        lifecycle: Lifecycle::NONE,
        device_memory: None,
        one_process: false,
        verbs: &Verb::ALL,
        ordered_writes: true,
        moves_bytes: true,
        open: closed,
    },
];

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

/// The command of a kind.
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

/// Returns the message that a person sees when the command line is refused before a plan is made of it.
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
fn an_option_that_is_another_kind_is_refused_with_its_command() {
    let message = refused("tonnage transfer --engine shm --op write --stress");
    assert!(
        message.contains("unexpected argument '--stress'"),
        "{message}"
    );
    assert!(
        message.contains("'tonnage stress --engine NAME"),
        "{message}"
    );
    let stress = "stress --engine shm --ranks 2 --duration 2s";
    let flag = parse(&format!("tonnage --{stress}")).unwrap();
    assert_eq!(flag, parse(&format!("tonnage {stress}")).unwrap());
    let message = refused("tonnage transfer --engine shm --op write --interval -1s");
    assert!(message.contains("'-1s'"), "{message}");
}

/// The commands that are promised, and what each expands to.
#[test]
fn promised_commands_expand() {
    for (line, count) in [
        (
            "--engine shm --op read --ranks 2 --sizes 8..1M --batch 128",
            18,
        ),
        (
            "--engine shm --op write --ranks 2 --sizes 1k --batch 1..32768 -o r.jsonl",
            16,
        ),
        (
            "--engine shm --op write-imm --ranks 2 --sizes 8,4k --ping-pong --duration 2s",
            2,
        ),
        (
            "--engine shm --op write --ranks 2 --sizes 64 --window 64 --rate 200000 --duration 3s",
            1,
        ),
        (
            "--engine null --op write --ranks 2 --sizes 64 --window 64 --duration 1s",
            1,
        ),
        (
            "--engine shm --op write --ranks 2 --sizes 64,4k --window 1..64 --until-ci 2% --max-duration 5s --verify",
            14,
        ),
    ] {
        let plan = experiment(&format!("tonnage transfer {line}")).to_plan();
        assert_eq!(plan.ranks, Some(2));
        assert_eq!(expand(&plan, 2).len(), count, "{line}");
        assert_eq!(
            Plan::from_toml(&plan.to_toml().unwrap(), "printed").unwrap(),
            plan,
            "{line}"
        );
    }
}

/// Every key of a transfer can be said on the command line, and arrives under the same name.
#[test]
fn flags_are_the_keys_of_a_plan() {
    let base = "tonnage transfer --engine shm,null --op write,read --sizes 8..1M";
    let paced = " --label x --traffic fan-in --window 4 --rate 5k --workers 2 --memory huge --footprint 2M \
                 --target-footprint shared --stride 1M --gap 3 --addresses random --local-addresses fixed --seed 9 --latency on --verify --limit 100Gb/s --session on,fresh --trials 3 \
                 --trial-time 10ms --warmup 0 --until-ci 1% --max-duration 9s";
    let others = " --batch 7 --ping-pong --iters 5 --duration 4s";
    let plan = experiment(&format!("{base}{paced}{others}")).to_plan();
    let expected = "name = \"transfer\"\n\n[[transfer]]\nlabel = \"x\"\nengine = [\"shm\", \"null\"]\n\
        op = [\"write\", \"read\"]\ntraffic = \"fan-in\"\nsizes = \"8..1M\"\nworkers = 2\nwindow = 4\nbatch = 7\n\
        ping-pong = true\nrate = \"5000\"\nsession = [\"on\", \"fresh\"]\nmemory = \"huge\"\nfootprint = \"2M\"\ntarget-footprint = \"shared\"\nstride = \"1M\"\n\
        gap = \"3\"\naddresses = \"random\"\nlocal-addresses = \"fixed\"\nseed = 9\nlatency = true\nverify = true\nlimit = \"12.5GB/s\"\ntrials = 3\n\
        trial-time = \"10ms\"\niters = 5\nduration = \"4s\"\nwarmup = \"0ns\"\nuntil-ci = \"1%\"\n\
        max-duration = \"9s\"\n";
    assert_eq!(plan.to_toml().unwrap(), expected);
}

#[test]
fn wrong_values_are_refused_in_our_words() {
    let base = "tonnage transfer --engine shm --op write --sizes 8";
    for (more, part) in [
        (
            "--window 8..64+0",
            "never ends, for its step is 0: write 8..64+8",
        ),
        ("--traffic fanout", "did you mean \"fan-out\"?"),
        ("--rate -5", "\"-5\" is not a rate"),
        ("--batch -1", "\"-1\" is not a number of bytes"),
        ("--until-ci 2", "write it with its sign, like 2%"),
        ("--duration 5", "write a duration with its unit"),
        ("--latency maybe", "write on or off"),
        ("--limit fast", "write auto, none or a bandwidth"),
        ("--cpus 3-1", "goes down"),
        ("--numa x", "write auto, none or a number"),
        ("--scale 0", "write a number above 0"),
        ("--windw 8", "--window"),
        ("--format tabel", "table"),
    ] {
        let message = refused(&format!("{base} {more}"));
        assert!(message.contains(part), "{more}: {message}");
    }
    let message = refused("tonnage transfer --engine shm --op wirte --sizes 8");
    assert!(message.contains("did you mean \"write\"?"), "{message}");
    assert!(refused("tonnage transfer --op write --sizes 8").contains("--engine"));
    assert!(refused("tonnage transferr").contains("transfer"));
}

#[test]
fn an_engine_that_is_not_there_is_refused_with_the_plan() {
    let plan = experiment("tonnage transfer --engine shmm --op write --sizes 8").to_plan();
    let error = plan.points(2, &LISTS).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("did you mean \"shm\"?"));
}

#[test]
fn where_ranks_run_is_read() {
    let args = experiment(
        "tonnage transfer --engine shm --op write --sizes 8 --cpus 0-1 --numa none --interface lo --ranks 4",
    );
    let expected = common::RankArgs {
        ranks: Some(4),
        cpus: Some(CpuChoice::List(vec![0, 1])),
        numa: Numa::None,
        interface: Some("lo".to_owned()),
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
    let all = ["--rank 1", "--size 2", "--master a:7"];
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
fn resuming_into_another_file_is_refused() {
    let base = "tonnage transfer --engine shm --op write --sizes 8";
    let results = |more: &str| experiment(&format!("{base} {more}")).results;
    let to = |path, resume| {
        Some(Destination {
            path: Path::new(path),
            resume,
        })
    };
    assert_eq!(results("").destination().unwrap(), None);
    assert_eq!(
        results("-o a.jsonl").destination().unwrap(),
        to("a.jsonl", false)
    );
    assert_eq!(
        results("--resume a.jsonl").destination().unwrap(),
        to("a.jsonl", true)
    );
    assert_eq!(
        results("-o a.jsonl --resume a.jsonl")
            .destination()
            .unwrap(),
        to("a.jsonl", true)
    );
    let error = results("-o a.jsonl --resume b.jsonl");
    let error = error.destination().unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(
        error.to_string().contains("name different files"),
        "{error}"
    );
}

#[test]
fn a_plan_file_can_be_run_with_other_engines_and_ranks() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../plans/mori-io-write.toml"
    );
    let run = |ranks, more: &str| match parse(&format!("tonnage run {path} {more}"))
        .unwrap()
        .command
    {
        Some(Command::Run(args)) => {
            let (plan, _) = args.to_plan().unwrap();
            args.results.scaled(plan, ranks).unwrap()
        }
        other => panic!("not a run: {other:?}"),
    };
    assert_eq!(run(2, "").ranks, Some(2));
    let plan = run(4, "--engine null --ranks 4 --scale 0.5");
    assert_eq!(plan.ranks, Some(4));
    let points = expand(&plan, 4);
    assert!(points.iter().all(|point| point.engine == "null"));
    assert!(
        points
            .iter()
            .all(|point| point.length.trial == TrialLength::DurationNs(100_000_000))
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
    let points = plan.points(2, &tonnage_engines::LISTS).unwrap();
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
    let plan = verify("").to_plan(&LISTS, Ranks::of(None, 2)).unwrap();
    let points = expand(&plan, 2);
    assert!(points.iter().all(|point| {
        point.engine == "shm"
            && point.verify.is_on()
            && point.pacing == Pacing::Batch { batch: 4 }
            && point.length.trials == 1
    }));
    let of = |verb: Verb| points.iter().filter(move |point| point.op == verb);
    for verb in [Verb::FetchAdd, Verb::CompareSwap] {
        let atomics: Vec<_> = of(verb).collect();
        assert_eq!(atomics.len(), 1);
        assert_eq!((atomics[0].size_bytes, atomics[0].slots()), (8, 2));
        assert_eq!(atomics[0].length.trial, TrialLength::Iterations(256));
    }
    for verb in Verb::COPYING {
        assert!(of(verb).all(|point| point.length.trial == TrialLength::Iterations(1)));
        for size in [1, 3, 7, 63, 64, 65, 4095, 4096, 4097, 65535, 1_048_577] {
            let found = points
                .iter()
                .any(|point| (point.op, point.size_bytes) == (verb, size));
            // Pages are larger on some machines; then the sizes around 4096 are others.
            assert!(found || size.abs_diff(4096) <= 1, "{verb:?} of {size}");
        }
    }
}

/// Traffic in which pairs take turns has no contention, and whoever asks for no operation gets what there is.
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
fn verify_of_what_cannot_be_verified_says_so() {
    let message = |line: &str| {
        let plan = verify(line).to_plan(&LISTS, Ranks::of(None, 2));
        let points = plan.and_then(|plan| plan.points(2, &LISTS));
        points.unwrap_err().to_string()
    };
    assert!(message("--engine null").contains("moves no bytes"));
    assert!(message("--engine shn").contains("did you mean \"shm\"?"));
    assert!(message("--sizes 0").contains("the smallest size is 1"));
    let plan = verify("--op read --sizes 8..64 --traffic fan-out --ranks 3")
        .to_plan(&LISTS, Ranks::of(None, 3))
        .unwrap();
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
            points.iter().all(|point| point.traffic == traffic),
            "{ranks}"
        );
    }
}
