/*
 * plan_rows.c
 *	  Where the rows of a plan that has no batches are gathered into some, for the
 *	  aggregation above it.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"

#include "cost.h"
#include "join.h"
#include "plan.h"
#include "rows.h"

/* What it costs to take a row into a batch, and to copy a value there, next to one that is passed by value. */
#define COST_ROW_FACTOR		1.1
#define COST_COPY_FACTOR	2

bool
plan_is_batch_rows(const Plan *plan)
{
	return IsA(plan, CustomScan) && ((const CustomScan *) plan)->methods == &batch_rows_methods;
}

/* Add the columns that a node of an aggregation groups by. */
static Bitmapset *
add_keys(Bitmapset *columns, const Agg *agg)
{
	for (int i = 0; i < agg->numCols; i++)
		columns = bms_add_member(columns, agg->grpColIdx[i] - 1);
	return columns;
}

/* The columns that an aggregation reads, from 0. */
static Bitmapset *
columns_read(const Agg *agg)
{
	Bitmapset  *attributes = NULL;
	Bitmapset  *columns = add_keys(NULL, agg);
	int			attribute = -1;
	ListCell   *cell;

	pull_varattnos((Node *) agg->plan.targetlist, OUTER_VAR, &attributes);
	pull_varattnos((Node *) agg->plan.qual, OUTER_VAR, &attributes);
	while ((attribute = bms_next_member(attributes, attribute)) >= 0)
		columns = bms_add_member(columns, attribute + FirstLowInvalidHeapAttributeNumber - 1);
	foreach(cell, agg->chain)
		columns = add_keys(columns, lfirst(cell));
	return columns;
}

/* What gathering the rows of a plan costs. */
static Cost
cost_of_gathering(const Agg *agg, const Plan *input)
{
	const Bitmapset *columns = columns_read(agg);
	double		values = COST_ROW_FACTOR;
	ListCell   *cell;

	foreach(cell, input->targetlist)
		if (bms_is_member(foreach_current_index(cell), columns))
			values += get_typbyval(exprType((Node *) lfirst_node(TargetEntry, cell)->expr)) ? 1 : COST_COPY_FACTOR;
	return batchexec_cost_startup + input->plan_rows * values * batchexec_cost_row;
}

/* What an aggregation costs without its input, and without the subqueries that are charged to it. */
static Cost
cost_of_agg(const Agg *agg)
{
	Cost		cost = agg->plan.total_cost - agg->plan.lefttree->total_cost;
	ListCell   *cell;

	foreach(cell, agg->plan.initPlan)
	{
		const SubPlan *subquery = lfirst_node(SubPlan, cell);

		cost -= subquery->startup_cost + subquery->per_call_cost;
	}
	return cost;
}

/* Does it pay to gather the rows of a plan for an aggregation in batches? */
bool
rows_pay(const Agg *agg, const Plan *input)
{
	const Cost	agg_cost = cost_of_agg(agg);

	if (batchexec_mode != BATCH_MODE_ALLOW)
		return true;
	return agg_cost > batchexec_cost_startup &&
		cost_agg_saving(agg_cost, agg->plan.plan_rows, 0, 1) > cost_of_gathering(agg, input);
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

/* The BatchRows between an aggregation and its input. */
CustomScan *
rows_to_batch(const Agg *agg, Plan *input, int *next_node_id)
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
	batch->custom_private = list_make1(list_of_columns(columns_read(agg)));
	batch->methods = &batch_rows_methods;
	batch->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	return batch;
}
