//! Each SQL object has one definition: the files of one folder `schema/` create no function, view or table twice.

use std::collections::BTreeMap;

use regex::Regex;

use crate::tree::{Fault, SourceFile};

/// A definition: its type, its name, and for a function its parameters, for a trigger its table.
const CREATE: &str = concat!(
    r"(?im)^\s*create\s+(?:or\s+replace\s+)?(?:unique\s+|temp\s+|temporary\s+|unlogged\s+)*",
    r"(?:(view|table|index|type|domain|sequence)\s+(?:if\s+not\s+exists\s+)?([\w.]+)",
    r"|(function|procedure|aggregate)\s+([\w.]+\s*\([^)]*\))",
    r"|(trigger)\s+(\w+[^;]*?\bon\s+[\w.]+))",
);

/// Objects that the `.sql` files of one `schema/` folder, or of folders in it, create more than once.
pub fn repeated_objects(files: &[SourceFile]) -> Vec<Fault> {
    let create = Regex::new(CREATE).expect("the pattern is valid");
    let mut seen = BTreeMap::<(&str, String, String), (&str, usize)>::new();
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.extension() == "sql") {
        let Some(at) = file.path.find("/schema/") else {
            continue;
        };
        for found in create.captures_iter(&file.text) {
            let mut groups = found.iter().skip(1).flatten();
            let (Some(what), Some(name)) = (groups.next(), groups.next()) else {
                continue;
            };
            let line = 1 + file.text[..what.start()].matches('\n').count();
            let name = name.as_str().split_whitespace().collect::<Vec<_>>().join(" ");
            let key = (
                &file.path[..at],
                what.as_str().to_lowercase(),
                name.to_lowercase(),
            );
            let message = match seen.get(&key) {
                Some((path, first)) => format!("{} `{}` is created in {path}:{first}, too", key.1, key.2),
                None => {
                    seen.insert(key, (&file.path, line));
                    continue;
                }
            };
            faults.push(Fault::new(&file.path, line, message + "; keep one definition"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_two_files_is_found() {
        let files = [
            SourceFile::new(
                "a/schema/1.sql",
                "create view v as select 1;\ncreate table v2 (a int);\n",
            ),
            SourceFile::new("a/schema/deep/2.sql", "\nCREATE OR REPLACE VIEW v AS SELECT 2;\n"),
            SourceFile::new("b/schema/1.sql", "create view v as select 3;\n"),
            SourceFile::new(
                "b/schema/2.sql",
                "create function f(a int) ..;\ncreate function f(a text) ..;\n",
            ),
            SourceFile::new(
                "b/schema/3.sql",
                "create trigger t after insert on a ..;\ncreate trigger t after insert on b ..;\n",
            ),
        ];
        let faults: Vec<String> = repeated_objects(&files).iter().map(Fault::to_string).collect();
        let expected =
            "a/schema/deep/2.sql:2: view `v` is created in a/schema/1.sql:1, too; keep one definition";
        assert_eq!(faults, [expected]);
    }
}
