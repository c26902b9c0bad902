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
        "-t 0 would never end: write a size such as -t 1m".to_owned()
    })?;
    refuse_if(block == 0, || {
        "-b 0 moves nothing: write a size such as -b 16m".to_owned()
    })?;
    refuse_if(block < transfer || block % transfer != 0, || {
        let whole = (block / transfer).max(1).checked_mul(transfer);
        let near = whole.map_or(String::new(), |near| format!(", such as -b {near}"));
        format!(
            "-b {block} is not a whole number of transfers of -t {transfer}: write a multiple of it{near}"
        )
    })?;
    refuse_if(options.segments == 0, || {
        "-s 0 moves nothing: write 1 or more".to_owned()
    })?;
    refuse_if(options.shuffled > 1, || {
        "-z twice picks random offsets, some of them twice and some never: write -z once, which uses every offset once"
            .to_owned()
    })?;
    refuse_if(options.shuffled > 0 && block == transfer, || {
        format!(
            "-z shuffles the transfers of a block, and -b {block} is one transfer: write a larger -b or a smaller -t"
        )
    })?;
    refuse_if(
        options.shuffle_seed.is_some() && options.shuffled == 0,
        || "--random-offset-seed seeds -z, which is not given: add -z or leave it out".to_owned(),
    )?;
    refuse_if(options.prefill_bytes > 0 && options.shuffled == 0, || {
        "--randomPrefill is for -z: add -z or leave it out".to_owned()
    })?;
    let prefill = options.prefill_bytes;
    refuse_if(prefill > 0 && block % prefill != 0, || {
        format!("--randomPrefill {prefill} does not divide -b {block}: write a size that does")
    })
}

fn files(options: &IorOptions) -> Result<()> {
    let paths = options.paths();
    refuse_if(paths.iter().any(|path| path.is_empty()), || {
        format!(
            "-o {:?} has an empty name: write a path, or several as a@b",
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
        "-u makes a directory for each task's file, and there is one file for all: add -F or leave -u out".to_owned()
    })?;
    refuse_if(directories && paths.len() > 1, || {
        "-u cannot be combined with several paths in -o: name one".to_owned()
    })?;
    refuse_if(options.existing && !options.writes(), || {
        "-E is about existing files to write into, and nothing is written: add -w or leave -E out"
            .to_owned()
    })?;
    refuse_if(options.stripe_count == Some(Stripes::Targets(0)), || {
        "a stripe count of 0 leaves it to the file system: leave it out".to_owned()
    })
}

fn phases(options: &IorOptions) -> Result<()> {
    let write = options.writes();
    refuse_if(options.check_write && !write, || {
        "-W checks what -w wrote: add -w, or check files that are there with -r -R".to_owned()
    })?;
    refuse_if(options.fsync_each && !write, || {
        "-Y syncs after each write, and nothing is written: add -w or leave -Y out".to_owned()
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
            "--posix.odirect is for -a POSIX and -a URING: leave it out, or write -a POSIX"
                .to_owned()
        })?;
        refuse_if(options.shuffled > 0 && options.collective, || {
            "-z cannot be combined with -c, because the tasks' transfers would be scattered: leave one of them out"
                .to_owned()
        })?;
        let csv = options.summary_format == SummaryFormat::Csv;
        refuse_if(options.show_hints && csv, || {
            "-H prints nothing with summaryFormat=CSV: leave it out, or write summaryFormat=JSON"
                .to_owned()
        })?;
        refuse_if(options.preallocate && !options.writes(), || {
            "-p makes room for writes, and nothing is written: add -w or leave -p out".to_owned()
        })?;
        return refuse_if(options.shuffled > 0 && options.file_view, || {
            "-z cannot be combined with -V, because its view is sequential: leave one of them out"
                .to_owned()
        });
    }
    let first = given.into_iter().find(|(on, _)| *on);
    first.map_or(Ok(()), |(_, name)| {
        Err(Error::Usage(format!(
            "{name} is for MPI-IO and has no effect on -a {}: leave it out, or write -a MPIIO",
            options.api.name()
        )))
    })
}

fn reading_others(options: &IorOptions) -> Result<()> {
    let (constant, random) = (options.reorder, options.reorder_random > 0);
    refuse_if(constant && random, || {
        "-C and -Z both choose the task to read from: write one of them".to_owned()
    })?;
    refuse_if(options.task_offset == Some(0) && constant, || {
        "-C -Q 0 reads a task's own data: leave both out, or write -Q 1".to_owned()
    })?;
    refuse_if(options.task_offset.is_some() && !constant, || {
        "-Q is the distance of -C, and -Z takes a permutation of all tasks: write -C with it, or leave -Q out".to_owned()
    })?;
    let seed = options.reorder_seed;
    refuse_if(seed < 0 && options.repetitions > 1, || {
        format!(
            "-X {seed} permutes the tasks again in each of -i {} repetitions, which tonnage does not support: write -X {}",
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
        "-i 0 measures nothing: write 1 or more".to_owned()
    })?;
    refuse_if(options.tasks == Some(0), || {
        "-N 0 leaves no task: write 1 or more".to_owned()
    })?;
    let (wall, wear_out) = (options.stonewall_s > 0, options.wear_out);
    refuse_if(wear_out && !wall, || {
        "stoneWallingWearOut takes effect after a stonewall: add -D SECONDS".to_owned()
    })?;
    refuse_if(options.wear_out_transfers > 0 && !wear_out, || {
        "stoneWallingWearOutIterations is for stoneWallingWearOut=1 with -D SECONDS: add them; to read what another \
         run wrote, use stoneWallingStatusFile=FILE in both"
            .to_owned()
    })?;
    let status = options.status_file.is_some();
    refuse_if(status && options.writes() && !options.keep, || {
        "stoneWallingStatusFile stores how much was written, for a later run that reads it, and without -k the files \
         are removed: add -k"
            .to_owned()
    })?;
    refuse_if(status && options.writes() && !wear_out, || {
        "stoneWallingStatusFile stores where writing with stoneWallingWearOut=1 ended: add it and -D SECONDS".to_owned()
    })
}
