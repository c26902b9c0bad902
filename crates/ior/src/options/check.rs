//! Checks combinations of options. Checks that depend on the machine or the number of ranks follow later, when the plan
//! is expanded.

use tonnage_units::{Error, Result};

use super::{Api, IorOptions, Stripes, SummaryFormat};

/// Makes all checks that need only the command line.
pub fn check(options: &IorOptions) -> Result<()> {
    sizes(options)?;
    files(options)?;
    phases(options)?;
    only_mpiio(options)?;
    reading_others(options)?;
    times(options)
}

fn refuse_if(when: bool, why: impl FnOnce() -> String) -> Result<()> {
    if when {
        Err(Error::Usage(why()))
    } else {
        Ok(())
    }
}

fn sizes(options: &IorOptions) -> Result<()> {
    let (block, transfer) = (options.block_bytes, options.transfer_bytes);
    refuse_if(transfer == 0, || {
        "-t 0 would never end: use a size, e.g. `-t 1m`".to_owned()
    })?;
    refuse_if(block == 0, || {
        "-b 0 moves nothing: use a size, e.g. `-b 16m`".to_owned()
    })?;
    refuse_if(block < transfer || block % transfer != 0, || {
        let whole = (block / transfer).max(1).checked_mul(transfer);
        let near = whole.map_or(String::new(), |near| format!(", e.g. `-b {near}`"));
        format!("-b {block} is not a multiple of -t {transfer}: use a multiple{near}")
    })?;
    refuse_if(options.segments == 0, || {
        "-s 0 moves nothing: use `-s 1` or more".to_owned()
    })?;
    refuse_if(options.shuffled > 1, || {
        "-z twice picks random offsets, some of them twice and some never: use a single -z, which uses every offset \
         once"
            .to_owned()
    })?;
    refuse_if(options.shuffled > 0 && block == transfer, || {
        format!(
            "-z shuffles the transfers of a block, but -b {block} is one transfer: use a larger -b or a smaller -t"
        )
    })?;
    refuse_if(
        options.shuffle_seed.is_some() && options.shuffled == 0,
        || "--random-offset-seed seeds -z, which is not given: add -z or leave it out".to_owned(),
    )?;
    refuse_if(options.prefill_bytes > 0 && options.shuffled == 0, || {
        "--randomPrefill applies only to -z: add -z or leave it out".to_owned()
    })?;
    let prefill = options.prefill_bytes;
    refuse_if(prefill > 0 && block % prefill != 0, || {
        format!("--randomPrefill {prefill} does not divide -b {block}: use a size that does")
    })
}

fn files(options: &IorOptions) -> Result<()> {
    let paths = options.paths();
    refuse_if(paths.iter().any(|path| path.is_empty()), || {
        format!(
            "-o {:?} has an empty name: give a path, or several, e.g. `-o a@b`",
            options.path
        )
    })?;
    let per_process = options.file_per_process;
    refuse_if(paths.len() > 1 && !per_process, || {
        format!(
            "-o {:?} has {} paths for one shared file: add -F, or name one path",
            options.path,
            paths.len()
        )
    })?;
    let directories = options.directory_per_rank;
    refuse_if(directories && !per_process, || {
        "-u makes a directory for each task's file, but all tasks share one file: add -F or leave -u out".to_owned()
    })?;
    refuse_if(directories && paths.len() > 1, || {
        "-u cannot be combined with several paths in -o: name one path".to_owned()
    })?;
    refuse_if(options.existing && !options.writes(), || {
        "-E writes into existing files, but nothing is written: add -w or leave -E out".to_owned()
    })?;
    refuse_if(options.stripe_count == Some(Stripes::Targets(0)), || {
        "a stripe count of 0 is the file system's default: leave it out".to_owned()
    })
}

fn phases(options: &IorOptions) -> Result<()> {
    let write = options.writes();
    refuse_if(options.check_write && !write, || {
        "-W checks the data that -w wrote: add -w, or check existing files with -r -R".to_owned()
    })?;
    refuse_if(options.fsync_each && !write, || {
        "-Y syncs after each write, but nothing is written: add -w or leave -Y out".to_owned()
    })?;
    refuse_if(!write && !options.reads(), || {
        "nothing is written or read: add -w, -r or both".to_owned()
    })
}

/// These options have an effect only with MPI-IO. IOR silently ignores them for other APIs; here they are refused.
fn only_mpiio(options: &IorOptions) -> Result<()> {
    let given = [
        (options.collective, "-c"),
        (options.show_hints, "-H (--mpiio.showHints)"),
        (options.hints_file.is_some(), "-U (--mpiio.hintsFileName)"),
        (options.file_view, "-V (--mpiio.useFileView)"),
        (options.preallocate, "-p (--mpiio.preallocate)"),
    ];
    if options.api == Api::Mpiio {
        refuse_if(options.direct, || {
            "--posix.odirect applies only to -a POSIX and -a URING: leave it out, or use -a POSIX"
                .to_owned()
        })?;
        refuse_if(options.shuffled > 0 && options.collective, || {
            "-z cannot be combined with -c, because the tasks' transfers would be scattered: leave one of them out"
                .to_owned()
        })?;
        let csv = options.summary_format == SummaryFormat::Csv;
        refuse_if(options.show_hints && csv, || {
            "-H prints nothing with summaryFormat=CSV: leave it out, or use summaryFormat=JSON"
                .to_owned()
        })?;
        refuse_if(options.preallocate && !options.writes(), || {
            "-p preallocates the file for writing, but nothing is written: add -w or leave -p out"
                .to_owned()
        })?;
        return refuse_if(options.shuffled > 0 && options.file_view, || {
            "-z cannot be combined with -V, because its view is sequential: leave one of them out"
                .to_owned()
        });
    }
    let first = given.into_iter().find(|(on, _)| *on);
    first.map_or(Ok(()), |(_, name)| {
        Err(Error::Usage(format!(
            "{name} is for MPI-IO and has no effect on -a {}: leave it out, or use -a MPIIO",
            options.api.name()
        )))
    })
}

fn reading_others(options: &IorOptions) -> Result<()> {
    let (constant, random) = (options.reorder, options.reorder_random > 0);
    refuse_if(constant && random, || {
        "-C and -Z both choose the task to read from: use one of them".to_owned()
    })?;
    refuse_if(options.task_offset == Some(0) && constant, || {
        "-C -Q 0 reads a task's own data: leave both out, or use -Q 1".to_owned()
    })?;
    refuse_if(options.task_offset.is_some() && !constant, || {
        "-Q is the distance of -C, which is not given: add -C or leave -Q out".to_owned()
    })?;
    let seed = options.reorder_seed;
    refuse_if(seed < 0 && options.repetitions > 1, || {
        format!(
            "-X {seed} permutes the tasks again in each of -i {} repetitions, which tonnage does not support: use -X \
             {}",
            options.repetitions,
            seed.unsigned_abs()
        )
    })?;
    refuse_if(seed != 0 && !random, || {
        "-X seeds -Z, which is not given: add -Z or leave -X out".to_owned()
    })
}

fn times(options: &IorOptions) -> Result<()> {
    refuse_if(options.repetitions == 0, || {
        "-i 0 measures nothing: use `-i 1` or more".to_owned()
    })?;
    refuse_if(options.tasks == Some(0), || {
        "-N 0 leaves no task: use `-N 1` or more".to_owned()
    })?;
    let (wall, wear_out) = (options.stonewall_s > 0, options.wear_out);
    refuse_if(wear_out && !wall, || {
        "stoneWallingWearOut takes effect after a stonewall: add -D SECONDS".to_owned()
    })?;
    refuse_if(options.wear_out_transfers > 0 && !wear_out, || {
        "stoneWallingWearOutIterations needs stoneWallingWearOut=1 and -D SECONDS: add them; to read the data of \
         another run, use stoneWallingStatusFile=FILE in both"
            .to_owned()
    })?;
    let status = options.status_file.is_some();
    refuse_if(status && options.writes() && !options.keep, || {
        "stoneWallingStatusFile stores how much was written, for a later run that reads it, but without -k the files \
         are removed: add -k"
            .to_owned()
    })?;
    refuse_if(status && options.writes() && !wear_out, || {
        "stoneWallingStatusFile stores where writing with stoneWallingWearOut=1 ended: add stoneWallingWearOut=1 and \
         -D SECONDS".to_owned()
    })
}
