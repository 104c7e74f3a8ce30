/*
 * rows_plan.c
 *	  The node that gathers the rows of a plan that has no batches into some.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"

#include "rows.h"

bool
plan_is_batch_rows(const Plan *plan)
{
	return IsA(plan, CustomScan) && ((const CustomScan *) plan)->methods == &batch_rows_methods;
}

/* As a list, which a plan can hold. */
static List *
list_of_columns(const Bitmapset *columns)
{
	List	   *list = NIL;
	int			column = -1;

	while ((column = bms_next_member(columns, column)) >= 0)
		list = lappend_int(list, column);
	return list;
}

/* A reference to a column of a plan's rows. */
static Var *
column_of(const TargetEntry *entry, int varno)
{
	const Node *expression = (const Node *) entry->expr;

	return makeVar(varno, entry->resno, exprType(expression), exprTypmod(expression), exprCollation(expression), 0);
}

/*
 * Have a node return the rows of the one below as they are, under the names of these targets.  EXPLAIN follows
 * its columns to the node that makes them.
 */
void
plan_hand_on_columns(CustomScan *batch, const Plan *input, const List *targets)
{
	List	   *columns = NIL;
	ListCell   *cell;

	Assert(list_length(input->targetlist) == list_length(targets));
	batch->custom_scan_tlist = NIL;
	foreach(cell, input->targetlist)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, cell);
		const TargetEntry *named = list_nth_node(TargetEntry, targets, foreach_current_index(cell));

		Assert(entry->resno == foreach_current_index(cell) + 1);
		batch->custom_scan_tlist = lappend(batch->custom_scan_tlist,
										   makeTargetEntry((Expr *) column_of(entry, OUTER_VAR), entry->resno, NULL, false));
		columns = lappend(columns, makeTargetEntry((Expr *) column_of(entry, INDEX_VAR), entry->resno,
												   named->resname, named->resjunk));
	}
	batch->scan.plan.targetlist = columns;
}

/* The BatchRows above a plan of which these columns are read. */
CustomScan *
rows_to_batch(const Bitmapset *columns, Plan *input, int *next_node_id)
{
	CustomScan *batch = makeNode(CustomScan);

	batch->scan.plan = *input;
	NodeSetTag(batch, T_CustomScan);
	batch->scan.plan.plan_node_id = (*next_node_id)++;
	batch->scan.plan.parallel_aware = false;
	batch->scan.plan.initPlan = NIL;
	batch->scan.plan.qual = NIL;
	batch->scan.plan.righttree = NULL;
	batch->scan.plan.lefttree = input;
	plan_hand_on_columns(batch, input, input->targetlist);
	batch->custom_private = list_make1(list_of_columns(columns));
	batch->methods = &batch_rows_methods;
	batch->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	return batch;
}
