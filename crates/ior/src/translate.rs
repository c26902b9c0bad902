//! Translates IOR's options to a plan with one file experiment.
//!
//! This module alone defines the meaning of each option. The experiment itself is checked when the plan is expanded, as
//! for every plan.

use std::collections::BTreeMap;

use tonnage_plan::Plan;
use tonnage_plan::files::{
    DataOptions, FileJob, FileLengthOptions, FilesOptions, HowOptions, ReadShift, ResultsOptions,
    StripeCount, Verify, WorkOptions,
};
use tonnage_plan::files::{FileLayout, FileOrder, Fsync, Phase};
use tonnage_plan::options::Many;
use tonnage_plan::skipping::SkippingOptions;
use tonnage_plan::sweep::Sweep;
use tonnage_units::{Bytes, Count, Nanos};
use tonnage_units::{Error, Result};

use super::options::{Api, IorOptions, Stripes};

/// Placement of the ranks on hosts. It contains only facts that all ranks know, because ranks with different plans
/// refuse to join each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankPlacement {
    /// Number of all ranks.
    pub ranks: u32,
    /// True if all ranks are known to share a host before they join.
    pub one_host: bool,
}

/// Returns the plan for a checked command line, with the given MPI-IO hints.
pub fn plan(
    options: &IorOptions,
    hints: BTreeMap<String, String>,
    placement: &RankPlacement,
) -> Result<Plan> {
    let files = FilesOptions {
        path: options.paths().into_iter().map(str::to_owned).collect(),
        layout: Some(if options.file_per_process {
            FileLayout::PerProcess
        } else {
            FileLayout::Shared
        }),
        directory_per_rank: options.directory_per_rank,
        file_per_trial: options.file_per_repetition,
        keep: options.keep,
        existing: options.existing,
        prefill: options.prefill_bytes > 0,
        stripe_count: options.stripe_count.map(stripes).transpose()?,
        stripe_size: options.stripe_bytes.map(Bytes),
        ..FilesOptions::default()
    };
    let data = DataOptions {
        data_seed: signature(options).map(seed),
        verify: verify(options),
        ..DataOptions::default()
    };
    let length = FileLengthOptions {
        stonewall: time("-D", options.stonewall_s, 1)?,
        wear_out: options.wear_out,
        wear_out_transfers: nonzero(options.wear_out_transfers).map(Count),
        stonewall_status: options.status_file.clone(),
        trials: Some(Count(options.repetitions)),
        delay: time("-d", options.delay_s, 1)?,
        max_duration: time("-T", options.duration_minutes_max, 60)?,
    };
    let results = ResultsOptions {
        outlier: time("-j", options.outlier_s, 1)?,
        ..ResultsOptions::default()
    };
    let job = FileJob {
        files,
        work: work(options, placement)?,
        how: how(options, hints),
        data,
        length,
        results,
        skipping: SkippingOptions::default(),
    };
    Ok(Plan {
        name: "ior".to_owned(),
        ranks: Some(placement.ranks),
        experiments: vec![job.into()],
        ..Plan::default()
    })
}

fn work(options: &IorOptions, placement: &RankPlacement) -> Result<WorkOptions> {
    Ok(WorkOptions {
        block: Some(Sweep::from_values(&[options.block_bytes])?),
        transfer: Some(Sweep::from_values(&[options.transfer_bytes])?),
        segments: Some(Count(options.segments)),
        phases: Some(phases(options)),
        order: Some(if options.shuffled > 0 {
            FileOrder::Shuffled
        } else {
            FileOrder::Sequential
        }),
        // -1 is IOR's default and leaves the choice of the seed to the program.
        seed: options.shuffle_seed.filter(|&seed| seed != -1).map(seed),
        read_shift: shift(options, placement)?,
        read_shuffled: (options.reorder_random > 0 && options.reads())
            .then(|| seed(options.reorder_seed)),
        ..WorkOptions::default()
    })
}

fn how(options: &IorOptions, hints: BTreeMap<String, String>) -> HowOptions {
    let preallocate = || ("preallocate".to_owned(), "on".to_owned());
    HowOptions {
        engine: Some(vec![engine(options.api).to_owned()].into()),
        engine_options: options.preallocate.then(preallocate).into_iter().collect(),
        hints: hints.into_iter().collect(),
        direct: options.direct,
        fsync: Some(fsync(options)),
        collective: options.collective,
        file_view: options.file_view,
        barriers: options.barriers,
        ..HowOptions::default()
    }
}

fn engine(api: Api) -> &'static str {
    match api {
        Api::Posix => "posix",
        Api::Mpiio => "mpiio",
        Api::Uring => "uring",
    }
}

fn phases(options: &IorOptions) -> Many<Phase> {
    let write = options.writes().then_some(Phase::Write);
    let read = options.reads().then_some(Phase::Read);
    write.into_iter().chain(read).collect()
}

fn verify(options: &IorOptions) -> Option<Verify> {
    let write = options.check_write.then_some(Phase::Write);
    let read = options.check_read.then_some(Phase::Read);
    let after: Vec<Phase> = write.into_iter().chain(read).collect();
    (!after.is_empty()).then_some(Verify::After(after))
}

/// Returns the seed of the data, or `None` if the run neither writes nor verifies. IOR's scripts pass the same options
/// to the writing and the reading run, so an unneeded seed is not an error.
fn signature(options: &IorOptions) -> Option<i64> {
    let used = options.writes() || options.prefill_bytes > 0 || verify(options).is_some();
    options.signature.filter(|_| used)
}

/// Converts a number to a seed. A negative one keeps its 32-bit pattern, as in IOR.
fn seed(number: i64) -> Count {
    let negative = || u64::from((number as i32).cast_unsigned());
    Count(u64::try_from(number).unwrap_or_else(|_| negative()))
}

/// Returns when data is synced. `-Y` syncs after every write, the last one included, so it implies `-e`. A run that
/// only reads has nothing to sync.
fn fsync(options: &IorOptions) -> Fsync {
    if !options.writes() {
        return Fsync::None;
    }
    match (options.fsync_each, options.fsync) {
        (true, _) => Fsync::Each,
        (false, true) => Fsync::End,
        (false, false) => Fsync::None,
    }
}

/// Returns the distance from this rank to the rank that wrote the data it reads, or `None` without `-C`. The distance
/// is Q nodes, as in IOR. If all ranks share a node, it is Q ranks instead; IOR would silently read the rank's own
/// data. Nodes become ranks only when all ranks have joined, because the number of ranks per node is not known earlier.
fn shift(options: &IorOptions, placement: &RankPlacement) -> Result<Option<ReadShift>> {
    if !options.reorder || !options.reads() {
        return Ok(None);
    }
    let ranks = u64::from(placement.ranks.max(1));
    let nodes_behind = options.nodes_behind();
    if ranks == 1 {
        return Err(Error::Usage(
            "-C reads another task's data, but there is only one task: start more, e.g. `--ranks 2`, or leave -C out".to_owned(),
        ));
    }
    if placement.one_host && nodes_behind.is_multiple_of(ranks) {
        return Err(Error::Usage(format!(
            "-C -Q {nodes_behind} leads back to a task's own data, because one node has only {ranks} tasks: use -Q 1"
        )));
    }
    Ok(Some(ReadShift::Nodes(nodes_behind)))
}

fn stripes(stripes: Stripes) -> Result<StripeCount> {
    match stripes {
        Stripes::All => Ok(StripeCount::All),
        Stripes::Targets(targets) => {
            u32::try_from(targets)
                .map(StripeCount::Targets)
                .map_err(|_| {
                    Error::Usage(format!(
                        "a stripe count of {targets} is too large: use -1 for all targets"
                    ))
                })
        }
    }
}

/// Returns `None` for zero, which means "none" in IOR.
fn nonzero(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}

fn time(option: &str, value: u64, unit_s: u64) -> Result<Option<Nanos>> {
    let ns = value.checked_mul(unit_s * 1_000_000_000);
    let ns = ns.ok_or_else(|| {
        Error::Usage(format!(
            "{option} {value} is too long: use a smaller number"
        ))
    })?;
    Ok(nonzero(ns).map(Nanos))
}

#[cfg(test)]
mod tests {
    use tonnage_engines::LISTS;
    use tonnage_plan::Point;
    use tonnage_plan::files::ReadFrom;

    use super::*;
    use crate::options::{check, words};

    const TWO: RankPlacement = RankPlacement {
        ranks: 2,
        one_host: true,
    };

    fn translate(line: &str, placement: &RankPlacement) -> Result<Plan> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let options = words::read(&words, &[])?.ior;
        check::check(&options)?;
        plan(&options, BTreeMap::new(), placement)
    }

    fn toml(line: &str) -> String {
        let plan = translate(line, &TWO).unwrap();
        assert_eq!(
            Plan::from_toml(&plan.to_toml().unwrap(), "printed").unwrap(),
            plan
        );
        plan.to_toml().unwrap()
    }

    /// The command lines of the report on Cori, and every option that they do not use.
    #[test]
    fn command_lines_are_plans() {
        let lines = [
            "-w -a POSIX -F -C -e -g -k -b 4m -t 4m -s 1638 -o s/IOR_file -v",
            "-r -a POSIX -F -C -e -g -b 4m -t 4m -s 1638 -o s/IOR_file -v",
            "-w -a MPIIO -c -C -g -b 8m -t 8m -k -H -v -s 51 -o s/IOR_file",
            "-a POSIX -F -e -g -t 4k -b 1g -o s/IOR_file -v -z",
            "-a uring -F -u -m -E -B -Y -z --random-offset-seed 5 --randomPrefill 1m -Z -X 9 -i 3 -d 2 -T 4 -D 30 \
             -O stoneWallingWearOut=1,stoneWallingWearOutIterations=7,stoneWallingStatusFile=st -k -j 6 -G 11 -W -R -w \
             --posix.lustre.stripecount=-1 --posix.lustre.stripesize 1m -b 2m -t 1m -s 2 -o d/f",
            "-a MPIIO -V -p -o d/f",
        ];
        let plans = lines.map(|line| format!("# {line}\n\n{}", toml(line)));
        insta::assert_snapshot!(plans.join("\n"));
    }

    /// Each rank knows only its own host. Even if hosts have different numbers of ranks, all ranks must compute the
    /// same plan.
    #[test]
    fn data_is_read_from_another_node_or_on_one_node_from_another_rank() {
        for (line, hosts, expected) in [
            ("-C", "aa", 1),
            ("-C", "aaaabbbb", 4),
            ("-C -Q 2", "aaaabbbbcccc", 8),
            ("-C -Q 3", "aaaaaaaa", 3),
            ("-C -Q 5", "aaaabbbbccccdddd", 4),
            ("-C", "aaab", 3),
            ("-C", "abab", 1),
        ] {
            let hosts: Vec<char> = hosts.chars().collect();
            let placement = RankPlacement {
                ranks: hosts.len() as u32,
                one_host: false,
            };
            let mut plan = translate(line, &placement).unwrap();
            assert!(plan.counts_nodes());
            plan.resolve_nodes(&hosts).unwrap();
            let planned = plan.points(placement.ranks, &LISTS).unwrap();
            let Point::File(point) = &planned[0].point else {
                panic!("{planned:?}");
            };
            let expected = ReadFrom::Shift { ranks: expected };
            assert_eq!(point.read_from, expected, "{line} {hosts:?}");
        }
        for (line, ranks, part) in [
            ("-C", 1, "--ranks 2"),
            ("-C -Q 2", 2, "use -Q 1"),
            ("-C -Q 6", 3, "use -Q 1"),
        ] {
            let one_host = true;
            let error = translate(line, &RankPlacement { ranks, one_host }).unwrap_err();
            assert!(error.to_string().contains(part), "{line} {ranks}: {error}");
        }
    }

    /// Scripts use the same options for their writing and their reading run. Options of the other run are ignored, as
    /// in IOR.
    #[test]
    fn options_of_the_other_run_are_allowed() {
        for line in ["-w -C", "-w -Z -X 3", "-r -e -k", "-r -G 7", "-r -R -G 7"] {
            let plan = translate(line, &TWO).unwrap();
            plan.points(2, &LISTS).unwrap();
        }
    }

    #[test]
    fn negative_numbers_mean_the_same_as_in_ior() {
        for (line, part) in [
            // IO500's scripts pass negative signatures.
            ("-w -G -1386302275", "data-seed = 2908665021"),
            ("-w -G=-1", "data-seed = 4294967295"),
            ("-r -Z -X -5", "read-shuffled = 4294967291"),
            ("-w -z -b 1m --random-offset-seed=-7", "seed = 4294967289"),
        ] {
            let toml = toml(line);
            assert!(toml.contains(part), "{line}: {toml}");
        }
        let without = toml("-w -z -b 1m");
        assert_eq!(toml("-w -z -b 1m --random-offset-seed -1"), without);
        assert_eq!(toml("-w -z -b 1m -D -1 -T -1 -d -1 -j -1"), without);
        for (line, part) in [
            ("-w -G -2147483649", "is too small"),
            ("-w -b -1", "is not a number"),
            ("-r -Z -X -5 -i 2", "use -X 5"),
        ] {
            let error = translate(line, &TWO).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn times_that_are_too_long_are_refused() {
        for line in ["-D 99999999999999", "-T 9999999999", "-d 99999999999999"] {
            let error = translate(line, &TWO).unwrap_err();
            assert!(
                error.to_string().contains("use a smaller number"),
                "{error}"
            );
        }
    }
}
