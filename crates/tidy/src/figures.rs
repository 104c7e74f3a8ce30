//! Figures in tables of the documentation, which the benchmarks' reports must hold.

use crate::tree::{Fault, SourceFile};

/// Documents whose tables quote the reports.
const QUOTING: [&str; 2] = ["README.md", "docs/comparison.md"];

/// Figures of thousands, such as `2,090,000`, in tables of documents that quote `bench/RESULTS*.md`, and that no report holds.
pub fn unmeasured(files: &[SourceFile]) -> Vec<Fault> {
    let reports: Vec<&SourceFile> = files
        .iter()
        .filter(|file| file.path.contains("bench/RESULTS"))
        .collect();
    let is_measured = |figure: &str| {
        let mut words = reports.iter().flat_map(|report| words(&report.text));
        words.any(|word| word == figure)
    };
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| QUOTING.contains(&file.path.as_str())) {
        for (at, line) in file
            .text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.starts_with('|'))
        {
            for figure in words(line).filter(|word| is_figure(word) && !is_measured(word)) {
                let message = format!("no report in bench/ holds the figure {figure}");
                faults.push(Fault::new(&file.path, at + 1, message));
            }
        }
    }
    faults
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_digit() && !".,".contains(letter))
        .map(|word| word.trim_matches(['.', ',']))
}

/// Whether a word is a number with thousands.
fn is_figure(word: &str) -> bool {
    word.contains(',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_of_no_report_is_found() {
        let report = SourceFile::new("bench/RESULTS.md", "| drain | 2,090,000 jobs/s | 1,234 |");
        let readme = "drains 5,000\n| drain | 2,090,000 jobs/s | peer: 2,345 | 10 |\n";
        let faults = unmeasured(&[report, SourceFile::new("README.md", readme)]);
        assert_eq!(faults.len(), 1);
        assert_eq!(
            faults[0].to_string(),
            "README.md:2: no report in bench/ holds the figure 2,345"
        );
    }
}
