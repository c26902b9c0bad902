//! A parser for Prometheus' text exposition format 0.0.4, written from the format's documentation. The parser is
//! stricter than Prometheus itself.

use std::collections::{BTreeMap, BTreeSet};

/// Series with one name.
#[derive(Debug)]
pub struct ParsedFamily {
    /// The name.
    pub name: String,
    /// Type from the TYPE line.
    pub kind: String,
    /// Samples of the family.
    pub samples: Vec<ParsedSample>,
}

/// One line with labels and a value.
#[derive(Debug)]
pub struct ParsedSample {
    /// Labels and their values, unescaped.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// Parses a text. Each family must have HELP and TYPE before its samples, and its lines must not mix with those of
/// another family.
pub fn parse(text: &str) -> Result<Vec<ParsedFamily>, String> {
    if !text.ends_with('\n') || text.contains('\r') && text.lines().any(|line| line.ends_with('\r'))
    {
        return Err("the last line has no line feed, or lines end otherwise".to_owned());
    }
    let mut families: Vec<ParsedFamily> = Vec::new();
    let mut help: Option<String> = None;
    let mut seen: BTreeSet<(String, Vec<(String, String)>)> = BTreeSet::new();
    for line in text.split_terminator('\n') {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').ok_or("HELP without words")?;
            unescape(words, false)?;
            help = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("TYPE without a type")?;
            let known = families.iter().any(|family| family.name == name);
            if known || help.as_deref() != Some(name) || !is_name(name, true) {
                return Err(format!("{name}: twice, without HELP, or no name"));
            }
            families.push(ParsedFamily {
                name: name.to_owned(),
                kind: kind.to_owned(),
                samples: Vec::new(),
            });
        } else {
            let (name, sample) = sample(line)?;
            let pairs = sample.labels.clone().into_iter().collect();
            if !seen.insert((name.clone(), pairs)) {
                return Err(format!("{line}: the same series twice"));
            }
            let family = families.last_mut().filter(|family| family.name == name);
            family
                .ok_or(format!("{line}: not below its TYPE"))?
                .samples
                .push(sample);
        }
    }
    Ok(families)
}

fn sample(line: &str) -> Result<(String, ParsedSample), String> {
    let bad = |what: &str| format!("{line:?}: {what}");
    let end = line.find(['{', ' ']).ok_or_else(|| bad("no value"))?;
    let name = &line[..end];
    if !is_name(name, true) {
        return Err(bad("no name of a series"));
    }
    let mut labels = BTreeMap::new();
    let mut rest = &line[end..];
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, value) = rest.split_once("=\"").ok_or_else(|| bad("no label"))?;
            if !is_name(label, false) || label.starts_with("__") {
                return Err(bad("no name of a label"));
            }
            let close = closing(value).ok_or_else(|| bad("no closing quote"))?;
            let text = unescape(&value[..close], true)?;
            if labels.insert(label.to_owned(), text).is_some() {
                return Err(bad("a label twice"));
            }
            rest = &value[close + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').ok_or_else(|| bad("no blank"))?;
    let value = value.parse().map_err(|_| bad("no number"))?;
    Ok((name.to_owned(), ParsedSample { labels, value }))
}

/// Returns the position of the closing quote.
fn closing(value: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in value.char_indices() {
        match character {
            '"' if !escaped => return Some(at),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

fn unescape(text: &str, quotes: bool) -> Result<String, String> {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.push(match characters.next() {
                Some('\\') => '\\',
                Some('n') => '\n',
                Some('"') if quotes => '"',
                other => return Err(format!("{text:?}: escape of {other:?}")),
            }),
            plain => out.push(plain),
        }
    }
    Ok(out)
}

fn is_name(name: &str, of_series: bool) -> bool {
    let inside = |it: char| it.is_ascii_alphanumeric() || it == '_' || of_series && it == ':';
    !name.is_empty()
        && !name.starts_with(|it: char| it.is_ascii_digit())
        && name.chars().all(inside)
}

#[test]
fn the_parser_accepts_only_valid_input() {
    let head = "# HELP a b\n# TYPE a gauge\n";
    let good = format!("{head}a 1\na{{x=\"q\\\\\\\"\\n,}}\",y=\"\"}} 1e-9\n");
    let families = parse(&good).unwrap();
    assert_eq!(families[0].samples[1].labels["x"], "q\\\"\n,}");
    for bad in [
        "a 1\n".to_owned(),
        format!("{head}a 1"),
        format!("{head}a 1\na 2\n"),
        format!("{head}a{{x=\"\\t\"}} 1\n"),
        format!("{head}a{{x=\"a\nb\"}} 1\n"),
        format!("{head}a{{1x=\"\"}} 1\n"),
        format!("{head}a{{x=\"\"\"}} 1\n"),
        format!("{head}a x\n"),
        format!("{head}{head}a 1\n"),
    ] {
        assert!(parse(&bad).is_err(), "{bad}");
    }
}
