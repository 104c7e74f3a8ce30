/*
 * index_order.c
 *	  How closely the rows of a table follow the order of an index, by its statistics.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_statistic.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "batch_limits.h"
#include "cost.h"

/* How closely a table's rows follow the order of a column: from 0 to 1; 0, too, where it is not known. */
double
cost_order_correlation(Oid relid, AttrNumber column)
{
	HeapTuple	tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(relid),
										Int16GetDatum(column), BoolGetDatum(false));
	AttStatsSlot slot;
	double		correlation = 0;

	if (!HeapTupleIsValid(tuple))
		return 0;
	if (get_attstatsslot(&slot, tuple, STATISTIC_KIND_CORRELATION, InvalidOid, ATTSTATSSLOT_NUMBERS))
	{
		correlation = fabs(slot.numbers[0]);
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(tuple);
	return correlation;
}

/* Each path over an index asks for its correlation: remember it. */
typedef struct OrderMemo
{
	uint64		planning;
	Oid			index;
	double		correlation;
} OrderMemo;

static OrderMemo memos[TABLES_REMEMBERED];

/* The same of the first column of an index. */
double
cost_index_correlation(PlannerInfo *root, const IndexOptInfo *index)
{
	OrderMemo  *memo = &memos[index->indexoid % TABLES_REMEMBERED];

	if (index->indexkeys[0] == 0)
		return 0;
	if (memo->index != index->indexoid || memo->planning != cost_planning)
		*memo = (OrderMemo) {
			cost_planning, index->indexoid,
			cost_order_correlation(planner_rt_fetch(index->rel->relid, root)->relid, index->indexkeys[0])
		};
	return memo->correlation;
}
