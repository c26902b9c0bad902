//! Options for the tables that a command prints.

use std::io::{IsTerminal, stdout};

use clap::Args;
use rustix::termios::tcgetwinsize;
use tonnage_plan::options::one_of;
use tonnage_report::Format;
use tonnage_report::explain::field_of_column;
use tonnage_report::view::{BandwidthUnit, View};
use tonnage_units::{Error, Result};

/// Tables for people.
#[derive(Debug, Clone, PartialEq, Default, Args)]
#[command(next_help_heading = "Tables")]
pub struct ViewArgs {
    /// Columns to print, by header or CSV name, such as MsgSize,p99.
    ///
    /// The table has these in this order, and notes; `tonnage explain` lists all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = field_of_column)]
    pub columns: Vec<&'static str>,

    /// Print all columns, however wide.
    ///
    /// By default, a terminal gets the columns that it has room for, and a line names the others. Where output is not a
    /// terminal, all columns are printed, unless COLUMNS sets a width.
    #[arg(long)]
    pub wide: bool,

    /// Unit of all bandwidths.
    #[arg(long, value_name = "UNIT", value_parser = one_of::<BandwidthUnit>())]
    pub unit: Option<BandwidthUnit>,

    /// Print tables alone, without titles, notes and other lines.
    #[arg(long, conflicts_with = "notes")]
    pub quiet: bool,

    /// Print notes in full, with details of each row.
    #[arg(long)]
    pub notes: bool,
}

impl ViewArgs {
    /// Returns the view of a command that prints this format.
    ///
    /// # Errors
    /// [`Error::Usage`] for options of tables with another format.
    pub fn view(&self, format: Format) -> Result<View> {
        let given = [
            ("--columns", !self.columns.is_empty()),
            ("--wide", self.wide),
            ("--unit", self.unit.is_some()),
            ("--quiet", self.quiet),
            ("--notes", self.notes),
        ];
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
        if let Some((option, _)) = given.next().filter(|_| format != Format::Table) {
            return Err(Error::Usage(format!(
                "{option} changes tables, and --format {format} prints none: leave one of them out"
            )));
        }
        let is_terminal = stdout().is_terminal();
        Ok(View {
            width: (!self.wide).then(|| screen_width(is_terminal)).flatten(),
            fields: self.columns.clone(),
            unit: self.unit,
            quiet: self.quiet,
            full_notes: self.notes,
            colored: is_terminal && wants_color(),
        })
    }
}

/// Assumed width of a terminal that does not report its width.
const WIDTH_OF_OLD_TERMINALS: usize = 80;

/// Returns the screen width from COLUMNS or the terminal; `None` if neither exists.
fn screen_width(is_terminal: bool) -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|columns| columns.parse().ok());
    let stated = columns.filter(|columns| *columns > 0);
    stated.or_else(|| {
        is_terminal.then(|| match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 => size.ws_col.into(),
            _ => WIDTH_OF_OLD_TERMINALS,
        })
    })
}

/// Returns whether colours are allowed, by the rules of <https://no-color.org>.
fn wants_color() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
