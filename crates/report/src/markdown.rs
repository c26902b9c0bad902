//! GitHub-flavored Markdown: tables, and escaped text.

/// Draws rows, starting with the header. `right` selects right-aligned columns.
pub fn table(rows: &[Vec<String>], right: impl Fn(usize) -> bool) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells = row.iter().map(|cell| escaped(cell));
        text += &format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        if at == 0 {
            let rule = (0..row.len()).map(|column| if right(column) { "---:" } else { "---" });
            text += &format!("| {} |\n", rule.collect::<Vec<_>>().join(" | "));
        }
    }
    text
}

/// Escapes markup in a cell or line.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' => out.push(' '),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '&' | '~' | '$' => {
                out.push('\\');
                out.push(character);
            }
            plain => out.push(plain),
        }
    }
    out
}

/// Formats a paragraph. Escapes its start, so that Markdown does not treat it as a heading or list.
pub fn paragraph(text: &str) -> String {
    let text = escaped(text.trim_start());
    // Headings, lists and setext underlines start with these characters.
    match text.starts_with(['#', '-', '+', '=', ':']) {
        true => format!("\\{text}\n"),
        false => numbered(&text) + "\n",
    }
}

/// Escapes a leading number with a period or bracket, which would start a list.
fn numbered(text: &str) -> String {
    let rest = text.trim_start_matches(|it: char| it.is_ascii_digit());
    match rest.len() < text.len() && rest.starts_with(['.', ')']) {
        true => format!("{}\\{rest}", &text[..text.len() - rest.len()]),
        false => text.to_owned(),
    }
}

/// A code block, shown verbatim.
pub fn code(text: &str) -> String {
    let lines = text.lines().map(|line| format!("    {line}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_markup() {
        for (text, expected) in [
            ("plain, 1 %", "plain, 1 %\n"),
            ("# no heading", "\\# no heading\n"),
            ("- no item", "\\- no item\n"),
            ("12. no item", "12\\. no item\n"),
            ("12 ranks", "12 ranks\n"),
            ("<script>|`x`|$1$", "\\<script\\>\\|\\`x\\`\\|\\$1\\$\n"),
        ] {
            assert_eq!(paragraph(text), expected);
        }
        let rows = [
            vec!["A".to_owned(), "B".to_owned()],
            vec!["a|b\n".to_owned(), "1".to_owned()],
        ];
        assert_eq!(
            table(&rows, |at| at == 1),
            "| A | B |\n| --- | ---: |\n| a\\|b  | 1 |\n"
        );
        assert_eq!(code("a\n\nb"), "    a\n    \n    b\n");
    }
}
