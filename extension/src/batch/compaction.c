/*
 * compaction.c
 *	  The rows of several sparse batches as one.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "compaction.h"

/* Generations of batches that are shown in place of others: no node counts so far. */
#define SHOWN_GENERATIONS	(UINT64CONST(1) << 63)

/* Begin: sparse batches wait for others. kept names the columns that the node above reads. */
void
compaction_begin(Compaction *compaction, const KeptRows *kept)
{
	Assert(kept->batch != NULL && compaction->kept == NULL);
	compaction->kept = kept;
}

/* Make room for rows, when the first one comes. */
static void
begin_rows(Compaction *compaction, EState *estate)
{
	MemoryContext caller = MemoryContextSwitchTo(estate->es_query_cxt);
	const KeptRows *kept = compaction->kept;

	compaction->rows = datum_batch_create(kept->batch->descriptor, kept->attributes);
	compaction->values = AllocSetContextCreate(estate->es_query_cxt, "Batch compaction",
											   ALLOCSET_DEFAULT_SIZES);
	compaction->slot = ExecInitExtraTupleSlot(estate, kept->batch->descriptor, &TTSOpsVirtual);
	MemoryContextSwitchTo(caller);
}

static Datum
copy_value(void *memory, Datum value, int length)
{
	MemoryContext caller = MemoryContextSwitchTo(memory);
	const Datum copy = datumCopy(value, false, length);

	MemoryContextSwitchTo(caller);
	return copy;
}

/* Append an attribute of the selected rows that has no vector: it is taken from each of them. */
static void
append_from_rows(Compaction *compaction, AttrNumber attno)
{
	TupleBatch *batch = compaction->kept->batch;
	const Form_pg_attribute form = TupleDescAttr(batch->descriptor, attno - 1);
	Vector	   *to = &compaction->rows->attributes[attno - 1];
	int			at = compaction->rows->row_count;

	if (at == 0)
		to->has_nulls = false;
	FOR_SELECTED(row, &batch->selection,
				 TupleTableSlot *slot = batch->ops->materialise_row(batch, row);
				 const Datum value = slot_getattr(slot, attno, &to->nulls[at]);
				 to->has_nulls |= to->nulls[at];
				 to->values[at] = to->nulls[at] ? (Datum) 0 : form->attbyval ? value :
				 copy_value(compaction->values, value, form->attlen);
				 at++);
}

/*
 * Copy the selected rows of the batch, where they are few and there is room for them.  Returns
 * whether it has: then the batch may go.
 */
bool
compaction_take(Compaction *compaction, EState *estate, BatchCounters *counters)
{
	const KeptRows *kept = compaction->kept;
	TupleBatch *batch = kept->batch;
	const int	count = batch->selection.count;

	Assert(!compaction->is_shown);
	Assert(selection_is_valid(&batch->selection, batch->row_count));
	if (count > SPARSE_ROWS_MAX || (compaction->rows != NULL && compaction_is_full(compaction)))
		return false;
	if (compaction->rows == NULL)
		begin_rows(compaction, estate);
	for (int i = 0; i < kept->column_count; i++)
	{
		const KeptColumn *column = &kept->columns[i];

		if (column->words != NULL)
			datum_batch_append_column(compaction->rows, column->attno - 1,
									  batch_column(batch, column->words, &batch->selection),
									  &batch->selection, copy_value, compaction->values);
		else
			append_from_rows(compaction, column->attno);
	}
	compaction->rows->row_count += count;
	counters->sparse_batches++;
	return true;
}

/* May there be no room for another sparse batch? */
bool
compaction_is_full(const Compaction *compaction)
{
	return compaction->rows->row_count + SPARSE_ROWS_MAX > BATCH_ROWS_MAX ||
		MemoryContextMemAllocated(compaction->values, false) > COMPACTION_BYTES_MAX;
}

/* Have the batch show the rows that wait.  The node's own batch is put by. */
void
compaction_show(Compaction *compaction, BatchCounters *counters)
{
	TupleBatch *batch = compaction->kept->batch;

	Assert(compaction_has_rows(compaction) && !compaction->is_shown);
	compaction->row_count = batch->row_count;
	compaction->generation = batch->generation;
	compaction->selection = batch->selection;
	if (batch->selection.rows != NULL)
	{
		memcpy(compaction->selected_rows, batch->selection.rows,
			   sizeof(uint16) * batch->selection.count);
		compaction->selection.rows = compaction->selected_rows;
	}
	compaction->contents = (BatchContents) {
		.ops = &datum_batch_ops,.source = compaction->rows,.slot = compaction->slot,
	};
	batch_exchange_contents(batch, &compaction->contents);
	batch->row_count = compaction->rows->row_count;
	batch->generation = SHOWN_GENERATIONS | ++compaction->shown_count;
	batch_select_all(batch);
	compaction->is_shown = true;
	counters->compacted_batches++;
}

/* Forget the rows that were shown; the batch is its node's again, but for columns that it needs no more. */
void
compaction_hide(Compaction *compaction)
{
	TupleBatch *batch;

	if (!compaction->is_shown)
		return;
	batch = compaction->kept->batch;
	Assert(batch->source == compaction->rows);
	batch->ops->release(batch);
	batch_exchange_contents(batch, &compaction->contents);
	batch->row_count = compaction->row_count;
	batch->generation = compaction->generation;
	batch->selection = compaction->selection;
	if (compaction->selection.rows != NULL)
	{
		memcpy(batch->selected_rows, compaction->selected_rows,
			   sizeof(uint16) * compaction->selection.count);
		batch->selection.rows = batch->selected_rows;
	}
	compaction->is_shown = false;
	compaction->rows->row_count = 0;
	MemoryContextReset(compaction->values);
}

/* Forget all rows: the scan begins anew, or ends. */
void
compaction_forget(Compaction *compaction)
{
	compaction_hide(compaction);
	if (!compaction_has_rows(compaction))
		return;
	compaction->rows->row_count = 0;
	MemoryContextReset(compaction->values);
}
