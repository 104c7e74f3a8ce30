/*
 * row_expression.c
 *	  Expressions by row: the executor's own code, on the slot of a batch.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "optimizer/clauses.h"

#include "expr.h"
#include "permission.h"

/* What a plan state says of its scan tuple. */
typedef struct ScanTuple
{
	const TupleTableSlotOps *ops;
	TupleDesc	descriptor;
	bool		is_fixed;
	bool		is_set;
} ScanTuple;

/* Have the plan state say this of its scan tuple; returns what it said before. */
static ScanTuple
set_scan_tuple(PlanState *planstate, ScanTuple tuple)
{
	const ScanTuple before = {planstate->scanops, planstate->scandesc, planstate->scanopsfixed, planstate->scanopsset};

	planstate->scanops = tuple.ops;
	planstate->scandesc = tuple.descriptor;
	planstate->scanopsfixed = tuple.is_fixed;
	planstate->scanopsset = tuple.is_set;
	return before;
}

/*
 * The slot of a batch as a scan tuple.  A virtual slot, of rows from a file, is never deformed; a state
 * that is made for one has to serve others as well, when the node reads its table again.
 */
static ScanTuple
slot_of_batch(const TupleBatch *batch)
{
	return (ScanTuple) {batch->slot->tts_ops, batch->descriptor, batch->slot->tts_ops != &TTSOpsVirtual, true};
}

/* Make an ExprState whose scan tuple is the slot of a batch. */
static void
make_state(RowExpression *expression)
{
	VectorContext *context = expression->context;
	const ScanTuple before = set_scan_tuple(context->planstate, slot_of_batch(context->batch));
	MemoryContext caller = MemoryContextSwitchTo(context->econtext->ecxt_per_query_memory);

	expression->state = IsA(expression->source, List) ?
		ExecInitQual((List *) expression->source, context->planstate) :
		ExecInitExpr(expression->source, context->planstate);
	MemoryContextSwitchTo(caller);
	(void) set_scan_tuple(context->planstate, before);
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

/* May an expression be one of several that are evaluated together?  A subquery is begun once. */
bool
row_expression_may_join(const RowExpression *expression)
{
	return !contain_subplans((Node *) expression->source);
}

/* Prepare to evaluate a row's expressions together: it is deformed once for all of them. */
static void
make_projection(RowExpressions *expressions)
{
	VectorContext *context = expressions->context;
	const ScanTuple before = set_scan_tuple(context->planstate, slot_of_batch(context->batch));
	MemoryContext caller = MemoryContextSwitchTo(context->econtext->ecxt_per_query_memory);
	List	   *targets = NIL;
	ListCell   *cell;

	foreach(cell, expressions->sources)
		targets = lappend(targets, makeTargetEntry(lfirst(cell), (AttrNumber) (foreach_current_index(cell) + 1),
												   NULL, false));
	expressions->econtext = CreateExprContext(context->planstate->state);
	expressions->projection =
		ExecBuildProjectionInfo(targets, expressions->econtext,
								MakeSingleTupleTableSlot(ExecTypeFromTL(targets), &TTSOpsVirtual),
								context->planstate, NULL);
	MemoryContextSwitchTo(caller);
	(void) set_scan_tuple(context->planstate, before);
}

/* Forget the values of the batch before. */
void
row_expressions_start_batch(RowExpressions *expressions)
{
	Assert(expressions->sources != NIL);
	if (expressions->projection == NULL)
		make_projection(expressions);
	ResetExprContext(expressions->econtext);
}

/* Evaluate all for a row of the batch; returns a virtual slot of their values, which live until the next batch starts. */
TupleTableSlot *
row_expressions_evaluate(RowExpressions *expressions, int row)
{
	TupleBatch *batch = expressions->context->batch;

	expressions->econtext->ecxt_scantuple = batch->ops->materialise_row(batch, row);
	return ExecProject(expressions->projection);
}
