/*
 * join_batch.h
 *	  Pairs of outer and inner rows as a batch.
 */
#ifndef BATCHEXEC_JOIN_BATCH_H
#define BATCHEXEC_JOIN_BATCH_H

#include "join_table.h"

/* Where a column of the pairs comes from. */
typedef struct JoinColumn
{
	bool		is_inner;
	AttrNumber	attno;			/* of the inner row, or of the outer batch */
	BatchColumn *outer_words;	/* outer: what a Datum is made of, or NULL */
} JoinColumn;

typedef struct JoinBatch
{
	TupleBatch *output;
	TupleBatch *outer;			/* the input's; its current batch */
	JoinColumn *columns;		/* of each attribute of the output */
	int			column_count;
	BatchColumn **outer_columns;	/* of each column of the output, as made */
	bool		outer_is_null;	/* inner rows that no outer row matches */
	Vector		datums;			/* inner: of the column that is being filled */
	uint16		outer_rows[BATCH_ROWS_MAX];
	const JoinRow *inner_rows[BATCH_ROWS_MAX];	/* NULL: none matches */
} JoinBatch;

extern const TupleBatchOps join_batch_ops;

extern void join_batch_plan(JoinBatch *join);
extern void join_batch_plan_rows(JoinBatch *join);
extern void join_batch_store_row(JoinBatch *join, int row, TupleTableSlot *slot);

#endif
