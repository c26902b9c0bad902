//! Figures of a search. A record has a row for each candidate of each race.

use crate::figures::common::{ASKED, EXCHANGE, FROM_PLAN, OPERATION, OUTCOME};
use crate::figures::engine::ENGINE;
use crate::figures::{Figure, Figures, GIGA, MICROSECONDS, PERCENT, Row, Style, Value};
use crate::tune::{TuneBody, TuneGain, TuneTry};
use tonnage_plan::tune::Goal;

/// All figures of a record of a search.
pub const FIGURES: Figures = &[
    ASKED, ENGINE, EXCHANGE, OPERATION, CANDIDATE, WINNER, OUTCOME,
];

const COUNTED: &str = "Counted.";
const MEAN: &str =
    "Geometric mean over the trials of the candidate without the fifth of them at either end.";
const T: &str =
    "Student's t over the logarithms of those ratios, without the fifth of them at either end.";

const fn figure(
    (name, field): (&'static str, &'static str),
    (meaning, computed): (&'static str, &'static str),
    style: Style,
    value: fn(&Row<'_>) -> Value,
) -> Figure {
    Figure {
        name,
        field,
        meaning,
        computed,
        style,
        better: None,
        value,
        trials: None,
    }
}

const CANDIDATE: &[Figure] = &[
    figure(
        ("Goal", "goal"),
        ("Figure that a search decides by.", FROM_PLAN),
        Style::Plain,
        |row| body(row).map(|body| body.point.goal.name()).into(),
    ),
    figure(
        ("Pass", "tune_pass"),
        ("Pass of a search over its options.", COUNTED),
        Style::Plain,
        |row| part(row, |it| u64::from(it.pass)),
    ),
    figure(
        ("Option", "tune_option"),
        ("Option whose values competed.", FROM_PLAN),
        Style::Plain,
        |row| text(row, |it| &it.dimension),
    ),
    figure(
        ("Candidate", "tune_value"),
        ("Value that competed, as a command line says it.", FROM_PLAN),
        Style::Plain,
        |row| text(row, |it| &it.value),
    ),
    figure(
        ("Rounds", "tune_rounds"),
        ("Trials of a candidate of a search.", COUNTED),
        Style::Plain,
        |row| part(row, |it| u64::from(it.rounds)),
    ),
    figure(
        ("Tuned BW (GB/s)", "tuned_bandwidth_bytes_per_s_mean"),
        (
            "Bandwidth of a candidate, where the goal is bandwidth.",
            MEAN,
        ),
        GIGA,
        |row| of_goal(row, Goal::Bandwidth),
    ),
    figure(
        ("Tuned rate (op/s)", "tuned_message_rate_per_s_mean"),
        (
            "Message rate of a candidate, where the goal is the rate.",
            MEAN,
        ),
        Style::Rate,
        |row| of_goal(row, Goal::Rate),
    ),
    figure(
        ("Tuned p50 (us)", "tuned_latency_ns_p50"),
        (
            "Median latency of a candidate, where the goal is latency.",
            MEAN,
        ),
        MICROSECONDS,
        |row| of_goal(row, Goal::Latency),
    ),
    figure(
        ("vs winner (%)", "tune_gain_fraction"),
        (
            "Part by which a candidate was better than the winner of its race; negative where it was worse.",
            "Geometric mean of the ratios in the rounds that both had, without the fifth of them at either end.",
        ),
        PERCENT,
        |row| gain(row, |it| it.mean),
    ),
    figure(
        ("Low (%)", "tune_gain_fraction_low"),
        ("Lower end of the 95 % confidence interval of that part.", T),
        PERCENT,
        |row| gain(row, |it| it.low),
    ),
    figure(
        ("High (%)", "tune_gain_fraction_high"),
        ("Upper end of the 95 % confidence interval of that part.", T),
        PERCENT,
        |row| gain(row, |it| it.high),
    ),
    figure(
        ("Came out", "tune_outcome"),
        (
            "End of a candidate: won, worse than the winner, as good but dearer, not told apart, left out early, refused, unfinished.",
            "By the interval of its ratio to the winner.",
        ),
        Style::Plain,
        |row| text(row, |it| it.outcome.name()),
    ),
];

const WINNER: &[Figure] = &[figure(
    ("Winner", "winner_command"),
    (
        "Command line of the transfer that a search ends with.",
        "Written from the values that won.",
    ),
    Style::Plain,
    |row| {
        let winner = body(row).and_then(|body| body.winner.as_ref());
        winner.map(|winner| winner.command.as_str()).into()
    },
)];

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
