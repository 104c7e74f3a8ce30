#!/usr/bin/env bash
# Guess: packages that read the text of a PDF file agree on Latin letters of an embedded font with a table to Unicode; at worst a letter
# that no font has is missing.
# Truth: WeasyPrint 70 writes one letter that no font has, and gives its font an encoding table of the file's own for it. From then on
# pdfminer.six leaves out all words of that font without a warning, and pypdf puts a NUL before each of their letters. PDFium reads
# them, as Poppler does.
# Version and date: as pinned below, 2026-11; WeasyPrint needs Pango (package libpango-1.0-0 and libpangoft2-1.0-0).
# Gristmill: reads PDF files by Poppler's pdftotext, and names a file without text (docs/memory.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
  weasyprint==70.0 reportlab==4.5.0 pypdf==7.1.1 pdfminer.six==20260107 pypdfium2==5.15.2
cd "$folder"
cat >read.py <<'PYTHON'
from pathlib import Path

import pypdf, pypdfium2, reportlab
from pdfminer.high_level import extract_text
from weasyprint import HTML

font = Path(reportlab.__file__).parent / "fonts" / "Vera.ttf"
style = f"<style>@font-face {{ font-family: Own; src: url('{font.as_uri()}') }} p {{ font-family: Own }}</style>"


def texts(words):
    HTML(string=f"{style}<p>{words}</p>").write_pdf("page.pdf")
    return {
        "pypdf": pypdf.PdfReader("page.pdf").pages[0].extract_text().strip(" \n"),
        "pdfminer.six": extract_text("page.pdf").strip(),
        "PDFium": pypdfium2.PdfDocument("page.pdf")[0].get_textpage().get_text_range().strip(),
    }


plain, with_one = texts("Bees hum"), texts("Bees hum \U000F1234")
for name in plain:
    print(f"{name}: {plain[name]!r}; with one letter that no font has: {with_one[name]!r}")
assert set(plain.values()) == {"Bees hum"}, plain
assert with_one["pdfminer.six"] == "", with_one
assert with_one["pypdf"].startswith("\0B\0e\0e\0s"), with_one
assert with_one["PDFium"].startswith("Bees hum"), with_one
PYTHON
venv/bin/python read.py
