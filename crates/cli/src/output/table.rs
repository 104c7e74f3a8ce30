//! Aligned text.

/// A column's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// The left, for words.
    Left,
    /// The right, for numbers.
    Right,
}

/// Rows of cells under a header.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a header and no rows.
    pub fn new(header: &[(&str, Align)]) -> Table {
        Table {
            columns: header.iter().map(|(_, align)| *align).collect(),
            rows: vec![header.iter().map(|(name, _)| (*name).to_owned()).collect()],
        }
    }

    /// Adds a row. Line breaks and other control characters in it become spaces.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let plain = |cell: String| {
            cell.chars()
                .map(|letter| if letter.is_control() { ' ' } else { letter })
                .collect()
        };
        self.rows.push(cells.into_iter().map(plain).collect());
    }

    /// Reports whether the table has only its header.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The lines, without white space at their ends.
    pub fn text(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                self.rows
                    .iter()
                    .map(|row| row[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let lines = self.rows.iter().map(|row| {
            let cells =
                row.iter()
                    .zip(&self.columns)
                    .zip(&widths)
                    .map(|((cell, align), &width)| match align {
                        Align::Left => format!("{cell:<width$}"),
                        Align::Right => format!("{cell:>width$}"),
                    });
            cells.collect::<Vec<String>>().join("  ").trim_end().to_owned()
        });
        lines.collect::<Vec<String>>().join("\n")
    }
}

/// The text, shortened to this many characters.
pub fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[
            ("kind", Align::Left),
            ("jobs", Align::Right),
            ("why", Align::Left),
        ]);
        table.row(["thumbnail".to_owned(), "7".to_owned(), "a\nb".to_owned()]);
        table.row(["ä".to_owned(), "12345".to_owned(), String::new()]);
        assert_eq!(
            table.text(),
            "kind        jobs  why\nthumbnail      7  a b\nä          12345"
        );
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}
