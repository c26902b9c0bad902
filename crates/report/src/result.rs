//! The result of a report: a word that agrees with the exit code, and the reason. It is printed before everything else.

use tonnage_judge::check::CheckVerdict;
use tonnage_record::Record;

use crate::markdown;
use crate::text::entry_in;

/// Result of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportResult {
    /// First word.
    pub word: ResultWord,
    /// The reason: row, value and distance, then what to do next.
    pub lines: Vec<String>,
}

/// First word of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultWord {
    /// Everything requested was done, and is correct.
    Pass,
    /// Worse than expected, but not enough to fail.
    Warn,
    /// Something is wrong or missing; the command ends with an error.
    Fail,
    /// The verdict could not be determined.
    Error,
    /// Nothing was done, which is allowed.
    Skip,
    /// Figures without a judgement.
    Result,
}

impl ResultWord {
    /// The word, as printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
            Self::Error => "ERROR",
            Self::Skip => "SKIP",
            Self::Result => "RESULT",
        }
    }

    /// A result with this word and a single line.
    pub fn with(self, line: impl Into<String>) -> ReportResult {
        ReportResult {
            word: self,
            lines: vec![line.into()],
        }
    }
}

impl ReportResult {
    /// Appends a line.
    #[must_use]
    pub fn then(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Formats the word, with the lines to the right of it wrapped at `width`. Without a trailing newline.
    pub fn plain(&self, width: usize) -> String {
        let indent = self.word.name().len() + 2;
        let heads = std::iter::once(self.word.name()).chain(std::iter::repeat(""));
        let lines = heads.zip(&self.lines);
        let text: String = lines
            .map(|(head, line)| entry_in(width, head, indent, line))
            .collect();
        text.trim_end().to_owned()
    }

    /// The lines as paragraphs, the word in bold.
    pub(crate) fn markdown(&self) -> String {
        let word = format!("**{}** ", self.word.name());
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|line| markdown::paragraph(line))
            .collect();
        word + &lines.join("\n")
    }
}

impl From<CheckVerdict> for ResultWord {
    fn from(verdict: CheckVerdict) -> Self {
        match verdict {
            CheckVerdict::Pass => Self::Pass,
            CheckVerdict::Warn => Self::Warn,
            CheckVerdict::Fail => Self::Fail,
            CheckVerdict::Skip => Self::Skip,
            CheckVerdict::Error => Self::Error,
        }
    }
}

/// Result of a skipped record: FAIL, unless the record is optional or the time limit of the run had passed.
pub(crate) fn not_done(record: &Record, why: &str) -> ReportResult {
    let word = match record.is_fine() {
        true => ResultWord::Skip,
        false => ResultWord::Fail,
    };
    word.with(format!("{}: {why}", record.skip_reason()))
}
