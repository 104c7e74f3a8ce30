/*
 * top_rows_plan.c
 *	  What a BatchScan is told of the Sort right above it.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"

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

	if (!returns_columns(scan))
		return NIL;
	key = (const Var *) list_nth_node(TargetEntry, scan->targetlist,
									  sort->sortColIdx[0] - 1)->expr;
	if (sort_words_of_operator(key->vartype, sort->sortOperators[0], sort->collations[0]) == WORDS_NONE)
		return NIL;
	return list_make2(list_make3_int(sort->plan.plan_node_id, key->varattno, sort->nullsFirst[0]),
					  list_make3_oid(key->vartype, sort->sortOperators[0], sort->collations[0]));
}

TopRowsPlan
top_rows_from_list(const List *list)
{
	const List *numbers;
	const List *oids;

	if (list == NIL)
		return (TopRowsPlan) {0};
	numbers = linitial(list);
	oids = lsecond(list);
	return (TopRowsPlan) {
		.sort_node_id = linitial_int(numbers),
		.attno = (AttrNumber) lsecond_int(numbers),
		.nulls_first = lthird_int(numbers) != 0,
		.type = linitial_oid(oids),
		.operator = lsecond_oid(oids),
		.collation = lthird_oid(oids),
	};
}
