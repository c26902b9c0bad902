//! Columns that only one report shows: markers, and figures derived from several records.
//!
//! Reports take their headers from here, so `tonnage explain` covers all of them.

use tonnage_record::spread::GeometricSpread;
use tonnage_units::quantity::human::number;

/// A column whose values are not stored in records.
#[derive(Debug)]
pub struct DerivedColumn {
    /// Header.
    pub name: &'static str,
    /// Report or table in which the column appears.
    pub place: &'static str,
    /// Meaning and formula.
    pub meaning: &'static str,
}

/// Formats a ratio with its interval, if any.
pub fn with_interval(ratio: GeometricSpread) -> String {
    let mean = number(ratio.mean);
    match ratio.low.zip(ratio.high) {
        None => mean,
        Some((low, high)) => format!("{mean} ({}…{})", number(low), number(high)),
    }
}

const TABLES: &str = "In tables, where any row has one.";
const LOADED: &str = "In tables of latencies without and with a background.";
const PAIRS: &str = "In tables of the pairs of a traffic file. The values of all pairs are in the record, as \
     summary.pairs; CSV has a row for each point, not for each pair.";
const FILES: &str = "In tables of file experiments.";
const TOUR: &str = "On the page of `tonnage tour`.";
const GROUPS: &str = "In tables of groups of ranks that called at once, below those of collectives. CSV has a row for each \
     point, not for each group.";
const RANKS: &str = "In tables of the ranks of collectives, where --per-rank was asked for. CSV has a row for each point, not \
     for each rank.";
const PUBLISHED: &str =
    "In tables of figures that others measured, below those of a plan that has them.";
const LAYERS: &str = "In the table of `tonnage layers`.";
const COMPARE: &str = "In the tables of `tonnage compare`.";
const BASELINE: &str = "In the tables of `tonnage baseline` and `tonnage check`.";
const JUDGED: &str = "In the tables of `tonnage compare`, `tonnage baseline` and `tonnage check`.";
const VERIFY: &str = "In the table of `tonnage verify`.";

macro_rules! derived {
    ($($constant:ident = $name:literal, $place:ident, $meaning:literal;)+) => {
        $(
            #[doc = concat!("The column \"", $name, "\".")]
            pub const $constant: DerivedColumn = DerivedColumn { name: $name, place: $place, meaning: $meaning };
        )+

        /// All derived columns, in the order in which they are listed.
        pub const DERIVED: &[DerivedColumn] = &[$($constant),+];
    };
}

derived! {
    NOTE = "Note", TABLES, "Numbers of the remarks under the table that hold for the row. Before them stands the outcome of \
        a point that was not measured (skipped, FAILED), and OFF PATH where the counters of the devices do not prove that \
        the payload crossed them.";
    BIT_RATE = "Bit rate (Gb/s)", TABLES, "Avg BW in 1e9 bits per second, as links are rated; in tables of engines that can cross \
        a network. In CSV it is 8 x bandwidth_bytes_per_s_mean.";
    TO_FIRST = "To first", TABLES, "Message rate / that of the first row which differs from this one in compared options \
        alone (rails, queue pairs, API and the like), with the half width of its 95 % confidence interval where both rows \
        have several trials: the ratio times √(a² + b²), a and b being the parts of the two means that their own half \
        widths are.";
    TO_FIRST_BACKEND = "Vs first (± 95 %)", TABLES, "How many times faster or slower than the first backend: their times in \
        the same turn, divided, as the geometric mean over the turns. The percentage is the distance from this mean to the \
        upper end of its 95 % confidence interval (Student's t over the logarithms).";
    GROUP = "Group", GROUPS, "Number of the group, counted from 0; the column after it has its ranks, by their numbers in the \
        run. Time, AlgBW and BusBW are those of the group alone, and the slowest one is marked.";
    RANK = "Rank", RANKS, "Number of the rank in the run. Time is the mean of its own times of an iteration, from its call to \
        its return.";
    BEGAN_LAST = "Began last", RANKS, "Number of iterations, of all trials together, that the rank began after all others, by \
        clocks that are followed before each trial: below their uncertainty, or 100 ns on one host, it is chance. A rank \
        that often begins last and has the shortest time keeps the others waiting.";
    P50_RATIO = "p50 / idle (95 %)", LOADED, "Median latency with the background / without it, and the 95 % confidence \
        interval: Student's t over the logarithms of the trials' ratios. In CSV they are latency_ratio_p50, \
        latency_ratio_p50_low and latency_ratio_p50_high.";
    P99_RATIO = "p99 / idle (95 %)", LOADED, "The same of the 99th percentiles. In CSV they are latency_ratio_p99, \
        latency_ratio_p99_low and latency_ratio_p99_high.";
    ALONE = "Alone (ms)", PAIRS, "Time of the pair's part of a traffic file while no other pair moves data: the median of \
        its turns.";
    TOGETHER = "Together (ms)", PAIRS, "Time of the pair's part of a traffic file while all pairs move theirs: the median over \
        the trials.";
    SLOWDOWN = "Slowdown", PAIRS, "Together (ms) / Alone (ms): by how much the other pairs slow this one.";
    TOGETHER_RATE = "Together (GB/s)", PAIRS, "Bytes of the pair / its time together, GB of 1e9 bytes.";
    THEIRS = "Theirs", PUBLISHED, "The published value of the column before it, in the unit that its header has.";
    RATIO = "Ratio", PUBLISHED, "Ours / theirs of the column before these two.";
    TRIAL = "Trial", FILES, "The repetition, counted from 0, of a phase with several; mean in the row of all of them together.";
    CACHE = "Cache", FILES, "Part of the page cache. Of writes: buffered (never flushed), flushed (--fsync) or direct. Of reads: \
        cold, or warm with the part of the bytes that was in the page cache before, direct, or unknown.";
    BOUND = "Bound", TOUR, "Measured capability of this machine, an upper bound for the measurements after it; see \
        Bound (GB/s).";
    VALUE = "Value", TOUR, "The bound, with its unit.";
    MEASURED = "Measured as", TOUR, "Way in which the bound was measured.";
    OPERATION = "Operation", TOUR, "Engine, operation and message size.";
    TIMED = "Timed", TOUR, "Extent of one latency: one way (half of a round trip in which each side waits for the bytes of \
        the other), or from posting a read to its completion.";
    P50 = "p50 (ns)", TOUR, "Median latency in nanoseconds; see p50 (us).";
    P99 = "p99 (ns)", TOUR, "Latency in nanoseconds that 99 % of the samples do not exceed; see p99 (us).";
    CACHE_LINE = "CPU to CPU (ns)", TOUR, "Time of a cache line from one CPU to the other, measured with the point: the mean of the \
        canary's medians before and after it. No message between two ranks of a host can be faster. - for reads, which \
        are not one-way.";
    ABOVE = "Overhead (ns)", TOUR, "Time that engine, library and kernel add to the cache line: p50 - CPU to CPU.";
    BANDWIDTH = "ENGINE (GB/s)", TOUR, "Bandwidth of the engine that the header names; see Avg BW (GB/s).";
    INTERVAL = "± 95 %", TOUR, "Half width of the 95 % confidence interval of the bandwidth before it, as a part of \
        it; see CI95 (%).";
    OF_BOUND = "Of bound", TOUR, "Part of its bound that the bandwidth reaches; see Util (%). The lines under the table \
        name the bounds.";
    LAYER = "Layer", LAYERS, "Engine, library or bound that stands on those before it.";
    LAYER_OPERATION = "Moves by", LAYERS, "Operation by which it moves the bytes: writes of one rank of each pair to the other, \
        one at a time; send-recv-pairs between the same ranks; all-reduce among all of them.";
    EACH_SENDS = "Each sends (GB/s)", LAYERS, "Bandwidth at which a rank that sends does, median over the rounds, GB of 1e9 bytes: \
        of writes Avg BW / the ranks that write at once, of send-recv-pairs AlgBW, of all-reduce BusBW.";
    KEEPS = "Keeps (range)", LAYERS, "Bandwidth / that of the layer which the next column names; behind it the least and the largest of \
        the rounds' own ratios.";
    KEEPS_OF = "Of", LAYERS, "Layer that it is compared with: of writes the bound of their path; of native send-recv-pairs the writes of \
        its engine, and of native all-reduce its send-recv-pairs; of a library the fastest native backend at the same operation.";
    SIZES = "Sizes", VERIFY, "Number of different message sizes with data that was checked and correct.";
    RANGE = "Range", VERIFY, "The smallest and the largest of these sizes.";
    RIGHT = "Points correct", VERIFY, "Number of points (a size, a pattern of traffic, a depth) with correct data throughout.";
    CHECKED = "Bytes checked", VERIFY, "Payload that was compared and correct, all points together.";
    RESULT = "Result", VERIFY, "ok: all points were checked and correct. ok in part: some could not be tried or checked. \
        skipped: none could be tried. FAILED: wrong data, or an error. NOT CHECKED: no data was compared. The reasons \
        are above and below the table.";
    METRIC = "Metric", JUDGED, "Metric that is compared, as --metric takes it, or the column that it is.";
    SIDE_A = "A", COMPARE, "Value of the first side: of a point the geometric mean of its runs (of their trials where those \
        stand in, the arithmetic mean where one is 0), of a difference all values that its runs have.";
    SIDE_B = "B", COMPARE, "Value of the second side, as A.";
    SIDES_RATIO = "B / A", COMPARE, "Ratio of the geometric means. The columns before Metric have the keys that tell the \
        point from the others, a → b if an ignored key differs between the sides.";
    SIDES_INTERVAL = "Interval", COMPARE, "Confidence interval of the ratio: Welch's t over the logarithms of the runs' \
        means. With fewer than 3 runs on a side there is none; --by-trials takes that of the trials.";
    VERDICT = "Verdict", JUDGED, "Of a comparison, worse or better: the whole interval lies beyond the margin, and by Benjamini and Hochberg the \
        difference is no chance among so many points. Same: the whole interval lies within the margin. Unclear: neither, \
        fewer than 3 runs on a side, or a value is 0. Not comparable: the machine or its set-up differs. Missing: one side \
        has not measured it, or not in all its runs. Not measured: neither side has a value. Of a check, pass, warn, fail; skip if there is \
        nothing to compare with, error if it could not be measured.";
    RUNS = "Runs", JUDGED, "Runs that the figure is of. Of a comparison, those of A and of B, if they are not those of the \
        page's head.";
    MORE_RUNS = "More runs", COMPARE, "Runs that each side would need beyond those it has, for another verdict than unclear, if \
        means and spreads stay as they are. With fewer than 3 runs, those up to 3.";
    AREA = "Area", COMPARE, "Part of the surroundings that differs: program, effective (what engines and memory really were), \
        machine (hosts and their set-up) or variables (of the environment).";
    DIFFERS = "What differs", COMPARE, "Name of the difference, as --accept takes it.";
    COUNTS = "Counts", COMPARE, "Consequence of the difference: yes (points cannot be compared), accepted (by --accept, or \
        because `tonnage ab` gave it to side B on purpose) or no (it is what is compared, or follows from it).";
    BASE_POINT = "Case", BASELINE, "Engine, operation, and the keys that tell the point from the others of the table; the line \
        above the table has what all cases share. A figure of a baseline is of one point on one kind of host, over one \
        set of devices.";
    BASE_DEVICE = "Devices", BASELINE, "Devices that carry the bytes, or the device that is missing or down.";
    BASE_MEDIAN = "Median", BASELINE, "Median of the runs of all hosts of this kind; a run counts with the mean of its \
        trials.";
    BASE_SPREAD = "MAD", BASELINE, "Median of the runs' distances from the median, as a part of it. Of a normal spread it \
        is 0.67 standard deviations. \"by hand\" where the figure is of a data sheet.";
    BASE_WARN = "Warn", BASELINE, "Figure beyond which a host is warned of: --warn from the median, but at least 4 MAD.";
    BASE_FAIL = "Fail", BASELINE, "Figure beyond which a host fails: --fail from the median, but at least 4 MAD.";
    BASE_HOSTS = "Hosts", BASELINE, "Hosts, or groups of hosts that measured together, that the figure is of.";
    BASE_HOST = "Host", BASELINE, "Host, or hosts that measured together.";
    BASE_OLD = "Old", BASELINE, "Median of the first baseline.";
    BASE_NEW = "New", BASELINE, "Median of the second baseline.";
    BASE_RATIO = "New / old", BASELINE, "Ratio of the medians.";
    OF_MEDIAN = "Of median", BASELINE, "Median of a slow host / that of all hosts.";
    BASE_DRIFT = "Drift", BASELINE, "slower, failing: beyond the old baseline's warning or failure. faster: as far on \
        the better side. added, gone: one baseline alone has it.";
    CHECK_MEASURED = "Measured", BASELINE, "Figure of the check's best try. On a page of records it is that of the host's \
        run in the middle, and in a list of slow hosts the host's median.";
    CHECK_WHY = "Reason", BASELINE, "Distance from the median, or another reason of the verdict.";
}
