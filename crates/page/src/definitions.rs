//! Explanations of all columns on the page.

use std::collections::BTreeSet;

use maud::{Markup, html};
use tonnage_report::explain::{Definition, definitions as defined};

/// A list of the columns with these headers or CSV names.
pub(crate) fn definitions(columns: &BTreeSet<String>) -> Markup {
    let all = defined(|name| columns.contains(name));
    html! {
        dl { @for definition in &all { (one(definition)) } }
    }
}

fn one(definition: &Definition) -> Markup {
    html! {
        dt { b { (definition.name) } @if let Some(field) = definition.field { " " code { (field) } } }
        dd {
            (definition.meaning)
            @if let Some(computed) = definition.computed { " " i { "Computed: " } (computed) }
        }
    }
}
