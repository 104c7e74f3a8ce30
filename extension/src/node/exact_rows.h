/*
 * exact_rows.h
 *	  Rows of a batch that are evaluated one at a time, as they are asked for.
 *
 * A vector raises no error: where it can't be computed, rows are evaluated one by one.
 * Where a node above may stop, the stock server might never come to the row that raises
 * an error, so none is evaluated before its turn.
 */
#ifndef BATCHEXEC_EXACT_ROWS_H
#define BATCHEXEC_EXACT_ROWS_H

#include "nodes/execnodes.h"

#include "expr.h"

typedef struct ExactRows
{
	int			count;
	int			next;
	int			clause_next;	/* first clause that they have not passed */
	bool		next_passes;	/* the next row is known to pass all clauses */
	uint16		rows[BATCH_ROWS_MAX];
} ExactRows;

extern void exact_rows_take(ExactRows *exact, const TupleBatch *batch, int clause_next);
extern void exact_rows_forget(ExactRows *exact);
extern bool exact_rows_peek(ExactRows *exact, BatchQual *qual, TupleBatch *batch, PlanState *node);
extern void exact_rows_select_next(ExactRows *exact, BatchQual *qual, TupleBatch *batch,
								   PlanState *node);
extern void exact_rows_select_all(ExactRows *exact, BatchQual *qual, TupleBatch *batch,
								  PlanState *node);
extern void exact_rows_apply(ExactRows *exact, BatchQual *qual, TupleBatch *batch,
							 bool is_exact, PlanState *node);

static inline bool
exact_rows_wait(const ExactRows *exact)
{
	return exact->next < exact->count;
}

/* The next row, whether or not it passes clauses. */
static inline int
exact_rows_next(ExactRows *exact)
{
	return exact->rows[exact->next++];
}

#endif
