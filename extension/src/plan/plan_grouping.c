/*
 * plan_grouping.c
 *	  How an aggregation forms its groups: keys, grouping sets, and the order that
 *	  the plan above relies on.
 *
 * An aggregate of a DISTINCT argument makes the planner sort its input, so that
 * equal values follow each other.  Our table of values needs no order: such an
 * aggregation is batched over what is below its Sort.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"

#include "batch_limits.h"
#include "plan.h"
#include "server.h"

/* What an aggregation reads: what is below its Sort, if it has one. */
Plan *
agg_below(const Agg *agg)
{
	Plan	   *below = agg->plan.lefttree;

	return IsA(below, Sort) ? below->lefttree : below;
}

bool
agg_is_over_sort(const Agg *agg)
{
	return IsA(agg->plan.lefttree, Sort);
}

/*
 * Equal values of a key may differ, as 1 and 1.00 do.  Of sorted rows another one
 * than the first read may stand for the group.
 */
bool
key_is_ambiguous(const Node *key)
{
	switch (exprType(key))
	{
		case FLOAT4OID:
		case FLOAT8OID:
			return true;
		case NUMERICOID:
			/* A field of a date is a whole number. */
			if (IsA(key, FuncExpr) && ((const FuncExpr *) key)->funcid == F_EXTRACT_TEXT_DATE)
				return false;
			pg_fallthrough;
		case BPCHAROID:
			return exprTypmod(key) < 0;
		default:
			return false;
	}
}

/* The number of a column among the keys, added where it is new; -1: there are too many. */
static int
add_key(Grouping *grouping, const Agg *agg, int which)
{
	for (int i = 0; i < grouping->key_count; i++)
		if (grouping->columns[i] == agg->grpColIdx[which])
			return i;
	if (grouping->key_count == GROUP_KEYS_MAX)
		return -1;
	grouping->columns[grouping->key_count] = agg->grpColIdx[which];
	grouping->operators[grouping->key_count] = agg->grpOperators[which];
	grouping->collations[grouping->key_count] = agg->grpCollations[which];
	return grouping->key_count++;
}

/* Add a set of the first columns of a phase, as the keys that are in it. */
static const char *
add_set(Grouping *grouping, const Agg *phase, int column_count)
{
	uint32		keys = 0;

	for (int i = 0; i < column_count; i++)
	{
		int			key = add_key(grouping, phase, i);

		if (key < 0)
			return "there are too many grouping keys";
		keys |= UINT32_C(1) << key;
	}
	if (list_length(grouping->sets) == GROUPING_SETS_MAX)
		return psprintf("it has more than %d grouping sets", GROUPING_SETS_MAX);
	grouping->sets = lappend_int(grouping->sets, (int) keys);
	return NULL;
}

/* The sets of one phase of an aggregation with grouping sets. */
static const char *
add_phase(Grouping *grouping, const Agg *phase)
{
	const char *obstacle = NULL;
	ListCell   *cell;

	if (phase->aggstrategy == AGG_HASHED || phase->aggstrategy == AGG_MIXED)
		return add_set(grouping, phase, phase->numCols);
	if (phase->aggstrategy == AGG_SORTED)
		return "its input is sorted";
	/* Each is the first columns of the phase: here, none of them. */
	foreach(cell, phase->groupingSets)
		if (obstacle == NULL)
			obstacle = add_set(grouping, phase, list_length(lfirst(cell)));
	return obstacle;
}

/* From the keys that are in each set to those that are not. */
static void
invert_sets(Grouping *grouping)
{
	const uint64 all_keys = (UINT64_C(1) << grouping->key_count) - 1;
	ListCell   *cell;

	foreach(cell, grouping->sets)
		lfirst_int(cell) = (int) (uint32) (all_keys & ~(uint64) (uint32) lfirst_int(cell));
}

/* Find keys and sets; why there is no batched form of them, or NULL. */
const char *
grouping_of_agg(const Agg *agg, Grouping *grouping)
{
	const char *obstacle = NULL;
	ListCell   *cell;

	memset(grouping, 0, sizeof(Grouping));
	if (agg->numCols > GROUP_KEYS_MAX)
		return "there are too many grouping keys";
	if (agg->groupingSets != NIL || agg->chain != NIL)
	{
		grouping->has_sets = true;
		obstacle = add_phase(grouping, agg);
		foreach(cell, agg->chain)
			if (obstacle == NULL)
				obstacle = add_phase(grouping, lfirst_node(Agg, cell));
		invert_sets(grouping);
		return obstacle;
	}
	if (agg->aggstrategy != AGG_PLAIN && agg->numCols == 0)
		return "its grouping keys are constants";
	for (int i = 0; i < agg->numCols; i++)
		(void) add_key(grouping, agg, i);
	if (agg->aggstrategy != AGG_PLAIN)
		grouping->sets = list_make1_int(0);
	return NULL;
}

/* The number of the key that a column of the input is, or -1. */
int
grouping_key(const Grouping *grouping, AttrNumber column)
{
	for (int i = 0; i < grouping->key_count; i++)
		if (grouping->columns[i] == column)
			return i;
	return -1;
}

/* The value of GROUPING() in each set: a bit for each argument, set where it is left out. */
List *
grouping_values(const Grouping *grouping, const GroupingFunc *call)
{
	List	   *values = NIL;
	ListCell   *set;
	ListCell   *column;

	foreach(set, grouping->sets)
	{
		uint32		value = 0;

		/* The planner notes columns only where there are sets. */
		foreach(column, call->cols)
		{
			int			key = grouping_key(grouping, lfirst_int(column));

			value = (value << 1) | (key < 0 ? 1 : ((uint32) lfirst_int(set) >> key) & 1);
		}
		values = lappend_int(values, (int) value);
	}
	return values;
}

/* The order of the groups of a sorted aggregation: that of the Sort below it. */
List *
grouping_order(const Grouping *grouping, const Agg *agg)
{
	const Sort *sort = (const Sort *) agg->plan.lefttree;
	List	   *keys = NIL;
	List	   *operators = NIL;
	List	   *collations = NIL;
	List	   *nulls_first = NIL;

	if (agg->aggstrategy != AGG_SORTED || !IsA(sort, Sort))
		return NIL;
	for (int i = 0; i < sort->numCols; i++)
	{
		int			key = grouping_key(grouping, sort->sortColIdx[i]);

		/* From here on: arguments. */
		if (key < 0)
			break;
		keys = lappend_int(keys, key);
		operators = lappend_oid(operators, sort->sortOperators[i]);
		collations = lappend_oid(collations, sort->collations[i]);
		nulls_first = lappend_int(nulls_first, sort->nullsFirst[i]);
	}
	return keys == NIL ? NIL : list_make4(keys, operators, collations, nulls_first);
}

/* The groups of all sets that the planner reckons with. */
double
agg_group_estimate(const Agg *agg)
{
	double		groups = agg->numGroups;
	ListCell   *cell;

	foreach(cell, agg->chain)
		groups += lfirst_node(Agg, cell)->numGroups;
	return groups;
}
