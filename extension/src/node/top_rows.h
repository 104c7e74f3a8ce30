/*
 * top_rows.h
 *	  Rows of a scan that a Sort with a bound above it can't return.
 *
 * Of a Sort whose Limit takes n rows, a row is of no interest if n rows before it
 * are better by the first sort key alone.
 */
#ifndef BATCHEXEC_TOP_ROWS_H
#define BATCHEXEC_TOP_ROWS_H

#include "nodes/execnodes.h"

#include "expr.h"
#include "sort_key.h"

/* Known at plan time.  An attribute number of 0: there is no such Sort. */
typedef struct TopRowsPlan
{
	int			sort_node_id;
	AttrNumber	attno;			/* of the scanned table: the first sort key */
	Oid			type;
	Oid			operator;
	Oid			collation;
	bool		nulls_first;
} TopRowsPlan;

typedef struct TopRows
{
	TopRowsPlan plan;
	EState	   *estate;
	VectorExpr *key;			/* NULL: nothing to do */
	SortKey		sort_key;
	bool		is_started;		/* since the last rescan */
	int			bound;			/* of the Sort; 0: none, or too large */
	int64	   *worst;			/* a heap of the best ranks so far, the worst on top */
	int			worst_count;
	int			worst_capacity;
	uint64		passed_count;	/* rows that the Sort got */
} TopRows;

/* top_rows_plan.c */
extern List *top_rows_of_sort(const Sort *sort);
extern TopRowsPlan top_rows_from_list(const List *list);

/* top_rows.c */
extern void top_rows_begin(TopRows *top, const TopRowsPlan *plan,
						   VectorContext *context, EState *estate);
extern void top_rows_forget(TopRows *top);
extern int	top_rows_apply(TopRows *top, VectorContext *context);

#endif
