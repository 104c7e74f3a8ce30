/*
 * top_rows_plan.c
 *	  What a BatchScan is told of the Sort right above it.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "utils/lsyscache.h"

#include "plan.h"
#include "top_rows.h"

/* Are all results columns?  Then no row that is left out could have raised an error. */
static bool
returns_columns(const Plan *plan)
{
	ListCell   *cell;

	foreach(cell, plan->targetlist)
	{
		const Var  *var = (const Var *) lfirst_node(TargetEntry, cell)->expr;

		if (!IsA(var, Var) || var->varattno <= 0)
			return false;
	}
	return true;
}

/*
 * The first key of a Sort over a scan, as a list; NIL where rows can't be told
 * apart by it in batches.
 */
List *
top_rows_of_sort(const Sort *sort)
{
	const Plan *scan = sort->plan.lefttree;
	const Var  *key;
	VectorOperation operation;
	ValueKind	kind;

	if (!returns_columns(scan))
		return NIL;
	key = (const Var *) list_nth_node(TargetEntry, scan->targetlist,
									  sort->sortColIdx[0] - 1)->expr;
	if (!value_kind_of_type(key->vartype, &kind) ||
		(kind != VALUE_INTEGER && kind != VALUE_FLOAT) ||
		!function_lookup(get_opcode(sort->sortOperators[0]), &operation) ||
		(operation != OPERATION_LT && operation != OPERATION_GT))
		return NIL;
	return lappend_int(list_make4_int(sort->plan.plan_node_id, key->varattno,
									  operation == OPERATION_GT, sort->nullsFirst[0]),
					   (int) key->vartype);
}

TopRowsPlan
top_rows_from_list(const List *list)
{
	if (list == NIL)
		return (TopRowsPlan) {0};
	return (TopRowsPlan) {
		.sort_node_id = list_nth_int(list, 0),
		.attno = (AttrNumber) list_nth_int(list, 1),
		.is_descending = list_nth_int(list, 2) != 0,
		.nulls_first = list_nth_int(list, 3) != 0,
		.type = (Oid) list_nth_int(list, 4),
	};
}
