/*
 * sort.h
 *	  BatchSort: rows of a batched node, or of any plan, in the order of keys.
 */
#ifndef BATCHEXEC_SORT_H
#define BATCHEXEC_SORT_H

#include "batchexec.h"

#define BATCH_SORT_NAME	"BatchSort"

/* custom_private of a BatchSort: lists, but for the first one of an entry for each key. */
enum BatchSortPrivate
{
	BATCH_SORT_ATTRIBUTES,		/* of the node's batches, of each column; NIL: its rows are read */
	BATCH_SORT_COLUMNS,			/* numbers of columns, from 0 */
	BATCH_SORT_OPERATORS,
	BATCH_SORT_COLLATIONS,
	BATCH_SORT_NULLS_FIRST
};

/* What the node above does with the rows of a Sort. */
typedef enum SortPlace
{
	SORT_IS_FREE,				/* reads them in order, once or more */
	SORT_IS_GROUPED,			/* groups them, and may do so without the order */
	SORT_IS_UNIQUE,				/* keeps one of those that are equal */
	SORT_IS_MARKED,				/* goes back to a row */
	SORT_IS_LIMITED				/* stops after the first few: the stock Sort keeps no others */
} SortPlace;

extern const CustomScanMethods batch_sort_methods;

/* sort_plan.c */
extern SortPlace sort_place_below(const Plan *plan, SortPlace place, bool is_inner);
extern bool sort_is_free_below(const Agg *agg);
extern const char *sort_obstacle(const Sort *sort, SortPlace place);
extern bool sort_pays(const Sort *sort);
extern CustomScan *sort_to_batch(Sort *sort, int *next_node_id);

#endif
