//! The frame of a page: HTML head, table of contents, and the parts of the page in order.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::bidi::{isolated, listed};
use crate::results::ResultPart;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

pub(crate) struct PageParts<'a> {
    pub(crate) title: &'a str,
    /// Names of the files with records.
    pub(crate) files: &'a [String],
    /// Sentence with the number of measured, skipped and failed points.
    pub(crate) counts: String,
    /// Verdicts of a comparison and of a baseline check, if any.
    pub(crate) verdicts: Vec<Markup>,
    /// Failures, skips and remarks.
    pub(crate) findings: Markup,
    /// Engines, hosts and runs.
    pub(crate) overview: Markup,
    /// Results per configuration.
    pub(crate) results: Vec<ResultPart>,
    /// Explanations of the columns shown on the page.
    pub(crate) definitions: Markup,
    /// Hosts, engines and memories.
    pub(crate) environment: Markup,
    /// One download link per file, containing its records.
    pub(crate) links: Vec<Markup>,
}

/// The whole page. If `plain`, it has neither style nor script.
pub(crate) fn document(parts: &PageParts<'_>, plain: bool) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(parts.title, plain))
            body {
                header {
                    h1 { (parts.title) }
                    p { (parts.counts) "; from " (listed(parts.files.iter().map(String::as_str))) }
                }
                (contents(parts))
                // Inserted in place, because a page with many records is long and should not be copied.
                main {
                    @if !parts.verdicts.is_empty() {
                        section id="verdicts" { h2 { "Verdicts" } @for part in &parts.verdicts { (part) } }
                    }
                    section id="findings" { h2 { "Failures, skips and remarks" } (parts.findings) }
                    section id="overview" { h2 { "What ran where" } (parts.overview) }
                    section id="results" {
                        h2 { "Results" }
                        @for (at, part) in parts.results.iter().enumerate() {
                            section id={ "result-" (at + 1) } { h3 { (isolated(&part.heading)) } (part.body) }
                        }
                    }
                    section id="definitions" { h2 { "Meanings of columns" } (parts.definitions) }
                    section id="environment" { h2 { "Hosts, engines and memories" } (parts.environment) }
                    section id="records" {
                        h2 { "Records" }
                        p {
                            "All that this page shows follows from these records, which are inside of it: "
                            code { "tonnage show" }
                            " always reads them from the page. Each link saves a file, packed by gzip, where the viewer allows \
                             downloads; Jenkins' does not."
                        }
                        ul { @for link in &parts.links { li { (link) } } }
                    }
                }
                @if !plain { script { (PreEscaped(SCRIPT)) } }
            }
        }
    }
}

fn head(title: &str, plain: bool) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            // Lets browsers apply their dark or light mode to a page without styles.
            meta name="color-scheme" content="light dark";
            title { (title) }
            @if !plain { style { (PreEscaped(STYLE)) } }
        }
    }
}

fn contents(parts: &PageParts<'_>) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                @if !parts.verdicts.is_empty() { li { a href="#verdicts" { "Verdicts" } } }
                li { a href="#findings" { "Failures, skips and remarks" } }
                li { a href="#overview" { "What ran where" } }
                li {
                    a href="#results" { "Results" }
                    ol {
                        @for (at, part) in parts.results.iter().enumerate() {
                            li { a href={ "#result-" (at + 1) } { (isolated(&part.heading)) } }
                        }
                    }
                }
                li { a href="#definitions" { "Meanings of columns" } }
                li { a href="#environment" { "Hosts, engines and memories" } }
                li { a href="#records" { "Records" } }
            }
        }
    }
}
