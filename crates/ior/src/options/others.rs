//! IOR options without a field in [`super::IorOptions`]: they have no effect here, or are refused.

/// The option's names, the name of its value, and its help or replacement. A name without a hyphen is a key of `-O`.
/// The value's name is empty for a flag.
pub type OptionRow = (&'static str, &'static str, &'static str);

/// Flags that request tonnage's fixed behaviour, with a description of it.
pub const ALWAYS: &[OptionRow] = &[
    ("-q quitOnError", "", "Wrong data ends the run"),
    ("summaryAlways", "", "The summary is printed"),
];

/// The option that sets other options by IOR's long names.
pub const DIRECTIVES: OptionRow = (
    "-O",
    "KEY=VALUE",
    "Set options by IOR's long names (-O writeFile=1,blockSize=4m)",
);

/// Refused options, one per line: names, value and replacement.
pub const REFUSED: &str = "\
-A refNum | N | name the results file with --output NAME.jsonl
-f | FILE | use a plan with `tonnage run PLAN` (--print-plan shows the plan of a command line)
-M memoryPerNode memoryPerTask | SIZE | to bypass the page cache use --posix.odirect, or read in a separate run; the record shows how much was cached
-I individualDataSets | | data sets are for HDF5 only: for a file per task use -F
-J setAlignment | SIZE | it aligns HDF5 objects: leave it out
-K keepFileWithError | | use -k, which always keeps the files
-n noFill | | it is for HDF5 only: leave it out
-P useSharedFilePointer | | not an option of IOR either: leave it out
-S --mpiio.useStridedDatatype useStridedDatatype | | use -V: its view contains the stride
-x singleXferAttempt | | leave it out: a short transfer never counts as a complete one
-y dualMount | | name both mounts with -F -o A@B
--warningAsErrors warningAsErrors | | leave it out: an unsupported request is always an error
--posix.rangelocks | | tonnage does not measure locks: leave it out
--posix.lustre.startost --posix.lustre.pool lustreStartOST | N | set it on the directory with `lfs setstripe`; new files in it inherit it
--posix.lustre.ignorelocks lustreIgnoreLocks | | leave it out
--posix.gpfs.hintaccess --posix.gpfs.finegrainwritesharing --posix.gpfs.finegrainreadsharing --posix.gpfs.createsharing gpfsHintAccess | | tonnage makes no GPFS-specific calls: leave it out
--posix.gpfs.releasetoken gpfsReleaseToken | N | tonnage makes no GPFS-specific calls: leave it out
--posix.beegfs.NumTargets --posix.beegfs.ChunkSize beegfsNumTargets beegfsChunkSize | N | set it on the directory with `beegfs-ctl --setpattern`; new files in it inherit it
--gpuDirect GPUDirect | | file data is always in host memory: leave it out
allocateBufferOnGPU GPUid | N | file data is always in host memory: leave it out
minTimeDuration | SECONDS | use larger files (-s), and end phases after a time with -D SECONDS
saveRankPerformanceDetailsCSV savePerOpDataCSV | FILE | use --output FILE.jsonl: the record has every rank, the series over time and a histogram of all transfers
interIODelay | N | leave it out: tonnage makes no pauses between transfers
numNodes numTasksOnNode0 | N | leave it out: tonnage knows where the ranks run
debug platform | TEXT | leave it out: the record describes the hosts
";

/// Parses the rows of [`REFUSED`].
pub fn refused() -> impl Iterator<Item = OptionRow> {
    REFUSED.lines().filter_map(|line| {
        let mut parts = line.splitn(3, '|').map(str::trim);
        Some((parts.next()?, parts.next()?, parts.next()?))
    })
}
