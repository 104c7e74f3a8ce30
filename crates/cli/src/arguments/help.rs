//! The help of all commands, wrapped at the terminal's width.

use clap::{Command, CommandFactory};

use super::Arguments;

/// The program's commands. Each paragraph of their footers is one line, so that it is wrapped only once, at the
/// terminal's width.
pub fn program() -> Command {
    with_whole_paragraphs(Arguments::command())
}

fn with_whole_paragraphs(command: Command) -> Command {
    let footer = command
        .get_after_help()
        .map(|footer| join_paragraphs(&footer.to_string()));
    let command = match footer {
        Some(footer) => command.after_help(footer),
        None => command,
    };
    command.mut_subcommands(with_whole_paragraphs)
}

/// Joins the lines of each paragraph. Indented lines (examples, tables) and headings, which end with a colon, do not change.
fn join_paragraphs(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut is_in_paragraph = false;
    for (number, line) in text.lines().enumerate() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if number > 0 {
            joined.push(if is_in_paragraph && is_prose { ' ' } else { '\n' });
        }
        joined.push_str(line);
        is_in_paragraph = is_prose && !line.ends_with(':');
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_joined_but_examples_are_not() {
        assert_eq!(
            join_paragraphs("One\ntwo:\nthree\nfour.\n\nExamples:\n  a\n  b\nFive\nsix."),
            "One two:\nthree four.\n\nExamples:\n  a\n  b\nFive six."
        );
    }
}
