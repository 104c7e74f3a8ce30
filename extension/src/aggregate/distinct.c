/*
 * distinct.c
 *	  Aggregates of DISTINCT arguments: of the rows of a group, only the first one
 *	  with a value goes on to the aggregate.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"

#include "aggregate.h"
#include "group.h"

/* The keys of a set of values: the argument, and, where there are groups, the group. */
enum DistinctKey
{
	DISTINCT_VALUE,
	DISTINCT_GROUP,
	DISTINCT_KEYS
};

/* Why an aggregate of a DISTINCT argument has no batched form, or NULL. */
const char *
distinct_obstacle(const Aggref *aggref, const AggregateOps *ops)
{
	const SortGroupClause *clause;
	const Expr *argument;
	ValueKind	kind;

	if (list_length(aggref->args) != 1 || list_length(aggref->aggdistinct) != 1)
		return "DISTINCT is batched for aggregates of one argument";
	clause = linitial_node(SortGroupClause, aggref->aggdistinct);
	argument = linitial_node(TargetEntry, aggref->args)->expr;
	/* Of numerics, 1 and 1.00 are one value, but their sums differ. */
	if (ops != &count_ops &&
		(!ops->takes_any_order ||
		 !value_kind_of_type(exprType((const Node *) argument), &kind) ||
		 kind != VALUE_INTEGER))
		return "DISTINCT is batched for count, and for aggregates of integers";
	return key_obstacle(argument, clause->eqop, exprCollation((const Node *) argument));
}

/* Set up the values of one of the tables that an aggregate reads. */
void
distinct_compile(Aggregate *aggregate, VectorContext *context)
{
	GroupKey   *keys = palloc0(sizeof(GroupKey) * DISTINCT_KEYS);
	GroupKey   *group = &keys[DISTINCT_GROUP];
	int			value_count = 0;

	group_key_compile(&keys[DISTINCT_VALUE], context,
					  linitial_node(TargetEntry, aggregate->aggref->args)->expr,
					  &value_count);
	group->type = INT8OID;
	group->kind = VALUE_INTEGER;
	group->is_given = true;
	group->value_at = -1;
	vector_allocate(&group->row_vector);
	group->vector = &group->row_vector;
	aggregate->distinct_keys = keys;
}

/* The values met so far, of all tables together, in memory of their own. */
void
distinct_begin(Aggregate *aggregate, bool is_grouped)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "BatchAgg distinct",
												 ALLOCSET_DEFAULT_SIZES);

	aggregate->distinct = group_table_create(memory, aggregate->distinct_keys,
											 is_grouped ? DISTINCT_KEYS : DISTINCT_GROUP, 0);
	aggregate->distinct_files = palloc0(sizeof(DistinctFiles *));
}

/* As distinct_begin, where another table of the aggregation has begun. */
void
distinct_share(Aggregate *aggregate, const Aggregate *first)
{
	aggregate->distinct = first->distinct;
	aggregate->distinct_files = first->distinct_files;
}

/* Forget all values. */
void
distinct_reset(Aggregate *aggregate)
{
	distinct_files_end(aggregate);
	group_table_reset(aggregate->distinct);
}

/* The groups of the selected rows are keys, too. */
void
distinct_note_groups(Aggregate *aggregate, char **groups, const Selection *selection)
{
	Datum	   *values = aggregate->distinct_keys[DISTINCT_GROUP].row_vector.values;

	FOR_SELECTED(row, selection, values[row] = PointerGetDatum(groups[row]));
}

/*
 * Leave only rows whose value their group has not met yet, and is not NULL.
 * rows receives their numbers.  Returns the values.
 */
const Vector *
distinct_select(Aggregate *aggregate, VectorContext *context, char **groups,
				Selection *selection, uint16 *rows)
{
	GroupKey   *keys = aggregate->distinct_keys;

	aggregate->distinct->keys = keys;
	if (groups != NULL)
		distinct_note_groups(aggregate, groups, selection);
	group_table_add_new(aggregate->distinct, context, selection, rows);
	return keys[DISTINCT_VALUE].vector;
}
