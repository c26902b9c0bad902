//! Terms of docs/GLOSSARY.md, so that the program and the documentation explain them equally.

use super::entry;

static PAGE: &str = include_str!("../../../../docs/GLOSSARY.md");

/// A row of the page: words with the same meaning.
struct Term {
    words: &'static str,
    meaning: &'static str,
    elsewhere: &'static str,
}

/// Explains each term that has this word, in lower case, as its name here or in other tools.
pub fn explained(word: &str) -> Vec<String> {
    let is_meant = |term: &Term| {
        let mut names = names(term.words).chain(names(term.elsewhere));
        names.any(|name| name == word)
    };
    terms()
        .filter(is_meant)
        .map(|term| term.explained())
        .collect()
}

fn terms() -> impl Iterator<Item = Term> {
    PAGE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let term = Term {
            words: cells.next()?,
            meaning: cells.next()?,
            elsewhere: cells.next()?,
        };
        (term.words != "word" && !term.words.starts_with('-')).then_some(term)
    })
}

/// The names in a cell such as `bs (fio), block size`, without the tools that use them.
fn names(cell: &str) -> impl Iterator<Item = String> + '_ {
    let without_tool = |name: &str| {
        name.split(" (")
            .next()
            .unwrap_or_default()
            .trim()
            .to_lowercase()
    };
    cell.split(',')
        .map(without_tool)
        .filter(|name| !name.is_empty())
}

impl Term {
    fn explained(&self) -> String {
        let mut text = format!("{}\n{}", self.words, entry("  means", 14, self.meaning));
        if !self.elsewhere.is_empty() {
            text += &entry("  elsewhere", 14, self.elsewhere);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_found_by_each_of_its_words_and_by_those_of_other_tools() {
        for word in [
            "lane",
            "thread",
            "thread",
            "numjobs",
            "qp",
            "iodepth",
            "bus bandwidth",
        ] {
            assert_eq!(explained(word).len(), 1, "{word}");
        }
        assert!(explained("no such word").is_empty());
        let queue_pair = explained("qp").remove(0);
        assert!(
            queue_pair.starts_with("queue pair\n  means       an endpoint"),
            "{queue_pair}"
        );
    }

    #[test]
    fn every_row_of_the_page_has_a_word_and_a_meaning() {
        assert!(terms().count() > 40);
        for term in terms() {
            assert!(
                !term.words.is_empty() && term.meaning.len() > 10,
                "{}",
                term.words
            );
        }
    }
}
