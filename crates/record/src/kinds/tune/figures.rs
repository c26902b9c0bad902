//! Figures of a search. A record has one row per candidate of each race.

use crate::figures::common::{ASKED, EXCHANGE, OPERATION, OUTCOME};
use crate::figures::engine::ENGINE;
use crate::figures::{Figure, Figures, GIGA, MICROSECONDS, PERCENT, Row, Style, Value};
use crate::tune::{TuneBody, TuneGain, TuneTry};
use tonnage_plan::tune::Goal;

/// All figures of a record of a search.
pub const FIGURES: Figures = &[
    ASKED, ENGINE, EXCHANGE, OPERATION, CANDIDATE, WINNER, OUTCOME,
];

const COUNTED: &str = "Counted.";
const MEAN: &str = "Geometric mean over the trials of the candidate without the lowest and the highest fifth of them.";
const T: &str = "Student's t over the logarithms of those ratios, without the lowest and the highest fifth of them.";

const CANDIDATE: &[Figure] = &[
    Figure::of_option("Goal", "goal", "Figure that a search decides by.", |row| {
        body(row).map(|body| body.point.goal.name()).into()
    }),
    Figure {
        name: "Pass",
        field: "tune_pass",
        meaning: "Pass of a search over its options.",
        computed: COUNTED,
        value: |row| part(row, |it| u64::from(it.pass)),
        ..Figure::PLAIN
    },
    Figure::of_option(
        "Option",
        "tune_option",
        "Option whose values competed.",
        |row| text(row, |it| &it.dimension),
    ),
    Figure::of_option(
        "Candidate",
        "tune_value",
        "Value that competed, as on a command line.",
        |row| text(row, |it| &it.value),
    ),
    Figure {
        name: "Rounds",
        field: "tune_rounds",
        meaning: "Trials of a candidate of a search.",
        computed: COUNTED,
        value: |row| part(row, |it| u64::from(it.rounds)),
        ..Figure::PLAIN
    },
    Figure {
        name: "Tuned BW (GB/s)",
        field: "tuned_bandwidth_bytes_per_s_mean",
        meaning: "Bandwidth of a candidate, if the goal is bandwidth.",
        computed: MEAN,
        style: GIGA,
        value: |row| of_goal(row, Goal::Bandwidth),
        ..Figure::PLAIN
    },
    Figure {
        name: "Tuned rate (op/s)",
        field: "tuned_message_rate_per_s_mean",
        meaning: "Message rate of a candidate, if the goal is the rate.",
        computed: MEAN,
        style: Style::Rate,
        value: |row| of_goal(row, Goal::Rate),
        ..Figure::PLAIN
    },
    Figure {
        name: "Tuned p50 (us)",
        field: "tuned_latency_ns_p50",
        meaning: "Median latency of a candidate, if the goal is latency.",
        computed: MEAN,
        style: MICROSECONDS,
        value: |row| of_goal(row, Goal::Latency),
        ..Figure::PLAIN
    },
    Figure {
        name: "vs winner (%)",
        field: "tune_gain_fraction",
        meaning: "Relative improvement of a candidate over the winner of its race; negative if it was worse.",
        computed: "Geometric mean of the ratios in the rounds that both had, without the lowest and the highest fifth \
                   of them.",
        style: PERCENT,
        value: |row| gain(row, |it| it.mean),
        ..Figure::PLAIN
    },
    Figure {
        name: "Low (%)",
        field: "tune_gain_fraction_low",
        meaning: "Lower end of the 95 % confidence interval of that part.",
        computed: T,
        style: PERCENT,
        value: |row| gain(row, |it| it.low),
        ..Figure::PLAIN
    },
    Figure {
        name: "High (%)",
        field: "tune_gain_fraction_high",
        meaning: "Upper end of the 95 % confidence interval of that part.",
        computed: T,
        style: PERCENT,
        value: |row| gain(row, |it| it.high),
        ..Figure::PLAIN
    },
    Figure {
        name: "Came out",
        field: "tune_outcome",
        keep: 100,
        meaning: "End of a candidate: won, worse than the winner, as good but costlier, not told apart, left out early, refused, unfinished.",
        computed: "By the interval of its ratio to the winner.",
        value: |row| text(row, |it| it.outcome.name()),
        ..Figure::PLAIN
    },
];

const WINNER: &[Figure] = &[Figure {
    name: "Winner",
    field: "winner_command",
    meaning: "Command line of the transfer that a search ends with.",
    computed: "Written from the values that won.",
    value: |row| {
        let winner = body(row).and_then(|body| body.winner.as_ref());
        winner.map(|winner| winner.command.as_str()).into()
    },
    ..Figure::PLAIN
}];

fn body<'a>(row: &Row<'a>) -> Option<&'a TuneBody> {
    row.record.tune()
}

fn part<T: Into<Value>>(row: &Row<'_>, of: fn(&TuneTry) -> T) -> Value {
    let candidate = body(row).and_then(|body| body.candidate(row.part));
    candidate.map(of).into()
}

fn gain(row: &Row<'_>, of: fn(TuneGain) -> f64) -> Value {
    let candidate = body(row).and_then(|body| body.candidate(row.part));
    candidate.and_then(|it| it.gain).map(of).into()
}

fn of_goal(row: &Row<'_>, goal: Goal) -> Value {
    let body = body(row).filter(|body| body.point.goal == goal);
    let candidate = body.and_then(|body| body.candidate(row.part));
    candidate.and_then(|it| it.goal_mean).into()
}

fn text(row: &Row<'_>, of: fn(&TuneTry) -> &str) -> Value {
    let candidate = body(row).and_then(|body| body.candidate(row.part));
    candidate.map(of).into()
}
