/*
 * exact_rows.c
 *	  Rows of a batch that are evaluated one at a time, as they are asked for.
 */
#include "postgres.h"

#include "executor/executor.h"

#include "exact_rows.h"
#include "server.h"

/* Have the selected rows wait, which have passed the clauses before this one. */
void
exact_rows_take(ExactRows *exact, const TupleBatch *batch, int clause_next)
{
	int			count = 0;

	Assert(selection_is_valid(&batch->selection, batch->row_count));
	FOR_SELECTED(row, &batch->selection, exact->rows[count++] = row);
	exact->count = count;
	exact->next = 0;
	Assert(count <= BATCH_ROWS_MAX && clause_next >= 0);
	exact->clause_next = clause_next;
	exact->next_passes = false;
}

void
exact_rows_forget(ExactRows *exact)
{
	exact->count = exact->next = 0;
	exact->next_passes = false;
}

/* Pass over rows up to one that passes all clauses; false where none is left. */
bool
exact_rows_peek(ExactRows *exact, BatchQual *qual, TupleBatch *batch, PlanState *node)
{
	Assert(exact->next >= 0 && exact->next <= exact->count);
	Assert(exact->clause_next <= qual->clause_count);
	for (; exact->next < exact->count; exact->next++)
	{
		if (!exact->next_passes)
		{
			ResetExprContext(qual->context->econtext);
			exact->next_passes = qual_row_passes(qual, batch, exact->clause_next,
												 exact->rows[exact->next]);
		}
		if (exact->next_passes)
			return true;
		InstrCountFiltered1(node, 1);
	}
	return false;
}

/* Select the next row that passes all clauses, and no other; none where none is left. */
void
exact_rows_select_next(ExactRows *exact, BatchQual *qual, TupleBatch *batch, PlanState *node)
{
	batch->selection.count = 0;
	if (exact_rows_peek(exact, qual, batch, node))
	{
		exact->next_passes = false;
		batch_select_row(batch, exact_rows_next(exact));
	}
}

/* Select all rows that are left and pass all clauses. */
void
exact_rows_select_all(ExactRows *exact, BatchQual *qual, TupleBatch *batch, PlanState *node)
{
	int			count = 0;

	while (exact_rows_peek(exact, qual, batch, node))
	{
		exact->next_passes = false;
		batch->selected_rows[count++] = exact_rows_next(exact);
	}
	Assert(count <= batch->row_count);
	batch->selection.count = count;
	batch->selection.rows = batch->selected_rows;
}

/*
 * Apply the clauses to a batch.  is_exact: as far as vectors do; then no row is selected, and
 * those that are left wait for the other clauses.
 */
void
exact_rows_apply(ExactRows *exact, BatchQual *qual, TupleBatch *batch, bool is_exact,
				 PlanState *node)
{
	int			clause_next = qual->clause_count;

	ResetExprContext(qual->context->econtext);
	if (is_exact)
		clause_next = qual_apply_vectors(qual, batch);
	else
		qual_apply(qual, batch);
	Assert(selection_is_valid(&batch->selection, batch->row_count));
	InstrCountFiltered1(node, batch->row_count - batch->selection.count);
	if (clause_next < qual->clause_count)
	{
		exact_rows_take(exact, batch, clause_next);
		batch->selection.count = 0;
	}
}
