//! Handles names from users, which may contain right-to-left characters. Such characters never change the order of the
//! surrounding text.

use maud::{Markup, html};

/// Replaces characters that would change the direction of the following text.
const REPLACEMENT: char = '\u{fffd}';

/// Isolates a name, so that it cannot affect the order of other text.
pub(crate) fn isolated(name: &str) -> Markup {
    html! { bdi { (name) } }
}

/// A list of names, each isolated.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> Markup {
    html! {
        @for (at, name) in names.into_iter().enumerate() {
            @if at > 0 { ", " }
            (isolated(name))
        }
    }
}

/// Removes direction-changing characters from text that cannot be isolated: sentences with names, drawings, attributes.
pub(crate) fn without_direction_marks(text: &str) -> String {
    let turns = |it: char| matches!(it, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.replace(turns, REPLACEMENT.encode_utf8(&mut [0; 4]))
}

#[cfg(test)]
mod tests {
    use super::{listed, without_direction_marks};

    #[test]
    fn names_do_not_change_the_direction_of_other_text() {
        assert_eq!(
            listed(["a\u{202e}", "b"]).into_string(),
            "<bdi>a\u{202e}</bdi>, <bdi>b</bdi>"
        );
        assert_eq!(
            without_direction_marks("a\u{202e}b\u{2066}c\u{200f}"),
            "a\u{fffd}b\u{fffd}c\u{fffd}"
        );
        assert_eq!(without_direction_marks("שלום → é"), "שלום → é");
    }
}
