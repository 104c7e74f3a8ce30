//! The repository keeps its own rules.

use std::path::Path;
use std::sync::LazyLock;

use gristmill_tidy::{Fault, Tree, circles, figures, findings, functions, links, public_items, size, sql};

/// The import circles that stand. Fewer is better; a new one fails.
const CIRCLES_MAX: usize = 5;

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Tree::read(&root).expect("the repository can be read");
    assert!(
        tree.files.len() > 500,
        "only {} files were found",
        tree.files.len()
    );
    tree
});

fn none(faults: Vec<Fault>) {
    let lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
    assert!(lines.is_empty(), "{} faults:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn files_are_short() {
    none(size::long_files(&TREE.files));
}

#[test]
fn functions_are_short() {
    none(functions::long_functions(&TREE.files));
}

#[test]
fn lines_are_narrow() {
    none(size::wide_lines(&TREE.files));
}

#[test]
fn the_architecture_is_short() {
    none(size::long_architecture(&TREE.files));
}

#[test]
fn findings_say_what_is_done_about_them() {
    none(findings::incomplete_findings(&TREE.files));
}

#[test]
fn folders_are_small() {
    none(size::full_folders(&TREE.files));
}

#[test]
fn names_name_a_subject() {
    none(size::empty_names(&TREE.files));
}

#[test]
fn each_sql_object_is_defined_once() {
    none(sql::repeated_objects(&TREE.files));
}

#[test]
fn links_resolve() {
    none(links::broken_links(&TREE.files));
}

#[test]
fn quoted_figures_are_measured() {
    none(figures::unmeasured(&TREE.files));
}

#[test]
fn public_items_are_used() {
    none(public_items::dead_items(&TREE.files));
}

#[test]
fn import_circles_are_few() {
    let circles = circles::import_circles(&TREE.files);
    let lines: Vec<String> = circles.iter().map(|circle| circle.join(", ")).collect();
    assert!(
        lines.len() <= CIRCLES_MAX,
        "{} circles, at most {CIRCLES_MAX}:\n{}",
        lines.len(),
        lines.join("\n")
    );
}
