/*
 * row_expression.c
 *	  Expressions by row: the executor's own code, on the slot of a batch.
 */
#include "postgres.h"

#include "executor/executor.h"

#include "expr.h"
#include "permission.h"

/*
 * Make an ExprState whose scan tuple is the slot of a batch.  A virtual slot, of rows from a file, is never
 * deformed; a state that is made for one has to serve others as well, when the node reads its table again.
 */
static void
make_state(RowExpression *expression)
{
	VectorContext *context = expression->context;
	PlanState  *planstate = context->planstate;
	const TupleTableSlotOps *ops = planstate->scanops;
	TupleDesc	descriptor = planstate->scandesc;
	bool		is_fixed = planstate->scanopsfixed;
	bool		is_set = planstate->scanopsset;
	MemoryContext caller;

	planstate->scanops = context->batch->slot->tts_ops;
	planstate->scandesc = context->batch->descriptor;
	planstate->scanopsfixed = planstate->scanops != &TTSOpsVirtual;
	planstate->scanopsset = true;
	caller = MemoryContextSwitchTo(context->econtext->ecxt_per_query_memory);
	expression->state = ExecInitExpr(expression->source, planstate);
	MemoryContextSwitchTo(caller);
	planstate->scanops = ops;
	planstate->scandesc = descriptor;
	planstate->scanopsfixed = is_fixed;
	planstate->scanopsset = is_set;
}

/* One without a vector form is made at once, as it may hold subplans. */
void
row_expression_begin(RowExpression *expression, VectorContext *context,
					 Expr *source, bool has_vector_form)
{
	expression->context = context;
	expression->source = source;
	expression->state = NULL;
	if (has_vector_form)
		permission_check_expression((Node *) source);
	else
		make_state(expression);
}

/* Evaluate for the row in the batch's slot. */
Datum
row_expression_evaluate(RowExpression *expression, bool *is_null)
{
	if (expression->state == NULL)
		make_state(expression);
	return ExecEvalExprSwitchContext(expression->state,
									 expression->context->econtext, is_null);
}
