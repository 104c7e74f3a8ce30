//! The files that a script in JavaScript or TypeScript imports, found in its text: relative paths in `import`, `export
//! … from` and `require`. Not all runtimes report what they have loaded, and the text also has the imports that a job
//! makes later.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::limits::{CODE_FILE_BYTES_MAX, CODE_FILES_MAX};

/// The endings that a path may omit.
const ENDINGS: [&str; 10] = [
    "", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx", ".json",
];

/// The files that a script and its own modules import, without those of installed packages.
pub(crate) fn of(script: &Path) -> Vec<PathBuf> {
    let mut found = vec![script.to_owned()];
    let mut known = BTreeSet::from([script.canonicalize().unwrap_or_else(|_| script.to_owned())]);
    let mut next = 0;
    while let Some(file) = found.get(next).cloned() {
        next += 1;
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        for name in names(&read(&file)) {
            let Some(path) = resolved(&folder, name).filter(|path| !is_installed(path)) else {
                continue;
            };
            if found.len() <= CODE_FILES_MAX && known.insert(path.clone()) {
                found.push(path);
            }
        }
    }
    found.split_off(1)
}

fn read(file: &Path) -> String {
    let is_small = |path: &Path| {
        path.metadata()
            .is_ok_and(|metadata| metadata.len() <= CODE_FILE_BYTES_MAX)
    };
    let bytes = is_small(file).then(|| std::fs::read(file).ok()).flatten();
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// The relative paths that a text imports. A path in a comment counts, too. The file is then watched needlessly.
fn names(text: &str) -> impl Iterator<Item = &str> {
    memchr::memchr3_iter(b'"', b'\'', b'`', text.as_bytes()).filter_map(|at| {
        let (before, rest) = (&text[..at], &text[at + 1..]);
        if !rest.starts_with("./") && !rest.starts_with("../") {
            return None;
        }
        let end = rest.find(['"', '\'', '`', '\n'])?;
        (rest[end..].starts_with(&text[at..=at]) && is_import(before)).then(|| &rest[..end])
    })
}

/// Reports whether a text ends with the words before the path of an import.
fn is_import(before: &str) -> bool {
    let before = before.trim_end();
    let (before, words): (&str, &[&str]) = match before.strip_suffix('(') {
        Some(before) => (before.trim_end(), &["import", "require"]),
        None => (before, &["import", "from"]),
    };
    let is_word = |word: &&str| {
        let rest = before.strip_suffix(*word);
        rest.is_some_and(|rest| {
            !rest.ends_with(|c: char| c.is_alphanumeric() || ['_', '$', '.'].contains(&c))
        })
    };
    words.iter().any(is_word)
}

/// The file of a relative path.
fn resolved(folder: &Path, name: &str) -> Option<PathBuf> {
    let name = name.split(['?', '#']).next()?;
    // TypeScript names a module by the file that its compilation would give.
    let source = name.strip_suffix("js").map(|name| format!("{name}ts"));
    let whole = ENDINGS.iter().map(|ending| format!("{name}{ending}"));
    let index = ENDINGS[1..].iter().map(|ending| format!("{name}/index{ending}"));
    let mut paths = whole.chain(source).chain(index).map(|name| folder.join(name));
    paths.find(|path| path.is_file())?.canonicalize().ok()
}

fn is_installed(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "node_modules")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_imports_are_found_with_their_own_imports() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "script.mjs",
            r#"
            import fs from 'node:fs';
            import { a } from './a.js';
            import"./side-effect.mjs";
            export * from "../outside.js";
            const later = await import( './late.mjs?v=1');
            const old = require('./lib');
            fs.writeFileSync('./data.json', transform('./other.js') + object.from('./from.js') + `./${a}.js`);
            import 'package';
            import './node_modules/package/index.js';
            import './absent.js';
            "#,
        );
        for name in [
            "a.ts",
            "side-effect.mjs",
            "late.mjs",
            "data.json",
            "other.js",
            "from.js",
            "node_modules/package/index.js",
        ] {
            write(name, "import './script.mjs'; export const a = 1;");
        }
        write("lib/index.cjs", "module.exports = require('./deep/one')");
        write("lib/deep/one.json", "{}");
        let found: BTreeSet<PathBuf> = of(&folder.join("script.mjs")).into_iter().collect();
        let expected = [
            "a.ts",
            "late.mjs",
            "lib/deep/one.json",
            "lib/index.cjs",
            "side-effect.mjs",
        ];
        assert_eq!(found, expected.iter().map(|name| folder.join(name)).collect());
    }
}
