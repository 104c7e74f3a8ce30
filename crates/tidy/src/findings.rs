//! Findings about other people's tools say what Gristmill does about them, and where.

use std::collections::BTreeSet;

use crate::tree::{Fault, SourceFile};

/// The parts of the comment at the head of a finding.
const PARTS: [&str; 4] = ["# Guess: ", "# Truth: ", "# Version and date: ", "# Gristmill: "];

/// Findings that lack a part of their comment, name no file of the tree in its last part, or have no line in their README.
pub fn incomplete_findings(files: &[SourceFile]) -> Vec<Fault> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let readme = files.iter().find(|file| file.path == "findings/README.md");
    let mut faults = Vec::new();
    for file in files {
        if file.folder() != "findings" || file.extension() != "sh" {
            continue;
        }
        let head: Vec<&str> = file
            .text
            .lines()
            .take_while(|line| line.starts_with('#'))
            .collect();
        for part in PARTS {
            if !head.iter().any(|line| line.starts_with(part)) {
                faults.push(Fault::new(
                    &file.path,
                    1,
                    format!("the comment at the head has no line `{part}`"),
                ));
            }
        }
        let about = head.iter().skip_while(|line| !line.starts_with(PARTS[3]));
        let words = about.flat_map(|line| {
            line.split(|character: char| character.is_whitespace() || "(),:;".contains(character))
        });
        let named: Vec<&str> = words
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| word.contains('/') && word.contains('.'))
            .collect();
        if named.is_empty() {
            faults.push(Fault::new(
                &file.path,
                1,
                "the line `# Gristmill:` names no document and no test".to_owned(),
            ));
        }
        for name in named.into_iter().filter(|name| !paths.contains(name)) {
            faults.push(Fault::new(
                &file.path,
                1,
                format!("`{name}` is no file of the tree"),
            ));
        }
        if !readme.is_some_and(|readme| readme.text.contains(&format!("| `{}` |", file.name()))) {
            faults.push(Fault::new(
                &file.path,
                1,
                "findings/README.md has no line for it".to_owned(),
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(head: &str, readme: &str) -> Vec<String> {
        let files = [
            SourceFile::new("docs/scripts.md", ""),
            SourceFile::new("findings/README.md", readme),
            SourceFile::new("findings/a.sh", head),
        ];
        incomplete_findings(&files).iter().map(Fault::to_string).collect()
    }

    #[test]
    fn a_finding_names_what_is_done_about_it() {
        let whole = "#!/usr/bin/env bash\n# Guess: a.\n# Truth: b.\n# Version and date: 1, 2026-11.\n# Gristmill: reads it as it is\n\
                     # (docs/scripts.md).\necho a/b.c\n";
        let line = "| `a.sh` | A fact. |";
        assert_eq!(faults(whole, line), Vec::<String>::new());
        assert_eq!(faults(whole, "").len(), 1);
        assert_eq!(faults(&whole.replace("# Truth: b.\n", ""), line).len(), 1);
        assert_eq!(faults(&whole.replace("scripts", "gone"), line).len(), 1);
        assert_eq!(
            faults(&whole.replace("docs/scripts.md", "by itself"), line).len(),
            1
        );
    }
}
