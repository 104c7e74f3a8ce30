/*
 * qual.c
 *	  The clauses of a scan, in the planner's order, but for those of text.
 *
 * Vector clauses neither fail nor have side effects.  A clause without a
 * vector form runs by row, on the survivors of those before it.
 *
 * The planner takes a comparison of texts to cost as much as one of integers.
 * A comparison of numbers or dates that follows one of texts goes before it,
 * where both are of columns and constants: neither can raise an error.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "optimizer/clauses.h"
#include "utils/timestamp.h"

#include "expr.h"
#include "numeric_vector.h"
#include "server.h"

/* Is a date compared as a timestamp?  Not an explicit cast, which may fail. */
static bool
is_date_as_timestamp(const VectorExpr *expression)
{
	return expression->function == kernel_convert &&
		expression->operation == OPERATION_DATE_TO_TIMESTAMP &&
		expression->is_for_comparison;
}

static bool
is_column_or_constant(const VectorExpr *expression)
{
	if (is_date_as_timestamp(expression))
		expression = expression->left;
	return expression->column != NULL ||
		(expression->is_constant && expression->constant_state == NULL);
}

static bool
is_number_comparison(const VectorExpr *clause)
{
	return clause != NULL && clause->function == kernel_compare &&
		is_column_or_constant(clause->left) && is_column_or_constant(clause->right);
}

static bool
is_text_comparison(const VectorExpr *clause)
{
	if (clause == NULL || clause->left == NULL || clause->left->kind != VALUE_TEXT ||
		!is_column_or_constant(clause->left))
		return false;
	return clause->function == kernel_in_list ||
		((clause->function == kernel_compare_text || clause->function == kernel_like) &&
		 is_column_or_constant(clause->right));
}

/* Have comparisons of numbers go before those of texts that they follow. */
static void
order_clauses(BatchQual *qual)
{
	for (int i = 1; i < qual->clause_count; i++)
		for (int to = i; to > 0 && is_number_comparison(qual->vectors[to]) &&
			 is_text_comparison(qual->vectors[to - 1]); to--)
		{
			VectorExpr *vector = qual->vectors[to];
			RowExpression row = qual->rows[to];

			qual->vectors[to] = qual->vectors[to - 1];
			qual->rows[to] = qual->rows[to - 1];
			qual->vectors[to - 1] = vector;
			qual->rows[to - 1] = row;
		}
}

/* Have the clauses from the first one by row on be evaluated together, where there are several.  A subquery is begun once. */
static void
begin_rest(BatchQual *qual)
{
	List	   *sources = NIL;

	for (int i = qual->vector_count; i < qual->clause_count; i++)
		sources = lappend(sources, qual->rows[i].source);
	qual->has_rest = list_length(sources) > 1 && !contain_subplans((Node *) sources);
	qual->rest = (RowExpression) {.context = qual->context,.source = (Expr *) sources};
}

/* Compile a list of clauses, all of which must be true. */
BatchQual *
qual_compile(VectorContext *context, List *clauses)
{
	BatchQual  *qual = palloc0(sizeof(BatchQual));
	ListCell   *cell;

	qual->context = context;
	qual->clause_count = list_length(clauses);
	qual->vectors = palloc0(sizeof(VectorExpr *) * (qual->clause_count + 1));
	qual->rows = palloc0(sizeof(RowExpression) * (qual->clause_count + 1));
	foreach(cell, clauses)
	{
		int			i = foreach_current_index(cell);

		qual->vectors[i] = vector_compile(context, lfirst(cell));
		row_expression_begin(&qual->rows[i], context, lfirst(cell),
							 qual->vectors[i] != NULL);
		if (qual->vectors[i] != NULL && qual->vector_count == i)
			qual->vector_count++;
	}
	order_clauses(qual);
	begin_rest(qual);
	return qual;
}

/* Keep the rows of the selection where the vector is true and not NULL. */
static void
keep_true(TupleBatch *batch, const Vector *truth)
{
	Selection  *selection = &batch->selection;
	uint16	   *rows = batch->selected_rows;
	int			count = 0;

	if (truth->has_nulls)
		FOR_SELECTED(row, selection,
					 rows[count] = row;
					 count += (truth->values[row] != 0) & !truth->nulls[row]);
	else
		FOR_SELECTED(row, selection,
					 rows[count] = row;
					 count += (truth->values[row] != 0));
	if (count < selection->count)
	{
		selection->count = count;
		selection->rows = rows;
	}
}

/*
 * The date that orders dates as a timestamp does: later dates are later
 * timestamps, so none of them has to be converted.
 */
static bool
date_for_timestamp(VectorOperation operation, int64 timestamp, int64 *date)
{
	int64		part_of_day = timestamp % USECS_PER_DAY;
	int64		day = timestamp / USECS_PER_DAY - (part_of_day < 0);

	if (TIMESTAMP_NOT_FINITE(timestamp))
		return false;
	switch (operation)
	{
		case OPERATION_LE:
		case OPERATION_GT:
			*date = day;
			return true;
		case OPERATION_LT:
		case OPERATION_GE:
			*date = day + (part_of_day != 0);
			return true;
		default:
			return false;
	}
}

/* A column or computed integer or numeric against a constant, as it is tested. */
typedef struct IntegerTest
{
	VectorExpr *operand;
	VectorOperation operation;
	int64		constant;		/* numeric: at the scale of the operand's vector */
} IntegerTest;

/* The test that a clause is, without a constant at its scale; false if none. */
static bool
integer_test_begin(const VectorExpr *clause, IntegerTest *test)
{
	if (clause == NULL || clause->function != kernel_compare ||
		clause->left->kind == VALUE_FLOAT || !clause->right->is_constant)
		return false;
	test->operand = clause->left;
	test->operation = clause->operation;
	return true;
}

/* Read the constant, and evaluate the operand for the selection. */
static const Vector *
integer_test_evaluate(const VectorExpr *clause, VectorContext *context,
					  TupleBatch *batch, IntegerTest *test)
{
	const Vector *constant = vector_evaluate(clause->right, context,
											 &batch->selection);
	const Vector *left;

	if (clause->right->is_null_constant)
		return NULL;
	if (test->operand->kind == VALUE_NUMERIC)
	{
		left = vector_evaluate(test->operand, context, &batch->selection);
		return left != NULL && numeric_bound(clause->right, left->scale, &test->operation,
											 &test->constant) ? left : NULL;
	}
	if (constant == NULL)
		return NULL;
	test->constant = DatumGetInt64(constant->values[0]);
	if (is_date_as_timestamp(test->operand) &&
		date_for_timestamp(test->operation, test->constant, &test->constant))
		test->operand = test->operand->left;
	return vector_evaluate(test->operand, context, &batch->selection);
}

/* Narrow a range to the integers that pass a test; false where it can't be. */
static bool
narrow_range(IntegerRange *range, const IntegerTest *test)
{
	int64		constant = test->constant;

	if (range->wraps)
		return false;
	switch (test->operation)
	{
		case OPERATION_EQ:
			range->lowest = Max(range->lowest, constant);
			range->highest = Min(range->highest, constant);
			return true;
		case OPERATION_LT:
			if (constant == PG_INT64_MIN)
				return false;
			constant--;
			pg_fallthrough;
		case OPERATION_LE:
			range->highest = Min(range->highest, constant);
			return true;
		case OPERATION_GT:
			if (constant == PG_INT64_MAX)
				return false;
			constant++;
			pg_fallthrough;
		case OPERATION_GE:
			range->lowest = Max(range->lowest, constant);
			return true;
		default:				/* OPERATION_NE: alone, from behind the constant */
			if (range->lowest != PG_INT64_MIN || range->highest != PG_INT64_MAX)
				return false;
			range->lowest = (int64) ((uint64) constant + 1);
			range->highest = (int64) ((uint64) constant - 1);
			range->wraps = true;
			return true;
	}
}

/*
 * The common case: clauses that compare an integer or numeric with constants.
 * Those in a row that compare the same one are applied together, as a range.
 * Returns how many were applied.
 */
static int
apply_range(BatchQual *qual, TupleBatch *batch, int from)
{
	IntegerRange range = {PG_INT64_MIN, PG_INT64_MAX, false};
	const Vector *vector = NULL;
	int			to = from;

	for (; to < qual->clause_count; to++)
	{
		const VectorExpr *clause = qual->vectors[to];
		IntegerTest test;
		const Vector *left;

		if (!integer_test_begin(clause, &test))
			break;
		/* A later clause must evaluate nothing that was not evaluated before. */
		if (to > from && (test.operand != qual->vectors[from]->left ||
						  clause->right->constant_state != NULL))
			break;
		left = integer_test_evaluate(clause, qual->context, batch, &test);
		if (left == NULL || (vector != NULL && left != vector) ||
			!narrow_range(&range, &test))
			break;
		vector = left;
	}
	if (vector != NULL)
		select_range(vector, range, &batch->selection, batch->selected_rows);
	return to - from;
}

/*
 * Apply a vector clause, or several in a row.  Returns how many; 0 if the batch
 * must take the clause by row.
 */
static int
apply_vector_clauses(BatchQual *qual, TupleBatch *batch, int from)
{
	const Vector *truth;
	int			applied = apply_range(qual, batch, from);

	if (applied > 0)
		return applied;
	truth = vector_evaluate(qual->vectors[from], qual->context, &batch->selection);
	if (truth == NULL)
		return 0;
	keep_true(batch, truth);
	return 1;
}

/*
 * Apply the leading vector clauses to a batch.  Returns the number of the
 * first clause that is still to be applied, by row.
 */
int
qual_apply_vectors(BatchQual *qual, TupleBatch *batch)
{
	int			next = 0;

	while (next < qual->vector_count)
	{
		int			applied;

		if (batch->selection.count == 0)
			return qual->clause_count;
		applied = apply_vector_clauses(qual, batch, next);
		if (applied == 0)
			break;
		next += applied;
	}
	return next;
}

static bool
is_true_of_row(RowExpression *expression)
{
	bool		is_null;
	const Datum truth = row_expression_evaluate(expression, &is_null);

	return !is_null && DatumGetBool(truth);
}

/* Are these clauses true of the row that is the scan tuple? */
static bool
row_clauses_hold(BatchQual *qual, int from, int end)
{
	if (qual->has_rest && from == qual->vector_count && end == qual->clause_count)
		return is_true_of_row(&qual->rest);
	for (int i = from; i < end; i++)
		if (!is_true_of_row(&qual->rows[i]))
			return false;
	return true;
}

/* Does a row pass the clauses from the given one on? */
bool
qual_row_passes(BatchQual *qual, TupleBatch *batch, int from, int row)
{
	ExprContext *econtext = qual->context->econtext;

	if (from >= qual->clause_count)
		return true;
	econtext->ecxt_scantuple = batch->ops->materialise_row(batch, row);
	return row_clauses_hold(qual, from, qual->clause_count);
}

/*
 * Apply a clause by row to the whole selection, along with those behind it that have no vector: a row
 * is made, and deformed, once for all of them.  Returns how many.
 */
static int
apply_row_clauses(BatchQual *qual, TupleBatch *batch, int from)
{
	ExprContext *econtext = qual->context->econtext;
	Selection	selection = batch->selection;
	uint16	   *rows = batch->selected_rows;
	int			count = 0;
	int			end = from + 1;

	while (end < qual->clause_count && qual->vectors[end] == NULL)
		end++;
	FOR_SELECTED(row, &selection,
				 ResetExprContext(econtext);
				 econtext->ecxt_scantuple = batch->ops->materialise_row(batch, row);
				 rows[count] = row;
				 count += row_clauses_hold(qual, from, end));
	batch->selection.count = count;
	batch->selection.rows = rows;
	return end - from;
}

/* Apply all clauses to the whole batch, for a consumer that takes every row. */
void
qual_apply(BatchQual *qual, TupleBatch *batch)
{
	int			next = 0;

	while (next < qual->clause_count && batch->selection.count > 0)
	{
		int			applied = 0;

		if (qual->vectors[next] != NULL)
			applied = apply_vector_clauses(qual, batch, next);
		if (applied == 0)
			applied = apply_row_clauses(qual, batch, next);
		next += applied;
	}
}

/* How many clauses may raise an error? */
int
qual_count_raising(const BatchQual *qual)
{
	int			count = 0;

	for (int i = 0; i < qual->clause_count; i++)
		count += vector_may_raise(qual->vectors[i]);
	return count;
}
