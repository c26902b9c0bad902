//! Crates that must treat all engines equally do not know any engine by name.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Attribute, ItemMod, LitStr, Macro};
use tonnage_engines::LISTS;

use super::source::{self, File, crate_of};

/// These crates must treat all engines equally.
const IMPARTIAL: &[&str] = &["bench", "loops", "ranks", "record", "tonnage"];

/// Returns whether an attribute is `#[cfg(test)]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    let names_tests = |list: &syn::MetaList| list.tokens.to_string() == "test";
    attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(names_tests)
}

/// Returns whether a file belongs to a crate's source and not to its tests.
fn is_seen(file: &File) -> bool {
    let is_test = |part: &str| part == "tests" || part == "tests.rs";
    file.path.contains("/src/") && !file.path.split('/').any(is_test)
}

/// String literals of a file, except in its tests, each with its line.
#[derive(Default)]
struct Texts(Vec<(String, usize)>);

impl Texts {
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    let text = syn::parse_str::<LitStr>(&literal.to_string());
                    let line = literal.span().start().line;
                    self.0.extend(text.map(|text| (text.value(), line)));
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Texts {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !item.attrs.iter().any(is_for_tests) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.0.push((text.value(), text.span().start().line));
    }

    fn visit_macro(&mut self, found: &'ast Macro) {
        self.tokens(found.tokens.clone());
    }
}

/// Returns string literals that name an engine, alone or followed by a colon and a variant.
fn named(file: &File) -> Vec<String> {
    if !is_seen(file) || !IMPARTIAL.contains(&crate_of(&file.path)) {
        return Vec::new();
    }
    let memory = LISTS.engines.iter().map(|entry| entry.name);
    let files = LISTS.file_engines.iter().map(|entry| entry.name);
    let names: Vec<_> = memory.chain(files).collect();
    let mut texts = Texts::default();
    texts.visit_file(&syn::parse_file(&file.text).unwrap());
    let is_name = |text: &str| names.contains(&text.split(':').next().unwrap_or_default());
    let found = texts.0.iter().filter(|(text, _)| is_name(text));
    found
        .map(|(text, line)| {
            format!(
                "{}:{line}: {text:?} is an engine: query its capabilities instead",
                file.path
            )
        })
        .collect()
}

#[test]
fn no_engine_is_known_by_name() {
    let found: Vec<String> = source::files().iter().flat_map(named).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_engine_that_is_known_by_name_is_found() {
    let found = |path: &str, text: &str| {
        let (path, text) = (path.to_owned(), text.to_owned());
        named(&File { path, text }).len()
    };
    let (loops, engines) = ("crates/bench/src/attic.rs", "crates/engines/src/attic.rs");
    for bad in [
        "fn f(name: &str) -> bool { name == \"shm\" }",
        "fn f() -> bool { matches!(name(), \"fabric:tcp\") }",
        "const A: &[&str] = &[\"uring\"];",
    ] {
        assert_eq!(found(loops, bad), 1, "{bad}");
        assert_eq!(found(engines, bad), 0, "{bad}");
    }
    for good in [
        "/// As shm does.\nfn f() -> &'static str { \"shm is fast\" }",
        "#[cfg(test)]\nmod tests {\n    const A: &str = \"shm\";\n}",
    ] {
        assert_eq!(found(loops, good), 0, "{good}");
    }
}
