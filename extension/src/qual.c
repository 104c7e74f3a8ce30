/*
 * qual.c
 *	  The clauses of a scan, in the planner's order.
 *
 * Vector clauses neither fail nor have side effects.  A clause without a
 * vector form runs by row, on the survivors of those before it.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "utils/timestamp.h"

#include "expr.h"
#include "numeric_vector.h"

/* An ExprState whose scan tuple is the slot of a batch. */
ExprState *
row_expression(VectorContext *context, Expr *expression)
{
	PlanState  *planstate = context->planstate;
	const TupleTableSlotOps *ops = planstate->scanops;
	TupleDesc	descriptor = planstate->scandesc;
	bool		is_fixed = planstate->scanopsfixed;
	bool		is_set = planstate->scanopsset;
	ExprState  *state;

	planstate->scanops = &TTSOpsBufferHeapTuple;
	planstate->scandesc = context->batch->descriptor;
	planstate->scanopsfixed = planstate->scanopsset = true;
	state = ExecInitExpr(expression, planstate);
	planstate->scanops = ops;
	planstate->scandesc = descriptor;
	planstate->scanopsfixed = is_fixed;
	planstate->scanopsset = is_set;
	return state;
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
	qual->row_states = palloc0(sizeof(ExprState *) * (qual->clause_count + 1));
	foreach(cell, clauses)
	{
		int			i = foreach_current_index(cell);

		qual->vectors[i] = vector_compile(context, lfirst(cell));
		qual->row_states[i] = row_expression(context, lfirst(cell));
		if (qual->vectors[i] != NULL && qual->vector_count == i)
			qual->vector_count++;
	}
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

/* A constant at the scale of a vector that has no fewer digits. */
static bool
constant_at_scale(const Vector *constant, int scale, int64 *result)
{
	int			power = scale - constant->scale;

	*result = DatumGetInt64(constant->values[0]);
	return power >= 0 && power <= POWER_OF_TEN_MAX &&
		!__builtin_mul_overflow(*result, powers_of_ten[power], result);
}

/* Is a date compared as a timestamp?  Not an explicit cast, which may fail. */
static bool
is_date_as_timestamp(const VectorExpr *expression)
{
	return expression->function == kernel_convert &&
		expression->operation == OPERATION_DATE_TO_TIMESTAMP &&
		!IsA(expression->source, FuncExpr);
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

/* The common case: an integer or numeric against a constant. */
static bool
apply_integer_clause(VectorExpr *clause, VectorContext *context,
					 TupleBatch *batch)
{
	VectorExpr *operand = clause->left;
	const Vector *left;
	int64		constant;

	if (clause->function != kernel_compare ||
		operand->kind == VALUE_FLOAT || !clause->right->is_constant ||
		vector_evaluate(clause->right, context, &batch->selection) == NULL ||
		clause->right->is_null_constant)
		return false;
	constant = DatumGetInt64(clause->right->result.values[0]);
	if (is_date_as_timestamp(operand) &&
		date_for_timestamp(clause->operation, constant, &constant))
		operand = operand->left;
	left = vector_evaluate(operand, context, &batch->selection);
	if (left == NULL || left->has_nulls)
		return false;
	if (operand->kind != VALUE_INTEGER &&
		!constant_at_scale(&clause->right->result, left->scale, &constant))
		return false;
	select_integers(clause->operation, left, constant, &batch->selection,
					batch->selected_rows);
	return true;
}

/* Apply one vector clause; false if the batch must take it by row. */
static bool
apply_vector_clause(VectorExpr *clause, VectorContext *context,
					TupleBatch *batch)
{
	const Vector *truth;

	if (apply_integer_clause(clause, context, batch))
		return true;
	truth = vector_evaluate(clause, context, &batch->selection);
	if (truth == NULL)
		return false;
	keep_true(batch, truth);
	return true;
}

/*
 * Apply the leading vector clauses to a batch.  Returns the number of the
 * first clause that is still to be applied, by row.
 */
int
qual_apply_vectors(BatchQual *qual, TupleBatch *batch)
{
	for (int i = 0; i < qual->vector_count; i++)
	{
		if (batch->selection.count == 0)
			return qual->clause_count;
		if (!apply_vector_clause(qual->vectors[i], qual->context, batch))
			return i;
	}
	return qual->vector_count;
}

/* Does a row pass the clauses from the given one on? */
bool
qual_row_passes(BatchQual *qual, TupleBatch *batch, int from, int row)
{
	ExprContext *econtext = qual->context->econtext;

	if (from >= qual->clause_count)
		return true;
	econtext->ecxt_scantuple = batch->ops->materialise_row(batch, row);
	for (int i = from; i < qual->clause_count; i++)
	{
		bool		is_null;
		Datum		truth = ExecEvalExprSwitchContext(qual->row_states[i],
													  econtext, &is_null);

		if (is_null || !DatumGetBool(truth))
			return false;
	}
	return true;
}

/* Apply one clause by row to the whole selection. */
static void
apply_row_clause(BatchQual *qual, TupleBatch *batch, int clause)
{
	ExprContext *econtext = qual->context->econtext;
	Selection	selection = batch->selection;
	uint16	   *rows = batch->selected_rows;
	int			count = 0;

	FOR_SELECTED(row, &selection,
				 bool is_null;
				 Datum truth;
				 ResetExprContext(econtext);
				 econtext->ecxt_scantuple = batch->ops->materialise_row(batch, row);
				 truth = ExecEvalExprSwitchContext(qual->row_states[clause],
												   econtext, &is_null);
				 rows[count] = row;
				 count += !is_null && DatumGetBool(truth));
	batch->selection.count = count;
	batch->selection.rows = rows;
}

/* Apply all clauses to the whole batch, for a consumer that takes every row. */
void
qual_apply(BatchQual *qual, TupleBatch *batch)
{
	for (int i = 0; i < qual->clause_count && batch->selection.count > 0; i++)
	{
		if (qual->vectors[i] == NULL ||
			!apply_vector_clause(qual->vectors[i], qual->context, batch))
			apply_row_clause(qual, batch, i);
	}
}
