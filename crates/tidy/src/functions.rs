//! Lines of functions: of Rust by its grammar; of C, Python, JavaScript and TypeScript by the layout that their formatters give.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::size::BUILT_PAGE;
use crate::tree::{Fault, SourceFile};

/// The most lines of a function, its signature included.
pub const FUNCTION_LINES_MAX: usize = 90;

/// Functions that are longer, each with a limit of its own, which may only fall.
const LONG_FUNCTIONS: [(&str, &str, usize); 8] = [
    ("crates/runtime/src/shims/javascript/outcomes.js", "return", 208),
    (
        "crates/runtime/src/shims/javascript/outcomes.js",
        "makeSender",
        92,
    ),
    ("web/src/pages/failures.tsx", "Failures", 113),
    ("web/src/pages/job.tsx", "Job", 103),
    ("web/src/pages/queues.tsx", "Queues", 93),
    ("web/src/pages/schedules.tsx", "Schedules", 122),
    ("web/src/pages/submit.tsx", "Submit", 141),
    ("web/src/pages/workers.tsx", "Workers", 105),
];

/// A function of a file.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// Its first line, counted from 1.
    first: usize,
    lines: usize,
}

/// Functions with more than [`FUNCTION_LINES_MAX`] lines.
pub fn long_functions(files: &[SourceFile]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.folder() != BUILT_PAGE) {
        let lines: Vec<&str> = file.text.lines().collect();
        let functions = match file.extension() {
            "rs" => match functions_of_rust(&file.text) {
                Ok(functions) => functions,
                Err(error) => {
                    let line = error.span().start().line;
                    faults.push(Fault::new(&file.path, line, error.to_string()));
                    continue;
                }
            },
            "c" | "h" => functions_of_c(&lines),
            "py" => functions_of_python(&lines),
            "js" | "mjs" | "ts" | "tsx" => functions_of_javascript(&lines),
            _ => continue,
        };
        for function in functions {
            let is_it = |(path, name, _): &&(&str, &str, usize)| *path == file.path && *name == function.name;
            let own = LONG_FUNCTIONS.iter().find(is_it);
            let lines_max = own.map_or(FUNCTION_LINES_MAX, |(.., max)| *max);
            let Function { name, first, lines } = function;
            if lines > lines_max {
                let message = format!("function `{name}` has {lines} lines, at most {lines_max}; split it");
                faults.push(Fault::new(&file.path, first, message));
            }
            if own.is_some() && lines <= FUNCTION_LINES_MAX {
                let message = format!("function `{name}` is short enough; delete its own limit");
                faults.push(Fault::new(&file.path, first, message));
            }
        }
    }
    faults
}

fn functions_of_rust(text: &str) -> syn::Result<Vec<Function>> {
    let mut found = RustFunctions(Vec::new());
    found.visit_file(&syn::parse_file(text)?);
    Ok(found.0)
}

struct RustFunctions(Vec<Function>);

impl RustFunctions {
    fn add(&mut self, name: &syn::Ident, start: Span, block: &syn::Block) {
        let first = start.start().line;
        self.0.push(Function {
            name: name.to_string(),
            first,
            lines: block.span().end().line + 1 - first,
        });
    }
}

impl<'ast> Visit<'ast> for RustFunctions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig.ident, item.sig.span(), &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig.ident, item.sig.span(), &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig.ident, item.sig.span(), block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// PostgreSQL's layout: the braces of a function stand alone at the beginnings of lines, below a signature that ends with `)`.
fn functions_of_c(lines: &[&str]) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut at = 1;
    while at < lines.len() {
        if lines[at] == "{" && lines[at - 1].trim_end().ends_with(')') {
            let end = (at..lines.len())
                .find(|&line| lines[line] == "}")
                .unwrap_or(lines.len());
            let ends_another = |line: &str| {
                line.trim().is_empty()
                    || line.starts_with('#')
                    || line.ends_with([';', '}'])
                    || line.ends_with("*/")
            };
            let mut first = at - 1;
            while first > 0 && !ends_another(lines[first - 1].trim_end()) {
                first -= 1;
            }
            let signature = lines[first..at].join(" ");
            let before = signature.split('(').next().unwrap_or_default();
            functions.push(Function {
                name: word_at_the_end(before.trim_end()).to_owned(),
                first: first + 1,
                lines: end + 1 - first,
            });
            at = end;
        }
        at += 1;
    }
    functions
}

/// A function ends before the next line that is indented no deeper. Lines within strings of several lines do not count.
fn functions_of_python(lines: &[&str]) -> Vec<Function> {
    let is_in_string = lines_in_strings(lines);
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let Some(signature) = text
            .strip_prefix("def ")
            .or_else(|| text.strip_prefix("async def "))
        else {
            continue;
        };
        if is_in_string[at] {
            continue;
        }
        let indent = line.len() - text.len();
        let mut last = at;
        for (next, line) in lines.iter().enumerate().skip(at + 1) {
            let text = line.trim_start();
            if is_in_string[next] {
                last = next;
            } else if text.is_empty() || text.starts_with('#') {
                // It belongs to what follows.
            } else if line.len() - text.len() > indent || text.starts_with(')') {
                last = next;
            } else {
                break;
            }
        }
        functions.push(Function {
            name: word_at_the_beginning(signature).to_owned(),
            first: at + 1,
            lines: last + 1 - at,
        });
    }
    functions
}

/// Whether each line of Python begins within a string in triple quotes.
fn lines_in_strings(lines: &[&str]) -> Vec<bool> {
    let mut quotes: Option<&str> = None;
    let mut is_in_string = Vec::with_capacity(lines.len());
    for line in lines {
        is_in_string.push(quotes.is_some());
        let mut rest = *line;
        while !rest.is_empty() {
            if let Some(end) = quotes {
                let Some(at) = rest.find(end) else { break };
                rest = &rest[at + end.len()..];
                quotes = None;
            } else if rest.starts_with('#') {
                break;
            } else if let Some(begin) = ["\"\"\"", "'''"]
                .into_iter()
                .find(|quotes| rest.starts_with(quotes))
            {
                quotes = Some(begin);
                rest = &rest[begin.len()..];
            } else if rest.starts_with(['"', '\'']) {
                rest = after_string(rest);
            } else {
                rest = rest
                    .get(1..)
                    .unwrap_or_else(|| rest.trim_start_matches(|letter: char| !letter.is_ascii()));
            }
        }
    }
    is_in_string
}

/// What follows a string that begins here and ends in this line.
fn after_string(text: &str) -> &str {
    let quote = text.as_bytes()[0];
    let mut at = 1;
    while at < text.len() && text.as_bytes()[at] != quote {
        at += if text.as_bytes()[at] == b'\\' { 2 } else { 1 };
    }
    text.get(at + 1..).unwrap_or_default()
}

/// Prettier's layout: a function ends with the first line that closes a bracket at its own indentation, and opens none.
fn functions_of_javascript(lines: &[&str]) -> Vec<Function> {
    let opens = |line: &str| line.trim_end().ends_with(['{', '(', '[']);
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let Some(name) = name_of_javascript(text).filter(|_| opens(text)) else {
            continue;
        };
        let indent = &line[..line.len() - text.len()];
        let closes = |line: &&str| {
            let rest = line.strip_prefix(indent);
            rest.is_some_and(|rest| rest.starts_with(['}', ')', ']'])) && !opens(line)
        };
        let body = lines[at + 1..].iter().position(closes);
        functions.push(Function {
            name: name.to_owned(),
            first: at + 1,
            lines: body.map_or(lines.len() - at, |body| body + 2),
        });
    }
    functions
}

/// The name of the function that begins with this line; the first word where it has none.
fn name_of_javascript(line: &str) -> Option<&str> {
    const STATEMENTS: [&str; 7] = ["if", "for", "while", "switch", "catch", "else", "return"];
    if line.starts_with("//") || line.starts_with('*') {
        return None;
    }
    let words = line.trim_start_matches("export ").trim_start_matches("default ");
    let words = words.trim_start_matches("async ").trim_start_matches("static ");
    let first = word_at_the_beginning(words);
    if let Some((_, named)) = line.split_once("function") {
        let name = word_at_the_beginning(named.trim_start_matches(['*', ' ']));
        return Some(if name.is_empty() { first } else { name });
    }
    if line.contains("=> {") || line.ends_with("=> (") {
        let constant = words
            .strip_prefix("const ")
            .or_else(|| words.strip_prefix("let "));
        return Some(constant.map_or(first, word_at_the_beginning));
    }
    let is_method =
        line.ends_with('{') && words[first.len()..].starts_with('(') && !STATEMENTS.contains(&first);
    is_method.then_some(first)
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || ['_', '$', '#'].contains(&letter)
}

fn word_at_the_beginning(text: &str) -> &str {
    text.split(|letter| !is_of_word(letter))
        .next()
        .unwrap_or_default()
}

fn word_at_the_end(text: &str) -> &str {
    text.rsplit(|letter| !is_of_word(letter))
        .next()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let faults = long_functions(&[SourceFile::new(path, text)]);
        faults.iter().map(Fault::to_string).collect()
    }

    fn of(name: &str, first: usize, lines: usize) -> Function {
        Function {
            name: name.to_owned(),
            first,
            lines,
        }
    }

    #[test]
    fn a_method_of_91_lines_is_long() {
        let method = |lines: usize| format!("impl A {{\n/// doc\nfn a() {{{}}}\n}}", "\n".repeat(lines - 1));
        assert_eq!(found("a.rs", &method(90)), [""; 0]);
        assert_eq!(
            found("a.rs", &method(91)),
            ["a.rs:3: function `a` has 91 lines, at most 90; split it"]
        );
    }

    #[test]
    fn functions_of_c_begin_with_their_types() {
        let text = "typedef struct A\n{\n\tint a;\n} A;\n\n/* One. */\nstatic int\none(int a,\n\tint b)\n{\n\
            \tif (a)\n\t{\n\t}\n}\n\nvoid\ntwo(void)\n{\n}\n";
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(functions_of_c(&lines), [of("one", 7, 8), of("two", 16, 4)]);
        let long = format!("int\na(void)\n{{\n{}}}\n", "\ta();\n".repeat(87));
        assert_eq!(
            found("a.c", &long),
            ["a.c:1: function `a` has 91 lines, at most 90; split it"]
        );
    }

    #[test]
    fn functions_of_python_hold_strings_and_other_functions() {
        let text = "def one(\n    a,\n) -> None:\n    '''\ndef none(): pass\n'''\n    def inner():\n\
            \x20       return \"#'''\"\n    # The end.\n    inner()\n\n\n# Two.\nasync def two(): pass\n\
            x = 1\n";
        let lines: Vec<&str> = text.lines().collect();
        let (one, inner, two) = (of("one", 1, 10), of("inner", 7, 2), of("two", 14, 1));
        assert_eq!(functions_of_python(&lines), [one, inner, two]);
        let long = format!("def a():\n{}", "    a()\n".repeat(90));
        assert_eq!(
            found("a.py", &long),
            ["a.py:1: function `a` has 91 lines, at most 90; split it"]
        );
    }

    #[test]
    fn functions_of_javascript_end_at_their_own_indentation() {
        let text = "export function One({\n  a,\n}: Props) {\n  const two = () => {\n    if (a) {\n    }\n\
            \x20 };\n  return (\n    <p>\n    </p>\n  );\n}\nclass A {\n\
            \x20 async three(a: number): void {\n  }\n}\nconst four = (a) => a;\n";
        let lines: Vec<&str> = text.lines().collect();
        let (one, two, three) = (of("One", 1, 12), of("two", 4, 4), of("three", 14, 2));
        assert_eq!(functions_of_javascript(&lines), [one, two, three]);
        let long = format!("const a = () => {{\n{}}};\n", "  a();\n".repeat(89));
        assert_eq!(
            found("a.tsx", &long),
            ["a.tsx:1: function `a` has 91 lines, at most 90; split it"]
        );
    }

    #[test]
    fn a_limit_of_its_own_goes_when_a_function_is_short_enough() {
        let (path, name, lines_max) = LONG_FUNCTIONS[2];
        let lines = |lines: usize| format!("function {name}() {{\n{}}}\n", "\n".repeat(lines - 2));
        assert_eq!(found(path, &lines(lines_max)), [""; 0]);
        assert_eq!(found(path, &lines(lines_max + 1)).len(), 1);
        assert_eq!(found(path, &lines(FUNCTION_LINES_MAX)).len(), 1);
    }
}
