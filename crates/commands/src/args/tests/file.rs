//! `tonnage file`, and plans with files.

use tonnage_plan::files::{FileJob, FileLayout, FilePoint, Phase, ReadFrom, StripeCount, Verify};
use tonnage_plan::{Experiment, Plan, Point};

use super::super::*;
use super::{LISTS, experiment, parse, shipped};

fn file(line: &str) -> ExperimentArgs {
    experiment(&format!("tonnage file {line}"))
}

fn points(line: &str) -> Vec<FilePoint> {
    let plan = file(line).to_plan();
    expand(&plan, plan.ranks.unwrap_or(1))
}

fn expand(plan: &Plan, ranks: u32) -> Vec<FilePoint> {
    let planned = plan.points(ranks, &LISTS).unwrap();
    let points = planned.into_iter().map(|planned| match planned.point {
        Point::File(point) => point,
        other => panic!("{other:?}"),
    });
    points.collect()
}

fn job(plan: &Plan) -> FileJob {
    match &plan.experiments[0] {
        Experiment::File(job) => (**job).clone(),
        other => panic!("{other:?}"),
    }
}

/// Promised commands must expand.
#[test]
fn promised_commands_expand() {
    let points = points(
        "--ranks 2 --path t.dat --layout per-process --block 4m --transfer 4m --segments 64 --phases write,read \
         --fsync end --barriers",
    );
    assert_eq!(points.len(), 1);
    assert_eq!(points[0].bytes_of_rank(), 256 << 20);
    assert_eq!(points[0].layout, FileLayout::PerProcess);
    let args = file(
        "--ranks 2 --engine uring --direct --path t.dat --block 256m --transfer 4k --order shuffled --depth 32 \
         --stonewall 5s",
    );
    let job = &job(&args.to_plan());
    assert_eq!(job.how.engine.as_ref().unwrap().values(), ["uring"]);
    assert_eq!(job.how.depth.as_ref().unwrap().values(), [32]);
}

/// Every key of a file experiment must have an option of the same name, except published figures.
#[test]
fn flags_are_the_keys_of_a_plan() {
    let plan = file(
        "--label x --engine posix,uring --engine-option a=b --hint c=d --hint e=f=g --path p,q --path r \
         --layout per-process --directory-per-rank --file-per-trial --block 8M --transfer 4k,1M --segments 3 \
         --order shuffled --seed 7 --phases write,mixed --read-percent 70 --read-shift 1 --read-shuffled 4 \
         --fsync each --direct --collective --file-view --barriers --keep --existing --threads 2 --depth 1..8 \
         --stonewall 30s --wear-out --wear-out-transfers 5 --stonewall-status s --prefill --data compressible=30% \
         --data-seed 9 --verify=write,mixed --drop-caches --stripe-count all --stripe-size 8M --outlier 2s --trials 3 \
         --delay 1s --max-duration 1h --bound 2GB/s",
    )
    .to_plan();
    let expected = "name = \"file\"\n\n[[file]]\nlabel = \"x\"\npath = [\"p,q\", \"r\"]\n\
        layout = \"per-process\"\ndirectory-per-rank = true\nfile-per-trial = true\nkeep = true\nexisting = true\n\
        prefill = true\nstripe-count = \"all\"\nstripe-size = \"8M\"\nengine = [\"posix\", \"uring\"]\n\
        engine-options = { a = \"b\" }\nhints = { c = \"d\", e = \"f=g\" }\ndirect = true\nfsync = \"each\"\n\
        collective = true\nfile-view = true\nbarriers = true\nthreads = 2\ndepth = \"1..8\"\ndrop-caches = true\n\
        block = \"8M\"\ntransfer = \"4k,1M\"\nsegments = 3\nphases = [\"write\", \"mixed\"]\nread-percent = 70\n\
        order = \"shuffled\"\nseed = 7\nread-shift = 1\nread-shuffled = 4\ndata = \"compressible=30%\"\n\
        data-seed = 9\nverify = [\"write\", \"mixed\"]\nstonewall = \"30s\"\nwear-out = true\n\
        wear-out-transfers = 5\nstonewall-status = \"s\"\ntrials = 3\ndelay = \"1s\"\nmax-duration = \"1h\"\n\
        outlier = \"2s\"\nbound = \"2GB/s\"\n";
    assert_eq!(plan.to_toml().unwrap(), expected);
    assert_eq!(Plan::from_toml(expected, "printed").unwrap(), plan);
    let bare = file("--path p --verify --read-shuffled --stripe-count 4").to_plan();
    let job = &job(&bare);
    assert_eq!(job.data.verify, Some(Verify::Last));
    assert_eq!(job.work.read_shuffled.map(|seed| seed.0), Some(1));
    assert_eq!(job.files.stripe_count, Some(StripeCount::Targets(4)));
}

#[test]
fn a_plan_with_files_is_scaled_to_the_ranks_and_moved() {
    let plan = |ranks, more: &str| shipped("cori-lustre-posix", ranks, more);
    let small = plan(2, "--scale 0.00001 --ranks 2 --path cori");
    assert_eq!(small.ranks, Some(2));
    let points = expand(&small, 2);
    assert_eq!(points.len(), 2);
    let is_small = |point: &FilePoint| point.segments == 31 && point.paths == ["cori-lustre-posix"];
    assert!(points.iter().all(is_small));
    assert_eq!(points[0].phases, [Phase::Write]);
    assert_eq!(points[1].read_from, ReadFrom::Shift { ranks: 1 });
    // Without `--scale`, every rank moves the plan's full amount, even if a launcher has started more ranks.
    let points = expand(&plan(8, "--path elsewhere/ --engine uring"), 8);
    assert_eq!(points[0].segments, 1638);
    assert_eq!(points[1].paths, ["elsewhere/lustre-posix"]);
    assert_eq!(points[1].engine, "uring");
    assert_eq!(points[1].read_from, ReadFrom::Shift { ranks: 4 });
}

#[test]
fn the_place_of_files_needs_a_plan_with_files() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../plans/mori-io-write.toml"
    );
    let line = format!("tonnage run {path} --path cori");
    let Some(Command::Run(args)) = parse(&line).unwrap().command else {
        panic!("not a run");
    };
    let message = args.to_plan().unwrap_err().to_string();
    assert!(
        message.contains("path cori has no effect on a plan without files"),
        "{message}"
    );
}
