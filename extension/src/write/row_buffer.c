/*
 * row_buffer.c
 *	  Rows of a heap table that wait to be written together.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "row_buffer.h"

void
row_buffer_begin(RowBuffer *buffer, Relation relation)
{
	Assert(buffer->relation == NULL);
	Assert(relation->rd_tableam == GetHeapamTableAmRoutine());
	buffer->relation = relation;
	buffer->memory = CurrentMemoryContext;
	buffer->scratch = AllocSetContextCreate(CurrentMemoryContext, "BatchInsert", ALLOCSET_DEFAULT_SIZES);
}

void
row_buffer_keep(RowBuffer *buffer, TupleTableSlot *row)
{
	TupleTableSlot **kept = &buffer->slots[buffer->row_count];

	Assert(!row_buffer_is_full(buffer));
	if (*kept == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(buffer->memory);

		*kept = MakeSingleTupleTableSlot(RelationGetDescr(buffer->relation),
										 table_slot_callbacks(buffer->relation));
		MemoryContextSwitchTo(caller);
	}
	ExecCopySlot(*kept, row);
	/* The copy must not depend on the row's page, nor pin it. */
	ExecMaterializeSlot(*kept);
	Assert(TTS_SHOULDFREE(*kept));
	buffer->row_bytes += ((HeapTupleTableSlot *) *kept)->tuple->t_len;
	buffer->row_count++;
	Assert(buffer->row_count <= INSERT_BATCH_ROWS_MAX);
}

void
row_buffer_write(RowBuffer *buffer, CommandId command, int options, struct BulkInsertStateData *bulk)
{
	MemoryContext caller = MemoryContextSwitchTo(buffer->scratch);

	Assert(buffer->row_count > 0);
	table_multi_insert(buffer->relation, buffer->slots, buffer->row_count, command, options, bulk);
	MemoryContextSwitchTo(caller);
	buffer->rows_written += buffer->row_count;
	buffer->batches_written++;
}

void
row_buffer_forget(RowBuffer *buffer)
{
	for (int i = 0; i < buffer->row_count; i++)
		ExecClearTuple(buffer->slots[i]);
	MemoryContextReset(buffer->scratch);
	buffer->row_count = 0;
	buffer->row_bytes = 0;
}

void
row_buffer_end(RowBuffer *buffer)
{
	for (int i = 0; i < INSERT_BATCH_ROWS_MAX && buffer->slots[i] != NULL; i++)
		ExecDropSingleTupleTableSlot(buffer->slots[i]);
	Assert(buffer->relation != NULL);
	MemoryContextDelete(buffer->scratch);
}
