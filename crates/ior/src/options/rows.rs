//! The rows of [`super::table`] that are honoured.

use tonnage_units::{Error, Result};

use super::table::{Kind, Row, always, flag, number, text};
use super::value::whole;
use super::{Api, IorOptions, Stripes, SummaryFormat};

/// What is honoured, in the order of the help.
pub const HONOURED: &[Row] = &[
    text(
        Some('a'),
        &[],
        &["api"],
        "API",
        api,
        "what moves the bytes: POSIX, MPIIO, or URING, which IOR has not",
    ),
    number(
        Some('b'),
        &[],
        &["blockSize"],
        "SIZE",
        |o, v| o.block_bytes = v,
        "bytes of one task in one segment; 1m",
    ),
    number(
        Some('t'),
        &[],
        &["transferSize"],
        "SIZE",
        |o, v| o.transfer_bytes = v,
        "bytes of one read or write; 256k",
    ),
    number(
        Some('s'),
        &[],
        &["segmentCount"],
        "N",
        |o, v| o.segments = v,
        "how often the blocks are repeated; 1",
    ),
    text(
        Some('o'),
        &[],
        &["testFile"],
        "PATH",
        |o, _, v| {
            o.path = v.to_owned();
            Ok(())
        },
        "the file, or several for -F as a@b@c, taken in turn; testFile",
    ),
    flag(
        Some('w'),
        &[],
        &["writeFile"],
        |o| &mut o.write,
        "write; without -w, -r, -W and -R: write, then read",
    ),
    flag(Some('r'), &[], &["readFile"], |o| &mut o.read, "read"),
    flag(
        Some('W'),
        &[],
        &["checkWrite"],
        |o| &mut o.check_write,
        "with -w: check what was written, outside the clock",
    ),
    flag(
        Some('R'),
        &[],
        &["checkRead"],
        |o| &mut o.check_read,
        "read, and check what was read, outside the clock",
    ),
    flag(
        Some('F'),
        &[],
        &["filePerProc"],
        |o| &mut o.file_per_process,
        "a file for each task, PATH.00000000 and so on",
    ),
    flag(
        Some('u'),
        &[],
        &["uniqueDir"],
        |o| &mut o.directory_per_rank,
        "with -F: a directory for each task",
    ),
    flag(
        Some('m'),
        &[],
        &["multiFile"],
        |o| &mut o.file_per_repetition,
        "a file for each repetition",
    ),
    flag(
        Some('E'),
        &[],
        &["useExistingTestFile"],
        |o| &mut o.existing,
        "write into files that are there (--existing of tonnage file); without it those that tonnage wrote are removed \
         first, and others refused",
    ),
    flag(
        Some('k'),
        &[],
        &["keepFile"],
        |o| &mut o.keep,
        "keep the files; without it those that this run made are removed, where IOR removes those that it only read, too",
    ),
    flag(
        Some('c'),
        &["collective"],
        &["collective"],
        |o| &mut o.collective,
        "with MPIIO: all tasks make each transfer together",
    ),
    flag(
        Some('B'),
        &["posix.odirect"],
        &["useO_DIRECT"],
        |o| &mut o.direct,
        "without the page cache, or an error where that cannot be (-B of IOR 3)",
    ),
    flag(
        Some('e'),
        &[],
        &["fsync"],
        |o| &mut o.fsync,
        "fsync after the last write, inside the clock",
    ),
    flag(
        Some('Y'),
        &[],
        &["fsyncPerWrite"],
        |o| &mut o.fsync_each,
        "fsync after each write",
    ),
    flag(
        Some('g'),
        &[],
        &["intraTestBarriers"],
        |o| &mut o.barriers,
        "barriers between open, transfers and close",
    ),
    flag(
        Some('z'),
        &[],
        &["randomOffset"],
        |o| &mut o.shuffled,
        "every transfer once, shuffled over the whole file",
    ),
    number(
        None,
        &["random-offset-seed"],
        &[],
        "N",
        |o, v| o.shuffle_seed = Some(v),
        "seeds -z",
    ),
    number(
        None,
        &["randomPrefill"],
        &[],
        "SIZE",
        |o, v| o.prefill_bytes = v,
        "with -z: fill the files first, outside the clock",
    ),
    flag(
        Some('C'),
        &[],
        &["reorderTasks", "reorderTasksConstant"],
        |o| &mut o.reorder,
        "read what the task Q nodes behind wrote, a node being the tasks of the first one where task 1 is there too, \
         else one task; on one node Q tasks behind, where IOR does nothing",
    ),
    number(
        Some('Q'),
        &[],
        &["taskPerNodeOffset"],
        "N",
        |o, v| o.task_offset = Some(v),
        "with -C: how many; 1",
    ),
    flag(
        Some('Z'),
        &[],
        &["reorderTasksRandom"],
        |o| &mut o.reorder_random,
        "read what others wrote, by a permutation of the tasks (once or twice)",
    ),
    number(
        Some('X'),
        &[],
        &["reorderTasksRandomSeed"],
        "N",
        |o, v| o.reorder_seed = v,
        "seeds -Z; 0",
    ),
    number(
        Some('N'),
        &[],
        &["numTasks"],
        "N",
        |o, v| o.tasks = Some(v),
        "number of tasks: as --ranks",
    ),
    number(
        Some('i'),
        &[],
        &["repetitions"],
        "N",
        |o, v| o.repetitions = v,
        "repetitions; 1",
    ),
    number(
        Some('d'),
        &[],
        &["interTestDelay"],
        "SECONDS",
        |o, v| o.delay_s = v,
        "pause before each phase but the first; IOR pauses before that one too",
    ),
    number(
        Some('T'),
        &[],
        &["maxTimeDuration"],
        "MINUTES",
        |o, v| o.duration_minutes_max = v,
        "no further repetition after this time",
    ),
    number(
        Some('D'),
        &[],
        &["deadlineForStonewalling"],
        "SECONDS",
        |o, v| o.stonewall_s = v,
        "end each phase after this time",
    ),
    flag(
        None,
        &[],
        &["stoneWallingWearOut"],
        |o| &mut o.wear_out,
        "with -D: all tasks then go on to the transfers of the fastest",
    ),
    number(
        None,
        &[],
        &["stoneWallingWearOutIterations"],
        "N",
        |o, v| o.wear_out_transfers = v,
        "with stoneWallingWearOut: at least so many",
    ),
    text(
        None,
        &[],
        &["stoneWallingStatusFile"],
        "FILE",
        |o, _, v| {
            o.status_file = Some(v.to_owned());
            Ok(())
        },
        "with -k: keeps how much was written, for the run that reads it",
    ),
    number(
        Some('j'),
        &[],
        &["outlierThreshold"],
        "SECONDS",
        |o, v| o.outlier_s = v,
        "name tasks that are so much slower than the mean",
    ),
    number(
        Some('G'),
        &[],
        &["setTimeStampSignature"],
        "N",
        |o, v| o.signature = Some(v),
        "seeds what is written; not needed for reading it back",
    ),
    text(
        Some('l'),
        &["dataPacketType"],
        &["dataPacketType"],
        "TYPE",
        data,
        "kind of data; all name their place and do not compress",
    ),
    flag(
        Some('H'),
        &["mpiio.showHints"],
        &["showHints"],
        |o| &mut o.show_hints,
        "with MPIIO: print the hints that were set and taken",
    ),
    text(
        Some('U'),
        &["mpiio.hintsFileName"],
        &["hintsFileName"],
        "FILE",
        |o, _, v| {
            o.hints_file = Some(v.to_owned());
            Ok(())
        },
        "with MPIIO: lines IOR_HINT__MPI__NAME=VALUE, beside those of the environment",
    ),
    flag(
        Some('V'),
        &["mpiio.useFileView"],
        &["useFileView"],
        |o| &mut o.file_view,
        "with MPIIO: each task sees only its own blocks",
    ),
    flag(
        Some('p'),
        &["mpiio.preallocate"],
        &["preallocate"],
        |o| &mut o.preallocate,
        "with MPIIO: make room for the whole file when it is opened to be written",
    ),
    text(
        None,
        &["posix.lustre.stripecount"],
        &["lustreStripeCount"],
        "N",
        stripes,
        "stripes of new files on Lustre, -1 for all targets",
    ),
    number(
        None,
        &["posix.lustre.stripesize"],
        &["lustreStripeSize"],
        "SIZE",
        |o, v| o.stripe_bytes = Some(v),
        "bytes of a stripe on Lustre",
    ),
    flag(
        Some('v'),
        &[],
        &["verbose"],
        |o| &mut o.verbose,
        "more about the run; may be repeated",
    ),
    flag(
        None,
        &["dryRun"],
        &[],
        |o| &mut o.dry_run,
        "check everything and say what would be done",
    ),
    Row {
        short: Some('O'),
        long: &[],
        keys: &[],
        value: "KEY=VALUE",
        kind: Kind::Directives,
        does: "the same by IOR's long names (-O writeFile=1,blockSize=4m), and what follows",
    },
    text(
        None,
        &[],
        &["summaryFormat"],
        "FORMAT",
        summary_format,
        "result block as default, JSON or CSV",
    ),
    text(
        None,
        &[],
        &["summaryFile"],
        "FILE",
        |o, _, v| {
            o.summary_file = Some(v.to_owned());
            Ok(())
        },
        "write the result block there",
    ),
    always(Some('q'), &["quitOnError"], "wrong data ends the run"),
    always(None, &["summaryAlways"], "the summary is printed"),
];

fn api(options: &mut IorOptions, shown: &str, name: &str) -> Result<()> {
    options.api = match name.to_ascii_uppercase().as_str() {
        "POSIX" => Api::Posix,
        "MPIIO" => Api::Mpiio,
        "URING" => Api::Uring,
        other => {
            let instead = match other {
                "AIO" => "io_uring is what replaced it: -a URING",
                "MMAP" => "mapped files are not measured here: -a POSIX",
                "DUMMY" => "to see what would be done, use --dryRun",
                "HDF5" | "NCMPI" => "the layer below these libraries is MPI-IO: -a MPIIO",
                _ => "write POSIX, MPIIO or URING",
            };
            return Err(Error::Usage(format!(
                "{shown} {other:.40?} is not in tonnage: {instead}"
            )));
        }
    };
    Ok(())
}

fn stripes(options: &mut IorOptions, shown: &str, count: &str) -> Result<()> {
    options.stripe_count = Some(match count {
        "-1" => Stripes::All,
        count => Stripes::Targets(whole(shown, count)?),
    });
    Ok(())
}

fn data(_: &mut IorOptions, shown: &str, name: &str) -> Result<()> {
    match name {
        "o" | "i" | "t" | "r" | "offset" | "incompressible" | "timestamp" | "random" => Ok(()),
        _ => Err(Error::Usage(format!(
            "{shown} {name:.40?} is no kind of data: write offset, incompressible, timestamp or random (all are the \
             same here: what is written names its place and its seed, and does not compress)"
        ))),
    }
}

fn summary_format(options: &mut IorOptions, shown: &str, name: &str) -> Result<()> {
    options.summary_format = match name.to_ascii_lowercase().as_str() {
        "default" => SummaryFormat::Text,
        "json" => SummaryFormat::Json,
        "csv" => SummaryFormat::Csv,
        _ => {
            return Err(Error::Usage(format!(
                "{shown}{name:.40} is no format: write default, JSON or CSV"
            )));
        }
    };
    Ok(())
}
