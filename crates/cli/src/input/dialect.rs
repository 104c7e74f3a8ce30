//! The separators and quotes of the fields of rows.

use clap::Args;

use super::error::InputError;
use super::format::Format;

/// The meaning of a quote at the beginning of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// The quote is text.
    None,
    /// This byte encloses fields with delimiters, line breaks or this byte, which is then doubled.
    Byte(u8),
}

/// The given settings of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct DialectArguments {
    /// The character between fields of csv or tsv [default: a comma; a semicolon where the first row has semicolons and no
    /// comma; a tab for tsv]
    #[arg(long, value_name = "CHARACTER", value_parser = parse_delimiter)]
    pub delimiter: Option<u8>,
    /// The character around fields of csv or tsv that contain delimiters or line breaks; none if quotes are plain text
    /// [default: " for csv, none for tsv]
    #[arg(long, value_name = "CHARACTER|none", value_parser = parse_quote)]
    pub quote: Option<Quote>,
}

/// The settings of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    /// The delimiter. `None` means a comma or a semicolon, by the first row.
    pub delimiter: Option<u8>,
    pub quote: Quote,
}

impl DialectArguments {
    /// Refuses options that the format does not have.
    pub(super) fn check(self, format: Format) -> Result<(), InputError> {
        if let (Some(delimiter), Some(Quote::Byte(quote))) = (self.delimiter, self.quote)
            && delimiter == quote
        {
            return Err(InputError::Dialect(
                "--delimiter and --quote are the same character".to_owned(),
            ));
        }
        let option = match self {
            DialectArguments {
                delimiter: Some(_), ..
            } => "--delimiter",
            DialectArguments { quote: Some(_), .. } => "--quote",
            _ => return Ok(()),
        };
        match format {
            Format::Csv | Format::Tsv => Ok(()),
            other => Err(InputError::Dialect(format!(
                "{option} is for csv and tsv, and the format is {}: give --format csv",
                other.name()
            ))),
        }
    }

    /// The settings of the format's rows, with these options.
    pub(super) fn of(self, format: Format) -> Dialect {
        match format {
            Format::Tsv => Dialect {
                delimiter: Some(self.delimiter.unwrap_or(b'\t')),
                quote: self.quote.unwrap_or(Quote::None),
            },
            _ => Dialect {
                delimiter: self.delimiter,
                quote: self.quote.unwrap_or(Quote::Byte(b'"')),
            },
        }
    }

    /// The format's name, with these options as the user writes them.
    pub(super) fn describe(self, format: Format) -> String {
        let mut text = format.name().to_owned();
        if let Some(delimiter) = self.delimiter {
            text.push_str(&format!(" with the delimiter {:?}", char::from(delimiter)));
        }
        match self.quote {
            Some(Quote::Byte(quote)) => text.push_str(&format!(" with the quote {:?}", char::from(quote))),
            Some(Quote::None) => text.push_str(" without quotes"),
            None => {}
        }
        text
    }
}

impl Dialect {
    /// The delimiter. The first row decides if none is given.
    pub fn delimiter_of(self, first_row: &[u8]) -> u8 {
        self.delimiter.unwrap_or_else(|| {
            let mut in_quotes = false;
            let mut has = |byte: u8| {
                in_quotes = false;
                first_row.iter().any(|own| {
                    in_quotes ^= Quote::Byte(*own) == self.quote;
                    *own == byte && !in_quotes
                })
            };
            if has(b';') && !has(b',') { b';' } else { b',' }
        })
    }
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(b'\t'),
        (_, [byte]) if byte.is_ascii() && !matches!(byte, b'\r' | b'\n' | b'"') => Ok(*byte),
        _ => Err(format!(
            "`{text}` is not one ASCII character: give one such as ; or |, or tab"
        )),
    }
}

fn parse_quote(text: &str) -> Result<Quote, String> {
    match (text, text.as_bytes()) {
        ("none", _) => Ok(Quote::None),
        (_, [byte]) if byte.is_ascii_punctuation() => Ok(Quote::Byte(*byte)),
        _ => Err(format!(
            "`{text}` is not a punctuation character: give one such as \" or ', or none"
        )),
    }
}

/// An error in the quotes of a row. It counts lines from the first byte of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misquoted {
    /// A quote opens in a line, and no other closes it.
    Open { line: u64 },
    /// Text follows a closing quote.
    TextBehind { opened: u64, closed: u64 },
}

impl Misquoted {
    /// The first error in a row.
    pub fn find(row: &[u8], quote: Quote, delimiter: u8) -> Option<Misquoted> {
        let Quote::Byte(quote) = quote else {
            return None;
        };
        memchr::memchr(quote, row)?;
        let line_at = |at: usize| memchr::memchr_iter(b'\n', &row[..at]).count() as u64;
        let mut at = row.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
        loop {
            if row.get(at) == Some(&quote) {
                let opened = at;
                at += 1;
                // A doubled quote is one quote in the text.
                loop {
                    let Some(closing) = memchr::memchr(quote, &row[at..]) else {
                        return Some(Misquoted::Open {
                            line: line_at(opened),
                        });
                    };
                    at += closing + 1;
                    if row.get(at) != Some(&quote) {
                        break;
                    }
                    at += 1;
                }
                let is_end = |byte: &u8| *byte == delimiter || matches!(byte, b'\r' | b'\n');
                if row.get(at).is_some_and(|byte| !is_end(byte)) {
                    return Some(Misquoted::TextBehind {
                        opened: line_at(opened),
                        closed: line_at(at),
                    });
                }
            }
            let next = memchr::memchr(delimiter, row.get(at..)?)?;
            at += next + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_closed_and_followed_by_a_delimiter() {
        let find = |row: &str| Misquoted::find(row.as_bytes(), Quote::Byte(b'"'), b',');
        for row in [
            "a,b\n",
            "\"a\"\n",
            "1,\"a\"\"b,\nc\",2\r\n",
            "6\" pipe,a \"b\"\n",
            "\"\",\"\"",
            ",\"a\"",
            "",
        ] {
            assert_eq!(find(row), None, "{row:?}");
        }
        for (row, line) in [
            ("3,\"open\n4,x\n", 0),
            ("\n\"a\nb\",\"c\n\n", 2),
            ("\"a\"\"\n", 0),
            ("\"", 0),
        ] {
            assert_eq!(find(row), Some(Misquoted::Open { line }), "{row:?}");
        }
        for (row, opened, closed) in [
            ("\"Heroes\" live,1\n", 0, 0),
            ("a,\"b\nc\n5,\"fine\"\n", 0, 2),
            ("\"a\" ,1\n", 0, 0),
        ] {
            assert_eq!(
                find(row),
                Some(Misquoted::TextBehind { opened, closed }),
                "{row:?}"
            );
        }
        assert_eq!(Misquoted::find(b"\"a", Quote::None, b','), None);
    }

    #[test]
    fn a_semicolon_is_the_delimiter_if_there_is_no_comma() {
        let csv = DialectArguments::default().of(Format::Csv);
        for (row, delimiter) in [
            ("a;b\n", b';'),
            ("a,b;c\n", b','),
            ("a\n", b','),
            ("\"a,b\";c\n", b';'),
            ("\"a;b\"\n", b','),
        ] {
            assert_eq!(csv.delimiter_of(row.as_bytes()), delimiter, "{row}");
        }
        let told = DialectArguments {
            delimiter: Some(b','),
            quote: None,
        };
        assert_eq!(told.of(Format::Csv).delimiter_of(b"a;b\n"), b',');
    }

    #[test]
    fn characters_are_read_or_refused() {
        assert_eq!(
            (parse_delimiter("|"), parse_delimiter("\\t")),
            (Ok(b'|'), Ok(b'\t'))
        );
        assert_eq!(
            (parse_quote("'"), parse_quote("none")),
            (Ok(Quote::Byte(b'\'')), Ok(Quote::None))
        );
        for wrong in ["", "||", "\n", "é"] {
            assert!(
                parse_delimiter(wrong).unwrap_err().contains("or tab"),
                "{wrong:?}"
            );
            assert!(parse_quote(wrong).unwrap_err().contains("or none"), "{wrong:?}");
        }
    }
}
