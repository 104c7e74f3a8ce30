"""python3 -m unittest in this folder: the picture shows what RESULTS.md holds, and says what it misses."""

import contextlib
import io
import re
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

import picture
from picture import CLICKBENCH, SUITES, TPCH, MissingPrerequisite

RESULTS = picture.RESULTS.read_text()
SVG = "{http://www.w3.org/2000/svg}"


def without_section(suite: picture.Suite) -> str:
    return re.sub(rf"^## {suite.section}\n.*?(?=^## |\Z)", "", RESULTS, flags=re.DOTALL | re.MULTILINE)


class Picture(unittest.TestCase):
    def test_it_is_that_of_the_results(self):
        drawn = picture.RESULTS.with_name(picture.PICTURE_NAME).read_text()
        self.assertTrue(drawn == picture.draw(RESULTS), "bench/picture.svg is not the picture of bench/RESULTS.md; "
                        "`make -C extension picture` writes it")

    def test_a_bar_for_each_figure(self):
        root = ElementTree.fromstring(picture.draw(RESULTS))
        bars = [bar for bar in root.iter(f"{SVG}rect") if bar.get("class") != "ground"]
        sections = [section for section in RESULTS.split("\n## ") if section.split("\n")[0] in (TPCH.section, CLICKBENCH.section)]
        figures = re.findall(r"^\| (?:TPC-H Q|ClickBench )\d+, ", "\n".join(sections), flags=re.MULTILINE)
        self.assertEqual(len(bars), len(figures))

    def test_figures_are_those_of_the_rows(self):
        serial = picture.read_panel(RESULTS, TPCH).ratios["serial"]
        row = re.search(r"^\| TPC-H Q18, SF \S+ +\| serial .*\| ([\d.]+)x +\| [\d.]+x +\| \w+ +\|$", RESULTS, flags=re.MULTILINE)
        self.assertEqual(serial[18], float(row[1]))
        self.assertEqual(len(serial), 22)

    def test_a_slower_query_hangs_below_the_line(self):
        slower = re.sub(r"^(\| ClickBench 0, .*\| )[\d.]+x( +\| [\d.]+x +\| \w+ +\|)$", r"\g<1>0.50x\2", RESULTS, flags=re.MULTILINE)
        root = ElementTree.fromstring(picture.draw(slower))
        foot = [float(line.get("y1")) for line in root.iter(f"{SVG}line") if line.get("class") == "same"][-1]
        self.assertIn(foot, [float(bar.get("y")) for bar in root.iter(f"{SVG}rect")])

    def test_a_missing_section_is_named_with_its_remedy(self):
        for suite in SUITES:
            with self.assertRaises(MissingPrerequisite) as raised:
                picture.draw(without_section(suite))
            self.assertIn(f"no section “{suite.section}”", str(raised.exception))
            self.assertIn(f"`{suite.remedy}`", str(raised.exception))

    def test_a_section_without_its_mean_is_named(self):
        with self.assertRaises(MissingPrerequisite) as raised:
            picture.draw(re.sub(r"^\| ClickBench, geometric mean.*\n", "", RESULTS, flags=re.MULTILINE))
        self.assertIn(f"in its section “{CLICKBENCH.section}”", str(raised.exception))

    def test_new_results_bring_their_picture_or_say_why_not(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
            results, drawn = Path(folder) / "RESULTS.md", Path(folder) / picture.PICTURE_NAME
            results.write_text(without_section(CLICKBENCH))
            picture.follow(results)
            self.assertIn(CLICKBENCH.remedy, printed.getvalue())
            self.assertFalse(drawn.exists())
            results.write_text(RESULTS)
            picture.follow(results)
            self.assertEqual(drawn.read_text(), picture.draw(RESULTS))


if __name__ == "__main__":
    unittest.main()
