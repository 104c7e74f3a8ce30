/*
 * deform.c
 *	  Tuples of a page to columns, a column at a time.
 *
 * A page is regular if every tuple of it has the same header shape, holds no
 * NULL and reaches to the last attribute needed.  Attributes before the first
 * varlena then sit at one offset in every tuple.  Behind a varlena one array
 * of positions advances for the whole page, an attribute at a time, which
 * breaks the chain of dependent loads that deforming by tuple suffers from.
 * Pages that are not regular are dealt with in deform_nulls.c.
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "utils/lsyscache.h"

#include "deform.h"
#include "tuple_header.h"

static uint8
alignment_bytes(char attalign)
{
	switch (attalign)
	{
		case TYPALIGN_CHAR:
			return 1;
		case TYPALIGN_SHORT:
			return ALIGNOF_SHORT;
		case TYPALIGN_INT:
			return ALIGNOF_INT;
		default:
			return ALIGNOF_DOUBLE;
	}
}

/* Work out the step of one attribute that lies at a fixed offset. */
static int
plan_fixed_step(AttributeStep *step, int offset)
{
	Assert(step->length > 0 && offset >= 0);
	step->is_fixed = true;
	offset = TYPEALIGN(step->alignment_bytes, offset);
	step->offset = offset;
	return offset + step->length;
}

/*
 * Decide how to reach each attribute up to the last one needed.  To be called
 * when all columns have been added.
 */
void
deform_plan(HeapBatch *batch)
{
	int			offset = 0;		/* from the data start, then from positions[] */
	int			aligned_bytes = 0;	/* known alignment of positions[]; 0: fixed */

	Assert(batch->steps == NULL);
	Assert(batch->base.last_attno <= batch->base.descriptor->natts);
	batch->steps = palloc0(sizeof(AttributeStep) * (batch->base.last_attno + 1));
	for (int i = 0; i < batch->base.last_attno; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(batch->base.descriptor, i);
		AttributeStep *step = &batch->steps[i];

		step->length = attribute->attlen;
		step->alignment_bytes = alignment_bytes(attribute->attalign);
		if (step->length == -1)
		{
			vector_allocate(&step->pointers);
			batch->varlena_count++;
			step->advance = offset;
			offset = 0;
			aligned_bytes = 1;
		}
		else if (step->length < 0)
		{
			batch->always_irregular = true;
			/* What is behind it is at another place in each tuple. */
			offset = 0;
			aligned_bytes = 1;
		}
		else if (aligned_bytes == 0)
			offset = plan_fixed_step(step, offset);
		else if (step->alignment_bytes <= aligned_bytes)
		{
			offset = TYPEALIGN(step->alignment_bytes, offset);
			step->offset = offset;
			offset += step->length;
		}
		else
		{
			step->realigns = true;
			step->advance = offset;
			step->offset = 0;
			aligned_bytes = step->alignment_bytes;
			offset = step->length;
		}
	}
	for (int i = 0; i < batch->base.column_count; i++)
		batch->steps[batch->base.columns[i].attno - 1].is_needed = true;
	presence_allocate(batch);
	runs_allocate(batch);
}

/* How many bytes a varlena column takes on average, as ANALYZE found it. */
static int
varlena_width(const HeapBatch *batch, Form_pg_attribute attribute)
{
	int			width = get_attavgwidth(batch->table_oid, attribute->attnum);

	return width > 0 ? width :
		get_typavgwidth(attribute->atttypid, attribute->atttypmod);
}

/* Bytes from a tuple's start to the end of the columns needed, at a guess. */
int
deform_prefetch_bytes(const HeapBatch *batch)
{
	int			bytes = MAXALIGN(SizeofHeapTupleHeader);
	int			needed_bytes = SizeofHeapTupleHeader;

	for (int i = 0; i < batch->base.last_attno; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(batch->base.descriptor, i);
		const AttributeStep *step = &batch->steps[i];

		if (step->length > 0)
			bytes = TYPEALIGN(step->alignment_bytes, bytes) + step->length;
		else
			bytes += varlena_width(batch, attribute);
		if (step->is_needed)
			needed_bytes = bytes;
	}
	return Min(needed_bytes, PREFETCH_BYTES_MAX);
}

/* Cache lines that prefetch_tuple asks for, at most. */
static inline int
tuple_lines(const HeapBatch *batch)
{
	return (batch->prefetch_bytes - HEADER_WORD_OFFSET) / CACHE_LINE_BYTES + 2;
}

/* Share of a page's lines from which on all are asked for. */
#define DENSE_SHARE	0.7

/*
 * Offer the next page for being prefetched, beside the work on this one.
 * Where about all of the page's lines are wanted, they are asked for in order,
 * which takes fewer instructions than asking for those of each tuple.
 */
void
deform_offer_prefetch(HeapBatch *batch, char **tuples, int tuple_count,
					  const char *data, int data_bytes)
{
	int			lines = (data_bytes + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES;

	Assert(tuple_count >= 0 && tuple_count <= BATCH_ROWS_MAX);
	Assert(data_bytes >= 0 && data_bytes <= BLCKSZ);
	batch->tuples_ahead = tuples;
	batch->data_ahead = NULL;
	batch->ahead_next = 0;
	batch->ahead_count = tuple_count;
	if (tuple_count * tuple_lines(batch) >= lines * DENSE_SHARE)
	{
		batch->data_ahead = data;
		batch->ahead_count = lines;
	}
}

/* Ask for what the work on this page left over, where it was less than usual. */
void
deform_prefetch_rest(HeapBatch *batch)
{
	prefetch_ahead(batch, batch->ahead_count);
}

/*
 * Is every tuple of the batch regular?  Looks once a batch, and finds out too
 * whether a tuple holds a value that is stored elsewhere.
 */
bool
deform_check_headers(HeapBatch *batch)
{
	const HeapTupleHeader first = (HeapTupleHeader) batch->tuples[0];
	const uint64 expected = header_word(batch->tuples[0]);
	uint64		seen = 0;
	uint64		difference = 0;
	int			prefetches;

	Assert(batch->base.row_count > 0 && batch->base.row_count <= BATCH_ROWS_MAX);
	if (batch->headers_generation == batch->base.generation)
		return batch->is_regular;
	batch->headers_generation = batch->base.generation;
	Assert(first->t_hoff >= SizeofHeapTupleHeader && first->t_hoff == MAXALIGN(first->t_hoff));
	batch->header_bytes = first->t_hoff;
	if (batch->always_irregular || batch->expects_nulls ||
		(first->t_infomask & HEAP_HASNULL) != 0 ||
		HeapTupleHeaderGetNatts(first) < batch->base.last_attno)
	{
		presence_read(batch);
		return batch->is_regular;
	}
	prefetches = prefetches_beside_headers(batch);
	for (int row = 0; row < batch->base.row_count;)
	{
		const int	end = Min(row + ROWS_A_PREFETCH, batch->base.row_count);

		for (; row < end; row++)
		{
			const uint64 word = header_word(batch->tuples[row]);

			seen |= word;
			difference |= word ^ expected;
		}
		prefetch_ahead(batch, prefetches);
	}
	batch->has_external = (seen & header_mask(0, HEAP_HASEXTERNAL, 0)) != 0;
	batch->is_regular = (difference & header_shape_mask()) == 0;
	if (!batch->is_regular)
		presence_read(batch);
	return batch->is_regular;
}

/*
 * Move positions[] behind consecutive varlenas, and note where their values
 * start.  Each loop handles a few columns: with one, positions[] is loaded and
 * stored the more often; with many, a row's loads wait for each other.
 * TPC-H Q6 took 14.6 ms with one, 15.4 with six, and 13.5 with three.
 */
static pg_attribute_always_inline void
step_over_fused(HeapBatch *batch, AttributeStep *steps, const int step_count,
				const bool stores, const bool any_external,
				const uint32 advance, const Selection *selection)
{
	char	  **from = batch->positions_from;
	char	  **positions = batch->positions;
	Datum	   *pointers[STEPS_FUSED_MAX];

	Assert(step_count >= 1 && step_count <= STEPS_FUSED_MAX);
	Assert(steps >= batch->steps && steps + step_count <= batch->steps + batch->base.last_attno);
	for (int i = 0; i < step_count; i++)
		pointers[i] = steps[i].pointers.values;
	FOR_SELECTED(row, selection,
				 char *value = from[row] + advance;
				 for (int i = 0; i < step_count; i++)
				 {
					 const uint8 header = *(const uint8 *) value;

					 if (unlikely(!VARATT_IS_1B(&header) ||
								  (any_external && VARATT_IS_1B_E(&header))))
					 {
						 value = skip_padding(value, steps[i].alignment_bytes);
						 if (stores)
							 pointers[i][row] = PointerGetDatum(value);
						 value += VARSIZE_ANY(value);
						 continue;
					 }
					 if (stores)
						 pointers[i][row] = PointerGetDatum(value);
					 value += short_length(header);
				 }
				 positions[row] = value);
	batch->positions_from = positions;
	batch->advance_from = 0;
	for (int i = 0; i < step_count; i++)
	{
		steps[i].pointers.has_nulls = false;
		steps[i].pointers.generation = batch->base.generation;
	}
}

static void
step_over_and_store(HeapBatch *batch, AttributeStep *steps, int step_count,
					uint32 advance, const Selection *selection)
{
	switch (step_count)
	{
		case 1:
			step_over_fused(batch, steps, 1, true, false, advance, selection);
			break;
		case 2:
			step_over_fused(batch, steps, 2, true, false, advance, selection);
			break;
		default:
			step_over_fused(batch, steps, STEPS_FUSED_MAX, true, false, advance, selection);
			break;
	}
}

static void
step_over_only(HeapBatch *batch, AttributeStep *steps, int step_count,
			   uint32 advance, const Selection *selection)
{
	switch (step_count)
	{
		case 1:
			step_over_fused(batch, steps, 1, false, false, advance, selection);
			break;
		case 2:
			step_over_fused(batch, steps, 2, false, false, advance, selection);
			break;
		default:
			step_over_fused(batch, steps, STEPS_FUSED_MAX, false, false, advance, selection);
			break;
	}
}

/*
 * Step over the varlenas at the given step, the first of which is this far
 * behind positions_from; returns how many they were.
 */
int
step_over_varlenas(HeapBatch *batch, AttributeStep *steps, int steps_max,
				   uint32 advance, const Selection *selection)
{
	bool		is_needed = steps[0].is_needed;
	int			count = 1;
	Assert(steps_max >= 1 && steps[0].length == -1);

	for (; count < Min(steps_max, STEPS_FUSED_MAX) && steps[count].length == -1; count++)
		is_needed |= steps[count].is_needed;
	Assert(count <= steps_max);
	prefetch_ahead(batch, prefetch_share(batch));
	if (batch->has_external)
	{
		step_over_fused(batch, steps, 1, true, true, advance, selection);
		return 1;
	}
	if (is_needed)
		step_over_and_store(batch, steps, count, advance, selection);
	else
		step_over_only(batch, steps, count, advance, selection);
	return count;
}

/* Gather every column of a fixed-width attribute that lies at positions[]. */
static void
gather_attribute(HeapBatch *batch, AttrNumber attno, int offset,
				 const Selection *selection)
{
	for (int i = 0; i < batch->base.column_count; i++)
	{
		BatchColumn *column = &batch->base.columns[i];

		if (column->attno != attno)
			continue;
		prefetch_ahead(batch, prefetch_share(batch));
		if (column->kind != VALUE_OPAQUE)
			gather_values(column, batch->positions, offset, selection);
		column->vector.has_nulls = false;
		column->vector.generation = batch->base.generation;
	}
}

/*
 * Move positions[] to an aligned address.  Tuples start at addresses of the
 * largest alignment, so that of a pointer is that of its offset.
 */
static void
realign_positions(HeapBatch *batch, const AttributeStep *step,
				  const Selection *selection)
{
	char	  **from = batch->positions_from;
	char	  **positions = batch->positions;
	const uint32 advance = batch->advance_from + step->advance;
	const uint32 alignment = step->alignment_bytes;

	Assert(alignment == ALIGNOF_SHORT || alignment == ALIGNOF_INT || alignment == ALIGNOF_DOUBLE);
	FOR_SELECTED(row, selection,
				 positions[row] = (char *) TYPEALIGN(alignment, from[row] + advance));
	batch->positions_from = positions;
	batch->advance_from = 0;
}

/* Advance positions[] until the attribute attno has been passed or gathered. */
static void
advance_to_attribute(HeapBatch *batch, AttrNumber attno,
					 const Selection *selection)
{
	if (batch->steps_generation != batch->base.generation)
	{
		batch->steps_generation = batch->base.generation;
		batch->steps_done = 0;
		batch->positions_from = batch->tuples;
		batch->advance_from = batch->header_bytes;
	}
	Assert(attno >= 1 && attno <= batch->base.last_attno);
	Assert(batch->is_regular);
	while (batch->steps_done < attno)
	{
		AttributeStep *step = &batch->steps[batch->steps_done];
		Assert(step->length > 0 || step->length == -1);

		if (step->length == -1)
		{
			batch->steps_done += step_over_varlenas(batch, step,
													attno - batch->steps_done,
													batch->advance_from + step->advance,
													selection);
			continue;
		}
		batch->steps_done++;
		if (!step->is_fixed)
		{
			if (step->realigns)
				realign_positions(batch, step, selection);
			if (step->is_needed)
				gather_attribute(batch, batch->steps_done, step->offset,
								 selection);
		}
	}
}

/* Turn the start pointers of a varlena attribute into a column. */
static void
column_from_pointers(HeapBatch *batch, BatchColumn *column,
					 const AttributeStep *step, const Selection *selection)
{
	const Datum *pointers = step->pointers.values;
	Datum	   *values = column->vector.values;

	Assert(step->pointers.generation == batch->base.generation);
	Assert(step->length == -1);
	column->vector.generation = batch->base.generation;
	column->vector.usable = true;
	if (column->kind == VALUE_NUMERIC)
		numeric_vector_decode(&column->vector, &step->pointers, selection);
	else
	{
		column->vector.has_nulls = step->pointers.has_nulls;
		FOR_SELECTED(row, selection, values[row] = pointers[row]);
		if (column->vector.has_nulls)
			FOR_SELECTED(row, selection,
						 column->vector.nulls[row] = step->pointers.nulls[row]);
	}
}

/* Fill a column for the selected rows, on regular and irregular pages. */
void
deform_column(TupleBatch *base, BatchColumn *column, const Selection *selection)
{
	HeapBatch  *batch = (HeapBatch *) base;
	AttributeStep *step = &batch->steps[column->attno - 1];
	Assert(column->attno >= 1 && column->attno <= base->last_attno);
	Assert(selection_is_valid(selection, base->row_count));
	Assert(step->is_needed);

	if (!deform_check_headers(batch))
		deform_present_column(batch, column, selection);
	else if (step->is_fixed && step->length > 0)
	{
		column->vector.generation = batch->base.generation;
		column->vector.has_nulls = false;
		prefetch_ahead(batch, prefetch_share(batch));
		if (column->kind != VALUE_OPAQUE)
			gather_values(column, batch->tuples,
						  batch->header_bytes + step->offset, selection);
		return;
	}
	else
		advance_to_attribute(batch, column->attno, selection);
	if (step->length == -1)
		column_from_pointers(batch, column, step, selection);
}
