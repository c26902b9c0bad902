//! Columns that only one report shows: marks, and figures that it derives from several records.

/// A column that has no value in a record.
pub struct Derived {
    /// The header.
    pub name: &'static str,
    /// Place where it is shown.
    pub place: &'static str,
    /// Its meaning, and the way to compute it.
    pub meaning: &'static str,
}

const TABLES: &str = "In tables, where any row has one.";
const TOUR: &str = "On the page of `tonnage tour`.";
const VERIFY: &str = "In the table of `tonnage verify`.";

/// All derived figures, in the order in which they are listed.
pub const DERIVED: &[Derived] = &[
    Derived {
        name: "Note",
        place: TABLES,
        meaning: "Numbers of the remarks under the table that hold for the row. Before them stands what became of a point \
             that was not measured (skipped, FAILED), and OFF PATH where the counters of the devices do not prove that \
             the payload crossed them.",
    },
    Derived {
        name: "What is timed",
        place: TOUR,
        meaning: "What one latency is: one way (half of a round trip in which each side waits for the bytes of the \
             other), or from posting a read to its completion.",
    },
    Derived {
        name: "Cache line (ns)",
        place: TOUR,
        meaning: "How long a cache line took from one CPU to the other beside the point: the mean of the canary's medians \
             before and after it. No message between two ranks of a host can be faster. n/a for reads, which have no \
             way there that it could be set beside.",
    },
    Derived {
        name: "Above it (ns)",
        place: TOUR,
        meaning: "What engine, library and kernel add to the cache line: p50 - Cache line.",
    },
    Derived {
        name: "± 95 %",
        place: TOUR,
        meaning: "Half width of the 95 % confidence interval of the bandwidth before it, in GB/s; see CI95 (%).",
    },
    Derived {
        name: "Of limit",
        place: TOUR,
        meaning: "How much of its limit the bandwidth reaches; see Util (%). The lines under the table name the limits.",
    },
    Derived {
        name: "Sizes",
        place: VERIFY,
        meaning: "Number of different message sizes at which every byte was checked and right.",
    },
    Derived {
        name: "Range",
        place: VERIFY,
        meaning: "The smallest and the largest of these sizes.",
    },
    Derived {
        name: "Points right",
        place: VERIFY,
        meaning: "Number of points (a size, a pattern of traffic, a window) whose bytes were all right.",
    },
    Derived {
        name: "Bytes checked",
        place: VERIFY,
        meaning: "Payload that moved, was compared and right, all points together.",
    },
    Derived {
        name: "Result",
        place: VERIFY,
        meaning: "ok: all points were checked and right. ok in part: some could not be tried or checked. skipped: none \
             could be tried, for the reason under the table. FAILED: wrong bytes, or an error. NOT CHECKED: nothing \
             looked at the bytes.",
    },
];
