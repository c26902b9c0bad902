//! The nearest known name to one that is unknown, and how a user's text is quoted in messages.

use crate::Error;

/// A user's text for a message: quoted, control characters escaped, and cut when it is absurdly long.
pub fn quote(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{:?}", format!("{}…", &text[..end])),
        None => format!("{text:?}"),
    }
}

/// The choice that `text` was probably meant to be, if one is near: a slip or two of the hand, or its beginning.
pub fn nearest<'a>(text: &str, choices: &[&'a str]) -> Option<&'a str> {
    // The distance takes the product of both lengths, and nothing that long is near any name.
    if text.len() > 64 {
        return None;
    }
    let text = text.to_lowercase().replace('_', "-");
    let beginning = choices
        .iter()
        .find(|choice| text.len() > 1 && choice.starts_with(&text));
    let distance = |choice: &&&str| strsim::damerau_levenshtein(&text, choice);
    let near = choices.iter().min_by_key(distance).filter(|choice| {
        let slips = distance(choice);
        slips <= 2.min(choice.len() / 2) || slips * 3 <= choice.len()
    });
    near.or(beginning).copied()
}

/// `unknown op "writ": did you mean "write"? ops: write, read`, for a name that is none of `choices`.
pub fn unknown(what: &str, text: &str, choices: &[&str]) -> Error {
    let hint = match nearest(text, choices) {
        Some(near) => format!("did you mean {near:?}? "),
        None => String::new(),
    };
    Error::Usage(format!(
        "unknown {what} {}: {hint}{what}s: {}",
        quote(text),
        choices.join(", ")
    ))
}
