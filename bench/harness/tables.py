"""Tables, on the terminal and as Markdown."""


def aligned(headers, rows):
    """Aligned columns for a terminal."""
    lines = [headers, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def grid(headers, rows, align):
    """A table of Markdown, as lines. `align` has a letter for each column: `l` or `r`."""
    rule = {"l": "---", "r": "---:"}
    lines = [headers, [rule[letter] for letter in align], *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines] + [""]
