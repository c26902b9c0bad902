//! Splits a line into words as a shell does.

use tonnage_units::{Error, Result};

/// Longest accepted line.
const LINE_BYTES_MAX: usize = 1 << 16;

/// Splits a line into words, up to an operator such as `|` or `>`. Variables are not expanded.
pub fn split(line: &str) -> Result<Vec<String>> {
    if line.len() > LINE_BYTES_MAX {
        return Err(Error::Usage(format!(
            "the line is longer than {LINE_BYTES_MAX} bytes"
        )));
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut signs = line.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match signs.next() {
                        Some(end) if end == sign => break,
                        Some('\\') if sign == '"' => word.extend(signs.next()),
                        Some(inner) => word.push(inner),
                        None => {
                            return Err(Error::Usage(format!("the line has no closing {sign}")));
                        }
                    }
                }
            }
            '\\' => match signs.next() {
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_default().push(next),
            },
            '|' | '>' | '<' | ';' | '&' => {
                // In `2>file`, the number belongs to the operator.
                if sign == '>'
                    && word
                        .as_deref()
                        .is_some_and(|word| word == "1" || word == "2")
                {
                    word = None;
                }
                break;
            }
            '#' if word.is_none() => break,
            _ if sign.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(sign),
        }
    }
    words.extend(word);
    Ok(words)
}
