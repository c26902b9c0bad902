//! Names of types: one name, one thing, across all crates, so that a name that is read or searched for means one type.

use std::collections::BTreeMap;

use syn::visit::Visit;
use syn::{Attribute, Ident, Visibility};

use super::source::{self, File, crate_of};

/// Names that several types have, each with its reason.
const SHARED: &[(&str, &str)] = &[
    (
        "Kind",
        "the trait of a kind of experiment, in each room that has one",
    ),
    (
        "Files",
        "the kind: its steps in bench, its tables in report",
    ),
    (
        "Program",
        "the steps of a rank in a collective; in a record, the program that wrote it",
    ),
    (
        "Step",
        "one step of a rank in a collective; in a record, one step of connecting",
    ),
    (
        "Transfers",
        "the kind: its steps in bench, its tables in report",
    ),
    (
        "Striping",
        "asked for in plan; sys, which knows no plan, hands the same to Lustre",
    ),
    (
        "StripeCount",
        "asked for in plan; sys, which knows no plan, hands the same to Lustre",
    ),
];

/// A crate for tests that uses no other and that no room uses, so that its names meet nobody's.
const APART: &str = "testbed";

/// Types of a file that are visible outside of it, each with its line; those of its tests are not among them.
#[derive(Default)]
struct Types(Vec<(String, usize)>);

impl Types {
    fn add(&mut self, visibility: &Visibility, name: &Ident) {
        if !matches!(visibility, Visibility::Inherited) {
            self.0.push((name.to_string(), name.span().start().line));
        }
    }
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !item.attrs.iter().any(is_for_tests) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.vis, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.vis, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.vis, &item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add(&item.vis, &item.ident);
    }

    /// Types that a macro such as `names!` declares: what it is given begins like an item.
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let mut words: Vec<Ident> = Vec::new();
        for token in item.mac.tokens.clone() {
            let proc_macro2::TokenTree::Ident(word) = token else {
                continue;
            };
            words.push(word);
            if let [.., first, second, name] = &words[..]
                && first == "pub"
                && (second == "enum" || second == "struct")
            {
                self.0.push((name.to_string(), name.span().start().line));
            }
        }
    }
}

/// Recognises `#[cfg(test)]`.
pub(super) fn is_for_tests(attribute: &Attribute) -> bool {
    let names_tests = |list: &syn::MetaList| list.tokens.to_string() == "test";
    attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(names_tests)
}

/// Recognises a file whose types others may see: no test, and of no crate that stands apart.
pub(super) fn is_seen(file: &File) -> bool {
    let is_test = |part: &str| part == "tests" || part == "tests.rs";
    crate_of(&file.path) != APART
        && file.path.contains("/src/")
        && !file.path.split('/').any(is_test)
}

/// Names that more than one type has.
fn ambiguous(files: &[File]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_seen(file)) {
        let mut types = Types::default();
        types.visit_file(&syn::parse_file(&file.text).unwrap());
        for (name, line) in types.0 {
            let place = format!("{}:{line}", file.path);
            places.entry(name).or_default().push(place);
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
        .into_iter()
        .map(|(name, places)| (format!("{name}: {}", places.join(", ")), name))
        .filter(|(_, name)| SHARED.iter().all(|(shared, _)| shared != name))
        .map(|(found, _)| format!("{found}: say in all but one name which of them it is"))
        .collect()
}

#[test]
fn a_name_means_one_type() {
    let found = ambiguous(&source::files());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn names_that_may_be_shared_are() {
    let files = source::files();
    let defines = |file: &File, name: &str| {
        let mut types = Types::default();
        types.visit_file(&syn::parse_file(&file.text).unwrap());
        is_seen(file) && types.0.iter().any(|(found, _)| found == name)
    };
    for (name, _) in SHARED {
        let count = files.iter().filter(|file| defines(file, name)).count();
        assert!(
            count > 1,
            "{name} is in the list and means one type: remove it"
        );
    }
}

#[test]
fn a_name_with_two_meanings_is_found() {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let found = |texts: [&str; 2]| {
        let paths = ["crates/attic/src/lib.rs", "crates/cellar/src/lib.rs"];
        ambiguous(&[file(paths[0], texts[0]), file(paths[1], texts[1])]).len()
    };
    let open = "pub struct Trunk;\n";
    assert_eq!(
        found([open, "mod a {\n    pub(super) enum Trunk {}\n}\n"]),
        1
    );
    assert_eq!(found([open, "pub(crate) type Trunk = u8;\n"]), 1);
    assert_eq!(
        found([
            open,
            "names! {\n    /// It.\n    pub enum Trunk: \"trunk\" {}\n}\n"
        ]),
        1
    );
    assert_eq!(
        found([
            "pub trait Trunk {}\nmod b {\n    pub struct Trunk;\n}\n",
            ""
        ]),
        1
    );
    for other in [
        "struct Trunk;\n",
        "pub struct Chest;\n",
        "#[cfg(test)]\nmod tests {\n    pub struct Trunk;\n}\n",
    ] {
        assert_eq!(found([open, other]), 0, "{other}");
    }
    let kinds = "pub trait Kind {}\n";
    assert_eq!(found([kinds, kinds]), 0);
    let path = "crates/testbed/src/lib.rs";
    let apart = [file("crates/attic/src/lib.rs", open), file(path, open)];
    assert_eq!(ambiguous(&apart), Vec::<String>::new());
}
