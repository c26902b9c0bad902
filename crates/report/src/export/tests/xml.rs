//! A parser for the subset of XML 1.0 that test reports need: a declaration, elements, attributes and text. It rejects
//! comments, entities other than the five predefined ones, and characters that XML does not allow.

use std::collections::BTreeMap;

/// An element without its content.
#[derive(Debug)]
pub struct XmlElement {
    /// The name.
    pub name: String,
    /// Attributes with their values.
    pub attributes: BTreeMap<String, String>,
}

/// Parses a document and returns its elements in the order of their start tags.
pub fn parse(text: &str) -> Result<Vec<XmlElement>, String> {
    let wrong = text.chars().find(|it| !is_allowed(*it));
    if let Some(wrong) = wrong {
        return Err(format!("{wrong:?} is no character of XML"));
    }
    let mut rest = text
        .strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")
        .ok_or("no declaration")?;
    let (mut elements, mut open): (Vec<XmlElement>, Vec<String>) = (Vec::new(), Vec::new());
    while let Some((before, tag)) = rest.split_once('<') {
        unescape(before)?;
        if open.is_empty() && !(before.trim().is_empty() && elements.is_empty()) {
            return Err(format!("{before:?} outside of the root"));
        }
        let (inside, behind) = tag.split_once('>').ok_or("no end of a tag")?;
        if inside.contains('<') {
            return Err(format!("{inside:?}: < inside of a tag"));
        }
        rest = behind;
        if let Some(name) = inside.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("{name} is closed and was not open"));
            }
            continue;
        }
        let (inside, alone) = match inside.strip_suffix('/') {
            Some(inside) => (inside, true),
            None => (inside, false),
        };
        let element = element(inside)?;
        if !alone {
            open.push(element.name.clone());
        }
        elements.push(element);
    }
    match open.is_empty() && rest.trim().is_empty() {
        true => Ok(elements),
        false => Err(format!("{open:?} stay open, or {rest:?} follows")),
    }
}

fn element(inside: &str) -> Result<XmlElement, String> {
    let (name, mut rest) = inside.split_once(' ').unwrap_or((inside, ""));
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|it| it.is_ascii_alphabetic());
    let mut attributes = BTreeMap::new();
    while !rest.is_empty() {
        let (key, value) = rest
            .split_once("=\"")
            .ok_or(format!("{rest:?}: no attribute"))?;
        let (value, behind) = value.split_once('"').ok_or("no closing quote")?;
        if !is_name(key)
            || attributes
                .insert(key.to_owned(), unescape(value)?)
                .is_some()
        {
            return Err(format!("{key:?}: no name, or twice"));
        }
        rest = behind.strip_prefix(' ').unwrap_or(behind);
    }
    if !is_name(name) {
        return Err(format!("{name:?} is no name"));
    }
    Ok(XmlElement {
        name: name.to_owned(),
        attributes,
    })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        let (name, behind) = behind.split_once(';').ok_or("& without an end")?;
        out += before;
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            number => {
                let number = number.strip_prefix('#').and_then(|it| it.parse().ok());
                let character = number.and_then(char::from_u32).filter(|it| is_allowed(*it));
                character.ok_or(format!("&{name};"))?
            }
        });
        rest = behind;
    }
    Ok(out + rest)
}

fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[test]
fn the_parser_accepts_only_valid_input() {
    let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    let good = parse(&format!("{head}<a b=\"&lt;&#10;\"><c/>&amp;</a>\n")).unwrap();
    assert_eq!(good[0].attributes["b"], "<\n");
    assert_eq!(good[1].name, "c");
    for bad in [
        "<a>",
        "<a></b>",
        "<a b=\"<\"/>",
        "<a>&</a>",
        "<a>&x;</a>",
        "<a/>x<b/>",
        "<a>\u{1}</a>",
        "<a>&#1;</a>",
    ] {
        assert!(parse(&format!("{head}{bad}\n")).is_err(), "{bad}");
    }
}
