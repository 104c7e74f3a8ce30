/*
 * group_order.c
 *	  Groups in the order of their keys, where the plan above relies on it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/sortsupport.h"

#include "group.h"

struct GroupOrder
{
	const GroupTable *table;	/* being sorted */
	int			key_count;
	int		   *keys;			/* their numbers, most significant first */
	SortSupport comparisons;
};

/* Of keys by their numbers, with the sort operator, the collation and the place of NULLs of each. */
GroupOrder *
group_order_create(const List *keys, const List *operators, const List *collations,
				   const List *nulls_first)
{
	GroupOrder *order = palloc0(sizeof(GroupOrder));

	Assert(list_length(keys) == list_length(operators));
	Assert(list_length(keys) == list_length(collations) && list_length(keys) == list_length(nulls_first));
	order->key_count = list_length(keys);
	order->keys = palloc(sizeof(int) * order->key_count);
	order->comparisons = palloc0(sizeof(SortSupportData) * order->key_count);
	for (int i = 0; i < order->key_count; i++)
	{
		SortSupport comparison = &order->comparisons[i];

		order->keys[i] = list_nth_int(keys, i);
		Assert(order->keys[i] >= 0 && order->keys[i] < GROUP_KEYS_MAX);
		comparison->ssup_cxt = CurrentMemoryContext;
		comparison->ssup_collation = list_nth_oid(collations, i);
		comparison->ssup_nulls_first = list_nth_int(nulls_first, i) != 0;
		PrepareSortSupportFromOrderingOp(list_nth_oid(operators, i), comparison);
	}
	return order;
}

static int
compare_groups(const void *a, const void *b, void *order_)
{
	const GroupOrder *order = order_;
	char	   *left = *(char *const *) a;
	char	   *right = *(char *const *) b;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < order->key_count; i++)
	{
		const int	key = order->keys[i];
		int			result = ApplySortComparator(group_key_datum(order->table, left, key),
												 (((GroupHeader *) left)->null_keys >> key) & 1,
												 group_key_datum(order->table, right, key),
												 (((GroupHeader *) right)->null_keys >> key) & 1,
												 &order->comparisons[i]);

		if (result != 0)
			return result;
	}
	return 0;
}

/* The groups of a table in order, in the table's memory. */
char **
group_order_sort(GroupOrder *order, const GroupTable *table)
{
	Assert(order->key_count > 0);
	char	  **groups = MemoryContextAllocHuge(table->memory,
												sizeof(char *) * (table->group_count + 1));

	for (uint32 i = 0; i < table->group_count; i++)
		groups[i] = group_table_get(table, i);
	order->table = table;
	qsort_arg(groups, table->group_count, sizeof(char *), compare_groups, order);
	return groups;
}
