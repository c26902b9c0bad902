//! Names that others chose and that may be written from right to left: whatever they hold, what stands beside them
//! keeps its order.

use maud::{Markup, html};

/// In place of a character that would turn round what follows.
const REPLACEMENT: char = '\u{fffd}';

/// A name that orders nothing but itself.
pub(crate) fn isolated(name: &str) -> Markup {
    html! { bdi { (name) } }
}

/// Names beside each other, each by itself.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> Markup {
    html! {
        @for (at, name) in names.into_iter().enumerate() {
            @if at > 0 { ", " }
            (isolated(name))
        }
    }
}

/// Text without characters that turn round what follows, for places where nothing isolates: sentences with names in
/// them, text of drawings, attributes.
pub(crate) fn in_order(text: &str) -> String {
    let turns = |it: char| matches!(it, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.replace(turns, REPLACEMENT.encode_utf8(&mut [0; 4]))
}

#[cfg(test)]
mod tests {
    use super::{in_order, listed};

    #[test]
    fn names_do_not_turn_round_what_is_beside_them() {
        assert_eq!(
            listed(["a\u{202e}", "b"]).into_string(),
            "<bdi>a\u{202e}</bdi>, <bdi>b</bdi>"
        );
        assert_eq!(
            in_order("a\u{202e}b\u{2066}c\u{200f}"),
            "a\u{fffd}b\u{fffd}c\u{fffd}"
        );
        assert_eq!(in_order("שלום → é"), "שלום → é");
    }
}
