//! Dead public items: a `pub` function, constant or type that no other place of the workspace names. The compiler
//! reports none of these, because another crate could name them.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::tree::{Fault, SourceFile};

/// Public items of Rust files below `crates/*/src` whose name stands nowhere but in their definition and in re-exports.
/// A name in a document or in another language (Python, SQL) is a use, too.
pub fn dead_items(files: &[SourceFile]) -> Vec<Fault> {
    let mut uses = BTreeMap::<String, usize>::new();
    let mut items = Vec::new();
    for file in files {
        if file.extension() == "rs" {
            let Ok(parsed) = syn::parse_file(&file.text) else {
                continue;
            };
            if let Ok(tokens) = file.text.parse() {
                count(tokens, &mut uses);
            }
            let mut found = Items {
                path: &file.path,
                items: Vec::new(),
                re_exports: Vec::new(),
            };
            found.visit_file(&parsed);
            for name in &found.re_exports {
                *uses.entry(name.clone()).or_default() -= 1;
            }
            if file.path.contains("/src/") {
                items.extend(found.items);
            }
        } else if file.extension() == "md" {
            for word in file.text.split(|c: char| !c.is_alphanumeric() && c != '_') {
                *uses.entry(word.to_owned()).or_default() += 1;
            }
        }
    }
    let mut definitions = BTreeMap::<&str, usize>::new();
    for (_, name, _) in &items {
        *definitions.entry(name).or_default() += 1;
    }
    items
        .iter()
        .filter(|(_, name, _)| uses.get(name).copied().unwrap_or(0) <= definitions[name.as_str()])
        .map(|(path, name, line)| {
            Fault::new(
                path,
                *line,
                format!("nothing names the public item `{name}`; delete it"),
            )
        })
        .collect()
}

fn count(tokens: TokenStream, uses: &mut BTreeMap<String, usize>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => *uses.entry(name.to_string()).or_default() += 1,
            TokenTree::Group(group) => count(group.stream(), uses),
            TokenTree::Literal(literal) => {
                // Inline arguments of `format!` and names in `serde(with = "..")`.
                let text = literal.to_string();
                for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
                    *uses.entry(word.to_owned()).or_default() += 1;
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

struct Items<'a> {
    path: &'a str,
    items: Vec<(String, String, usize)>,
    re_exports: Vec<String>,
}

impl Items<'_> {
    fn add(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.items
                .push((self.path.to_owned(), name.to_string(), name.span().start().line));
        }
    }

    fn re_export(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => self.re_export(&path.tree),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.re_export(tree)),
            syn::UseTree::Name(name) => self.re_exports.push(name.ident.to_string()),
            syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Items<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Fn(item) => self.add(&item.vis, &item.sig.ident),
            syn::Item::Struct(item) => self.add(&item.vis, &item.ident),
            syn::Item::Enum(item) => self.add(&item.vis, &item.ident),
            syn::Item::Trait(item) => self.add(&item.vis, &item.ident),
            syn::Item::Type(item) => self.add(&item.vis, &item.ident),
            syn::Item::Const(item) => self.add(&item.vis, &item.ident),
            syn::Item::Static(item) => self.add(&item.vis, &item.ident),
            syn::Item::Use(item) if matches!(item.vis, syn::Visibility::Public(_)) => {
                self.re_export(&item.tree)
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.vis, &item.sig.ident);
        visit::visit_impl_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_re_export_is_no_use_and_a_document_is_one() {
        let files = [
            SourceFile::new("a/src/lib.rs", "mod m; pub use m::{alone, documented};"),
            SourceFile::new(
                "a/src/m.rs",
                "pub fn alone() {}\npub fn documented() {}\npub fn used() {}",
            ),
            SourceFile::new("b/src/lib.rs", "fn f() { a::used() }"),
            SourceFile::new("docs/m.md", "Call `documented()`."),
        ];
        let faults: Vec<String> = dead_items(&files).iter().map(Fault::to_string).collect();
        assert_eq!(
            faults,
            ["a/src/m.rs:1: nothing names the public item `alone`; delete it"]
        );
    }
}
