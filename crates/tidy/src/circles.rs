//! Import circles: files of one crate that name each other's items, directly or through others.
//!
//! A crate's root (`lib.rs`, `main.rs`) counts for nothing, and neither do `mod` declarations, re-exports (`pub use`)
//! and test modules: they follow from where a file stands.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::tree::SourceFile;

/// A file's module path within its crate: `src/a/b.rs` and `src/a/b/mod.rs` are `["a", "b"]`.
type Module = Vec<String>;

/// The circles, each as the sorted paths of its files.
pub fn import_circles(files: &[SourceFile]) -> Vec<Vec<String>> {
    let mut crates = BTreeMap::<&str, BTreeMap<Module, &SourceFile>>::new();
    for file in files.iter().filter(|file| file.extension() == "rs") {
        if let Some((root, module)) = place(&file.path) {
            crates.entry(root).or_default().insert(module, file);
        }
    }
    let mut circles = Vec::new();
    for modules in crates.values() {
        let imports = modules
            .iter()
            .map(|(module, file)| (module, imports(module, &file.text, modules)))
            .collect();
        for circle in strongly_connected(&imports) {
            circles.push(
                circle
                    .into_iter()
                    .map(|module| modules[module].path.clone())
                    .collect(),
            );
        }
    }
    circles
}

/// The crate's `src` folder and the module's path in it.
fn place(path: &str) -> Option<(&str, Module)> {
    let at = path.find("/src/")?;
    let mut module: Module = path[at + 5..]
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    if module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    if module.len() == 1 && matches!(module[0].as_str(), "lib" | "main") || path.contains("/src/bin/") {
        return None;
    }
    Some((&path[..at + 4], module))
}

fn imports<'a>(
    module: &Module,
    text: &str,
    modules: &'a BTreeMap<Module, &SourceFile>,
) -> BTreeSet<&'a Module> {
    let Ok(parsed) = syn::parse_file(text) else {
        return BTreeSet::new();
    };
    let mut names = Names {
        module: module.clone(),
        paths: Vec::new(),
    };
    names.visit_file(&parsed);
    let mut imports = BTreeSet::new();
    for path in names.paths {
        // The deepest module that is a file: `crate::a::b::Item` names `a::b`, or `a` where `b` is an item of it.
        let deepest = (1..=path.len())
            .rev()
            .find_map(|length| modules.get_key_value(&path[..length]));
        if let Some((imported, _)) = deepest.filter(|(imported, _)| *imported != module) {
            imports.insert(imported);
        }
    }
    imports
}

/// Collects the paths of a file that begin with `crate`, `super` or `self`.
struct Names {
    module: Module,
    paths: Vec<Module>,
}

impl Names {
    fn add(&mut self, segments: &[String]) {
        let mut base = match segments.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        let mut rest = segments;
        while let Some(first) = rest.first() {
            match first.as_str() {
                "super" => drop(base.pop()),
                "self" | "crate" => {}
                _ => break,
            }
            rest = &rest[1..];
        }
        base.extend_from_slice(rest);
        self.paths.push(base);
    }

    fn add_tree(&mut self, prefix: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_tree(prefix, &path.tree);
                prefix.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(prefix, tree)),
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                prefix.push(ident.to_string());
                self.add(prefix);
                prefix.pop();
            }
            syn::UseTree::Glob(_) => self.add(prefix),
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .meta
                .require_list()
                .is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, syn::Visibility::Inherited) && !is_test(&item.attrs) {
            self.add_tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() && !is_test(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    /// The path in `pub(super)` and `pub(in ..)` says where an item can be named, and names none itself.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        self.add(&segments);
        visit::visit_path(self, path);
    }
}

/// Sets of two or more modules that reach each other.
fn strongly_connected<'a>(imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> Vec<BTreeSet<&'a Module>> {
    let reachable: BTreeMap<&Module, BTreeSet<&'a Module>> = imports
        .keys()
        .map(|start| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![*start]);
            while let Some(module) = open.pop() {
                open.extend(imports[module].iter().copied().filter(|next| seen.insert(*next)));
            }
            (*start, seen)
        })
        .collect();
    let mut circles = BTreeSet::new();
    for (start, reached) in &reachable {
        let circle: BTreeSet<&'a Module> = reached
            .iter()
            .copied()
            .filter(|other| reachable[other].contains(start))
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        import_circles(
            &files
                .iter()
                .map(|(path, text)| SourceFile::new(*path, *text))
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn a_circle_through_three_files_is_one() {
        let found = circles(&[
            ("c/src/lib.rs", "mod a; mod b; mod d; use a::A;"),
            ("c/src/a.rs", "use crate::b::{B, deep::X};"),
            ("c/src/b.rs", "mod deep; fn f() { crate::d::go() }"),
            ("c/src/b/deep.rs", "use super::super::a;"),
            ("c/src/d.rs", "use super::a::A;"),
        ]);
        assert_eq!(
            found,
            [["c/src/a.rs", "c/src/b.rs", "c/src/b/deep.rs", "c/src/d.rs"]]
        );
    }

    #[test]
    fn re_exports_declarations_visibilities_and_tests_tie_nothing() {
        let found = circles(&[
            (
                "c/src/a.rs",
                "pub mod b; pub use self::b::B; #[cfg(test)] use self::b::C; #[cfg(test)] mod tests { use super::b::B; }",
            ),
            ("c/src/a/b.rs", "use super::Something;"),
            ("c/src/d.rs", "mod e; use self::e::E;"),
            ("c/src/d/e.rs", "pub(super) struct E; pub(in crate::d) fn f() {}"),
        ]);
        assert_eq!(found, Vec::<Vec<String>>::new());
    }
}
