"""python3 -m unittest in this folder: the comparer itself must tell a plan from an answer."""

import unittest

from output_comparison import Kind, differences, parse

ANSWER = """select a from t;
 a 
---
 {0}
 {1}
(2 rows)

"""
PLAN = """explain (costs off) select a from t;
  QUERY PLAN   
---------------
 {}
(1 row)

"""
FUNCTION_PLAN = """select explain_filter('explain
  select a from t');
  explain_filter   
-------------------
 {}
(1 row)

"""


class OutputComparison(unittest.TestCase):
    def kinds(self, stock: str, batched: str) -> list:
        return [difference.kind for difference in differences(stock, batched)]

    def test_equal_outputs_have_no_difference(self):
        text = ANSWER.format(1, 2) + PLAN.format("Seq Scan on t")
        self.assertEqual(self.kinds(text, text), [])

    def test_a_plan_may_differ(self):
        for display in (PLAN, FUNCTION_PLAN):
            stock = ANSWER.format(1, 2) + display.format("Seq Scan on t")
            batched = ANSWER.format(1, 2) + display.format("Custom Scan (BatchScan) on t")
            self.assertEqual(self.kinds(stock, batched), [Kind.PLAN])
            self.assertEqual(parse(batched).batched_plans, 1)

    def test_a_plan_that_gexec_ran_may_differ(self):
        stock = "explain (costs off) select a from t\n Seq Scan on t\n\n" + ANSWER.format(1, 2)
        batched = stock.replace(" Seq Scan on t", " Custom Scan (BatchScan) on t\n   Filter: (a > 0)")
        self.assertEqual(self.kinds(stock, batched), [Kind.PLAN])
        self.assertEqual(self.kinds(stock, batched.replace(" 2\n", " 3\n")), [Kind.PLAN, Kind.OTHER])

    def test_an_answer_may_not_differ(self):
        plan = PLAN.format("Seq Scan on t")
        self.assertEqual(self.kinds(plan + ANSWER.format(1, 2), plan + ANSWER.format(1, 3)), [Kind.OTHER])

    def test_an_answer_after_a_plan_is_no_plan(self):
        stock = PLAN.format("Seq Scan on t") + "select a\nfrom t;\n" + " a \n---\n 1\n(1 row)\n"
        self.assertEqual(self.kinds(stock, stock.replace(" 1\n", " 2\n")), [Kind.OTHER])

    def test_row_order_is_told_apart(self):
        self.assertEqual(self.kinds(ANSWER.format(1, 2), ANSWER.format(2, 1)), [Kind.ROW_ORDER])

    def test_an_error_in_one_run_is_a_difference(self):
        self.assertEqual(self.kinds(PLAN.format("Seq Scan on t"),
                                    "explain (costs off) select a from t;\nERROR:  no plan\n"),
                         [Kind.OTHER, Kind.OTHER])


if __name__ == "__main__":
    unittest.main()
