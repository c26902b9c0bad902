//! A command line of tonnage while it is being built.

use std::collections::BTreeMap;

use super::tables::Row;
use super::values::fill;

/// Options that may be repeated. Each `NAME=VALUE` counts as an option of its own.
const REPEATED: &[&str] = &["--engine-option"];

/// A command line, with remarks about parts that it cannot express.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// The command.
    pub command: String,
    /// Options with their values.
    pub options: Vec<(String, Option<String>)>,
    /// Values that are needed only at the end of the translation.
    pub kept: BTreeMap<String, String>,
    /// Words that are not options.
    pub positional: Vec<String>,
    /// Remarks.
    pub remarks: Vec<String>,
    /// This host's name.
    pub here: String,
}

impl Draft {
    /// Sets options, written as on a command line: `--op write --ping-pong`.
    pub fn set(&mut self, words: &str) {
        let mut words = words.split(' ').filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            let value = words.next_if(|next| !next.starts_with("--"));
            self.set_one(word, value.map(str::to_owned));
        }
    }

    /// Sets an option. Replaces an earlier value.
    pub fn set_one(&mut self, option: &str, value: Option<String>) {
        let option = option.to_owned();
        let key = |value: &Option<String>| {
            let value = value.as_deref().unwrap_or_default();
            value.split('=').next().unwrap_or_default().to_owned()
        };
        let is_same = |(name, old): &(String, Option<String>)| {
            *name == option && (!REPEATED.contains(&name.as_str()) || key(old) == key(&value))
        };
        match self.options.iter_mut().find(|entry| is_same(entry)) {
            Some(entry) => entry.1 = value,
            None => self.options.push((option, value)),
        }
    }

    /// Returns whether the option is set.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|(name, _)| name == option)
    }

    /// Returns the value of an option.
    pub fn value(&self, option: &str) -> Option<&str> {
        let found = self.options.iter().find(|(name, _)| name == option);
        found.and_then(|(_, value)| value.as_deref())
    }

    /// Removes an option.
    pub fn remove(&mut self, option: &str) {
        self.options.retain(|(name, _)| name != option);
    }

    /// Returns a value that was kept for the end.
    pub fn kept(&self, name: &str) -> Option<&str> {
        self.kept.get(name).map(String::as_str)
    }

    /// Adds a remark, unless it is already there.
    pub fn remark(&mut self, remark: impl Into<String>) {
        let remark = remark.into();
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Applies a row to the draft. Returns false if the row does not understand the value.
    pub fn apply(&mut self, row: &Row, typed: &str, value: Option<&str>) -> bool {
        let Some(words) = filled(row, value.unwrap_or_default(), &self.here) else {
            return false;
        };
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let value = words.next_if(|next| !next.starts_with("--") && !next.starts_with('@'));
            match word.strip_prefix('@') {
                Some(name) => {
                    self.kept.insert(name.to_owned(), value.unwrap_or_default());
                }
                None => self.set_one(&word, value),
            }
        }
        if !row.remark.is_empty() {
            self.remark(format!("{typed}: {}", row.remark));
        }
        true
    }

    /// Returns the command line as words.
    pub fn line(&self) -> Vec<String> {
        let mut words = vec!["tonnage".to_owned(), self.command.clone()];
        for (option, value) in &self.options {
            words.push(option.clone());
            words.extend(value.clone());
        }
        words.extend(self.positional.clone());
        words
    }
}

/// Returns the words that a row produces for a value. `None` if the row does not understand the value.
pub fn filled(row: &Row, value: &str, here: &str) -> Option<Vec<String>> {
    let words = row.to.split(' ').filter(|word| !word.is_empty());
    words.map(|word| fill(word, value, here)).collect()
}
