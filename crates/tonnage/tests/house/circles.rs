//! Circles between files: two files of a crate that use each other, directly or by way of others, can only be
//! understood together.
//!
//! A file uses another when it names something that is defined there, by an import or by a path. Passing a name on
//! (`pub use`) is no use of it, and who imports such a name uses the file that defines it. What methods are called on
//! values is not seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Item, ItemUse, Macro, UseTree, Visibility};

use super::source::{self, Modules};

/// Files that each file uses, and one of the names that it uses there.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// An import: `use PATH as NAME`.
struct Import {
    path: Vec<String>,
    name: String,
    passed_on: bool,
}

/// Names in a module.
#[derive(Default)]
struct Names {
    imports: Vec<Import>,
    defined: BTreeSet<String>,
    paths: BTreeSet<Vec<String>>,
}

/// Deepest chain of names that are passed on; more is a circle of its own.
const DEPTH_MAX: usize = 32;

impl Names {
    fn of(items: &[Item]) -> Self {
        let mut names = Self::default();
        for item in items {
            names.defined.extend(defined(item));
            names.visit_item(item);
        }
        names
    }

    fn import(&mut self, tree: &UseTree, path: &[String], passed_on: bool) {
        let longer = |name: &syn::Ident| [path, &[name.to_string()]].concat();
        let mut add = |path: Vec<String>, name: String| {
            self.imports.push(Import {
                path,
                name,
                passed_on,
            });
        };
        match tree {
            UseTree::Path(part) => self.import(&part.tree, &longer(&part.ident), passed_on),
            UseTree::Group(group) => {
                let mut parts = group.items.iter();
                parts
                    .by_ref()
                    .for_each(|part| self.import(part, path, passed_on));
            }
            UseTree::Name(name) if name.ident == "self" => {
                add(path.to_vec(), path.last().cloned().unwrap_or_default());
            }
            UseTree::Name(name) => add(longer(&name.ident), name.ident.to_string()),
            UseTree::Rename(name) if name.ident == "self" => {
                add(path.to_vec(), name.rename.to_string());
            }
            UseTree::Rename(name) => add(longer(&name.ident), name.rename.to_string()),
            UseTree::Glob(_) => add([path, &["*".to_owned()]].concat(), "*".to_owned()),
        }
    }

    /// Paths among tokens that nobody has parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 => path.push(name.to_string()),
                TokenTree::Ident(name) => {
                    self.paths.insert(std::mem::take(&mut path));
                    path.push(name.to_string());
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.paths.insert(std::mem::take(&mut path));
                    self.tokens(group.stream());
                }
                _ => {
                    self.paths.insert(std::mem::take(&mut path));
                }
            }
            colons = 0;
        }
        self.paths.insert(path);
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let passed_on = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &[], passed_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|part| part.ident.to_string());
        self.paths.insert(names.collect());
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, found: &'ast Macro) {
        self.visit_path(&found.path);
        self.tokens(found.tokens.clone());
    }

    // `pub(super)` names a module and uses nothing of it.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// The name that an item defines.
fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// A crate's modules, with the names in each.
struct Resolver<'a> {
    modules: &'a Modules,
    names: BTreeMap<&'a [String], Names>,
}

impl<'a> Resolver<'a> {
    fn new(modules: &'a Modules) -> Self {
        let names = modules.iter();
        Self {
            names: names
                .map(|(name, module)| (&name[..], Names::of(&module.items)))
                .collect(),
            modules,
        }
    }

    /// The module that defines what a path in module `at` means; `None` for what is no item of this crate.
    fn definer(&self, at: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        if depth > DEPTH_MAX {
            return None;
        }
        let up = path.iter().take_while(|part| *part == "super").count();
        let (mut module, rest) = match first.as_str() {
            "crate" | "$crate" => (Vec::new(), rest),
            "self" => (at.to_vec(), rest),
            "super" => (at[..at.len().checked_sub(up)?].to_vec(), &path[up..]),
            _ if self.modules.contains_key(&[at, &path[..1]].concat()) => (at.to_vec(), path),
            _ => {
                let imports = &self.names.get(at)?.imports;
                let Some(import) = imports.iter().find(|import| import.name == *first) else {
                    return self.by_globs(at, path, depth);
                };
                // A name that is imported as itself comes from another crate.
                let is_itself = import.path.len() == 1;
                let path = [&import.path[..], rest].concat();
                return (!is_itself).then(|| self.definer(at, &path, depth + 1))?;
            }
        };
        for (index, name) in rest.iter().enumerate() {
            let below = [&module[..], std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&below) {
                module = below;
                continue;
            }
            return Some(self.behind(module, &rest[index..], depth));
        }
        None
    }

    /// The module that defines what a path means whose first name comes by an import of everything.
    fn by_globs(&self, at: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let imports = self.names.get(at)?.imports.iter();
        let globs = imports.filter(|import| import.name == "*");
        let mut sources = globs.filter_map(|glob| self.definer(at, &glob.path, depth + 1));
        let knows = |source: &Vec<String>| {
            let names = &self.names[&source[..]];
            let below = [&source[..], &path[..1]].concat();
            names.defined.contains(&path[0])
                || names.imports.iter().any(|import| import.name == path[0])
                || self.modules.contains_key(&below)
        };
        let source = sources.find(|source| *source != at && knows(source))?;
        let inside = [&["self".to_owned()], path].concat();
        self.definer(&source, &inside, depth + 1)
    }

    /// The module that defines what `module` has under a name: itself, or whoever it has it from.
    fn behind(&self, module: Vec<String>, path: &[String], depth: usize) -> Vec<String> {
        let names = &self.names[&module[..]];
        if path[0] == "*" || names.defined.contains(&path[0]) {
            return module;
        }
        let named = names.imports.iter().find(|import| import.name == path[0]);
        if let Some(import) = named {
            let path = [&import.path[..], &path[1..]].concat();
            return self.definer(&module, &path, depth + 1).unwrap_or(module);
        }
        let globs = names.imports.iter().filter(|import| import.name == "*");
        let mut sources = globs.filter_map(|glob| self.definer(&module, &glob.path, depth + 1));
        let found = sources.find(|source| self.names[&source[..]].defined.contains(&path[0]));
        found.unwrap_or(module)
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (&at, names) in &self.names {
            let firsts: BTreeSet<_> = names.paths.iter().filter_map(|path| path.first()).collect();
            let used = names.imports.iter().filter(|import| {
                let named = firsts.contains(&import.name);
                !import.passed_on
                    || named
                    || import.name == "*" && self.is_used(at, import, &firsts)
            });
            let paths = used.map(|import| &import.path).chain(&names.paths);
            for path in paths {
                let Some(definer) = self.definer(at, path, 0) else {
                    continue;
                };
                let (from, to) = (&self.modules[at].file, &self.modules[&definer].file);
                if from != to {
                    let of_file = uses.entry(from.clone()).or_default();
                    of_file.entry(to.clone()).or_insert_with(|| path.join("::"));
                }
            }
        }
        uses
    }

    /// Returns whether a module itself names something that it passes on by a glob.
    fn is_used(&self, at: &[String], glob: &Import, firsts: &BTreeSet<&String>) -> bool {
        let source = self.definer(at, &glob.path, 0);
        source.is_some_and(|source| {
            let defined = &self.names[&source[..]].defined;
            defined.iter().any(|name| firsts.contains(name))
        })
    }
}

/// The shortest circle through each file that is in one, each circle once, in words.
fn circles(uses: &Uses) -> Vec<String> {
    let mut found = BTreeMap::new();
    for start in uses.keys() {
        let Some(circle) = shortest(uses, start) else {
            continue;
        };
        let files: BTreeSet<&String> = circle.iter().copied().collect();
        found
            .entry(files)
            .or_insert_with(|| in_words(uses, &circle));
    }
    found.into_values().collect()
}

/// The shortest way from a file back to itself.
fn shortest<'a>(uses: &'a Uses, start: &'a String) -> Option<Vec<&'a String>> {
    let mut ways = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for to in uses.get(*way.last()?)?.keys() {
            if to == start {
                return Some(way);
            }
            if uses.contains_key(to) && seen.insert(to) {
                ways.push_back([&way[..], &[to]].concat());
            }
        }
    }
    None
}

fn in_words(uses: &Uses, circle: &[&String]) -> String {
    let next = circle.iter().cycle().skip(1);
    let steps = circle.iter().zip(next);
    let steps = steps.map(|(from, to)| format!("{from} uses {} of {to}", uses[*from][*to]));
    steps.collect::<Vec<_>>().join(", and ")
}

#[test]
fn files_of_a_crate_do_not_use_each_other_in_circles() {
    let heads = source::heads().into_iter();
    let found: Vec<String> = heads
        .flat_map(|head| circles(&Resolver::new(&source::modules(&head)).uses()))
        .collect();
    assert!(
        found.is_empty(),
        "move what both files need to a third:\n{}",
        found.join("\n")
    );
}

/// A crate of these files, each with its module's path.
fn invented(files: &[(&str, &str)]) -> Vec<String> {
    let mut modules = Modules::new();
    for (name, text) in files {
        let path: Vec<String> = name.split('/').map(str::to_owned).collect();
        let path = if *name == "root" { Vec::new() } else { path };
        let items = syn::parse_file(text).unwrap().items;
        source::add(&mut modules, name, items, None, path);
    }
    circles(&Resolver::new(&modules).uses())
}

#[test]
fn circles_are_found_by_whatever_name_a_file_is_used() {
    let b = "pub struct B; fn f() { crate::a::f(); }";
    for a in [
        "use crate::b::B; pub fn f() {}",
        "use super::b::{self, B as Other}; pub fn f() {}",
        "use super::{b}; pub fn f() { b::f(); }",
        "pub fn f() -> crate::b::B { loop {} }",
        "pub fn f() { println!(\"{:?}\", super::b::B); }",
        "use super::*; pub fn f() { let _: passed::B; }",
        "use crate::Named; pub fn f() {}",
    ] {
        let root = "mod a; mod b; pub use b as passed; pub use b::B as Named;";
        let found = invented(&[("root", root), ("a", a), ("b", b)]);
        assert_eq!(found.len(), 1, "{a}: {found:?}");
        assert!(found[0].contains("b uses crate::a::f of a"), "{found:?}");
    }
}

#[test]
fn passing_names_on_and_tests_inside_of_files_make_no_circle() {
    let root = "mod a; mod b; pub use a::A; pub fn f() {}";
    let a = "pub struct A; mod tests { use super::*; use crate::b::B; }";
    let b = "use crate::A; pub struct B; pub(super) fn f(_: A) {}";
    assert_eq!(
        invented(&[("root", root), ("a", a), ("b", b)]),
        Vec::<String>::new()
    );
    // The parent uses what it passes on, and its child uses the parent.
    let root = "mod a; pub use a::A; pub struct Root(A);";
    let a = "pub struct A; fn f(_: super::Root) {}";
    assert_eq!(invented(&[("root", root), ("a", a)]).len(), 1);
}
