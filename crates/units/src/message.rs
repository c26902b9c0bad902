//! Messages to the user on standard error, cut to a readable length.

use std::borrow::Cow;
use std::io::Write;

/// Longest word that is printed whole, enough for a long path. Longer words are user data, such as a mistyped argument,
/// and are cut.
const WORD_CHARACTERS_MAX: usize = 300;

/// Number of characters kept of a longer word.
const WORD_CHARACTERS_LEFT: usize = 60;

/// Length limit of a message in characters. A quarter of it is reserved for the end of the message, which holds the
/// advice.
const CHARACTERS_MAX: usize = 4000;

/// Prints a message and a line end to standard error. A failed write is ignored, because there is nowhere else to
/// report it.
pub fn print_message(text: &str) {
    let line = format!("{}\n", truncate_message(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Cuts absurdly long words, and leaves out the middle of an absurdly long text.
pub fn truncate_message(text: &str) -> Cow<'_, str> {
    // A text never has more characters than bytes.
    if text.len() <= WORD_CHARACTERS_MAX {
        return Cow::Borrowed(text);
    }
    let mut cut = String::with_capacity(text.len().min(4 * CHARACTERS_MAX));
    for word in text.split_inclusive(char::is_whitespace) {
        match word.char_indices().nth(WORD_CHARACTERS_MAX) {
            None => cut.push_str(word),
            Some(_) => {
                cut.extend(word.chars().take(WORD_CHARACTERS_LEFT));
                cut.push('…');
                cut.extend(word.chars().next_back().filter(|last| last.is_whitespace()));
            }
        }
    }
    let characters = cut.chars().count();
    if characters <= CHARACTERS_MAX {
        return Cow::Owned(cut);
    }
    let tail = CHARACTERS_MAX / 4;
    let mut both: String = cut.chars().take(CHARACTERS_MAX - tail).collect();
    both.push('…');
    both.extend(cut.chars().skip(characters - tail));
    Cow::Owned(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_messages_stay_as_they_are() {
        for text in [
            "",
            "a word\nand another",
            &"word ".repeat(700),
            &"x".repeat(300),
        ] {
            assert_eq!(truncate_message(text), text);
        }
    }

    #[test]
    fn long_words_are_cut_and_the_rest_stays() {
        let text = format!("cannot read {}\n(try another)", "ä".repeat(200_000));
        let cut = format!("cannot read {}…\n(try another)", "ä".repeat(60));
        assert_eq!(truncate_message(&text), cut);
    }

    #[test]
    fn long_texts_keep_their_beginning_and_their_end() {
        let text = format!("cannot read {}(try another)", "ä ".repeat(100_000));
        let cut = truncate_message(&text);
        assert!(cut.starts_with("cannot read ä ä") && cut.ends_with("ä (try another)"));
        assert_eq!(cut.chars().count(), CHARACTERS_MAX + 1);
    }
}
