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
    "The same by IOR's long names (-O writeFile=1,blockSize=4m)",
);

/// Refused options, one per line: names, value and replacement.
pub const REFUSED: &str = "\
-A refNum | N | name the file of results instead, --output NAME.jsonl
-f | FILE | write a plan and use `tonnage run PLAN` (--print-plan shows one for each command line)
-M memoryPerNode memoryPerTask | SIZE | to keep the page cache out of the figures use --posix.odirect, or read in a run of its own; the record says how much was cached
-I individualDataSets | | data sets belong to HDF5: a file for each task is -F
-J setAlignment | SIZE | it aligns objects of HDF5: leave it out
-K keepFileWithError | | use -k, which keeps the files in any case
-n noFill | | it belongs to HDF5: leave it out
-P useSharedFilePointer | | IOR never had it either: leave it out
-S --mpiio.useStridedDatatype useStridedDatatype | | use -V: its view has the stride in it
-x singleXferAttempt | | leave it out: a transfer that moves less than its bytes is never counted as a whole one
-y dualMount | | name both mounts, -F -o A@B
--warningAsErrors warningAsErrors | | leave it out: what cannot be done as asked is an error in any case
--posix.rangelocks | | locks are not measured: leave it out
--posix.lustre.startost --posix.lustre.pool lustreStartOST | N | make the directory with `lfs setstripe`, and files in it follow
--posix.lustre.ignorelocks lustreIgnoreLocks | | leave it out
--posix.gpfs.hintaccess --posix.gpfs.finegrainwritesharing --posix.gpfs.finegrainreadsharing --posix.gpfs.createsharing gpfsHintAccess | | calls of GPFS's own are not made: leave it out
--posix.gpfs.releasetoken gpfsReleaseToken | N | calls of GPFS's own are not made: leave it out
--posix.beegfs.NumTargets --posix.beegfs.ChunkSize beegfsNumTargets beegfsChunkSize | N | make the directory with `beegfs-ctl --setpattern`, and files in it follow
--gpuDirect GPUDirect | | bytes are in host memory: leave it out
allocateBufferOnGPU GPUid | N | bytes are in host memory: leave it out
minTimeDuration | SECONDS | make the files larger (-s) and end by time, -D SECONDS
saveRankPerformanceDetailsCSV savePerOpDataCSV | FILE | the record has every rank, the series over time and a histogram of all transfers: --output FILE.jsonl
interIODelay | N | leave it out: transfers are made without pauses
numNodes numTasksOnNode0 | N | leave it out: where the ranks run is known
debug platform | TEXT | leave it out: the record describes the hosts
";

/// Parses the rows of [`REFUSED`].
pub fn refused() -> impl Iterator<Item = OptionRow> {
    REFUSED.lines().filter_map(|line| {
        let mut parts = line.splitn(3, '|').map(str::trim);
        Some((parts.next()?, parts.next()?, parts.next()?))
    })
}
