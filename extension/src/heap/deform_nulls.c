/*
 * deform_nulls.c
 *	  Tuples of an irregular page to columns: some hold a NULL, or fewer
 *	  attributes than others.
 *
 * A word of bits says for each row which attributes its tuple holds.  As on a
 * regular page, one array of positions advances, by a varlena or by a run of
 * fixed-width attributes at a time; where some tuples hold no value, theirs stay
 * where they are.  Varlenas and runs that all tuples hold cost no more than on a
 * regular page.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"

#include "deform.h"
#include "expr.h"
#include "tuple_header.h"

/* A short varlena of no bytes, in the place of a NULL. */
#ifdef WORDS_BIGENDIAN
static char empty_varlena[] = {(char) 0x81};
#else
static char empty_varlena[] = {0x03};
#endif

static Presence
presence_of(const HeapBatch *batch, int attribute)
{
	Assert(attribute >= 0 && attribute < batch->base.last_attno);
	return (Presence) {
		.words = batch->presence[attribute / WORD_ATTRIBUTES],
		.bit = attribute % WORD_ATTRIBUTES,
	};
}

static bool
bit_is_set(const uint64 *words, int attribute)
{
	return (words[attribute / WORD_ATTRIBUTES] >> (attribute % WORD_ATTRIBUTES)) & 1;
}

/*
 * Tuples from before ADD COLUMN hold no value of the attribute; where it has a
 * default of that time, this is their value.
 */
static void
fill_from_default(const HeapBatch *batch, int attribute, Oid type, Vector *vector,
				  const Selection *selection)
{
	bool		is_null;
	Datum		value;

	if (!batch->has_short_tuples)
		return;
	value = getmissingattr(batch->base.descriptor, attribute + 1, &is_null);
	if (is_null)
		return;
	if (OidIsValid(type))
		value = vector_word_from_datum(type, value);
	vector->has_nulls = false;
	FOR_SELECTED(row, selection,
				 HeapTupleHeader tuple = (HeapTupleHeader) batch->tuples[row];
				 if (HeapTupleHeaderGetNatts(tuple) <= attribute)
				 {
					 vector->values[row] = value;
					 vector->nulls[row] = false;
				 }
				 vector->has_nulls |= vector->nulls[row]);
}

/* Note which rows of a column are NULL; its values are not read. */
static void
fill_nulls(HeapBatch *batch, BatchColumn *column, const Selection *selection)
{
	const int	attribute = column->attno - 1;
	Vector	   *vector = &column->vector;

	vector->generation = batch->base.generation;
	vector->has_nulls = bit_is_set(batch->any_missing, attribute);
	vector->nulls_are_zero = false;
	if (vector->has_nulls)
	{
		gather_nulls(vector, presence_of(batch, attribute), selection);
		fill_from_default(batch, attribute, InvalidOid, vector, selection);
	}
}

/* Step over a varlena that some tuples do not hold, and note where it starts. */
static void
pass_varlena_present(HeapBatch *batch, int attribute, const Selection *selection)
{
	AttributeStep *step = &batch->steps[attribute];
	const Presence presence = presence_of(batch, attribute);
	char	  **from = batch->positions_from;
	char	  **positions = batch->positions;
	const uint32 advance = batch->advance_from;
	Datum	   *pointers = step->pointers.values;
	bool	   *nulls = step->pointers.nulls;

	Assert(step->length == -1 && pointers != NULL);
	prefetch_ahead(batch, prefetch_share(batch));
	FOR_SELECTED(row, selection,
				 char *before = from[row] + advance;
				 const bool is_null = PRESENT_MASK(presence, row) == 0;
				 char *value = is_null ? empty_varlena : before;
				 const uint8 header = *(const uint8 *) value;
				 Size bytes = short_length(header);
				 if (unlikely(!VARATT_IS_1B(&header) || VARATT_IS_1B_E(&header)))
				 {
					 value = skip_padding(value, step->alignment_bytes);
					 bytes = VARSIZE_ANY(value);
				 }
				 pointers[row] = PointerGetDatum(value);
				 nulls[row] = is_null;
				 positions[row] = is_null ? before : value + bytes);
	batch->positions_from = positions;
	batch->advance_from = 0;
	batch->alignment_from = 1;
	step->pointers.has_nulls = true;
	step->pointers.generation = batch->base.generation;
	fill_from_default(batch, attribute, InvalidOid, &step->pointers, selection);
}

static void
pass_string(HeapBatch *batch, int attribute, const Selection *selection)
{
	const Presence presence = presence_of(batch, attribute);
	char	  **from = batch->positions_from;
	char	  **positions = batch->positions;
	const uint32 advance = batch->advance_from;

	Assert(batch->steps[attribute].length == -2);
	FOR_SELECTED(row, selection,
				 char *value = from[row] + advance;
				 positions[row] = PRESENT_MASK(presence, row) == 0 ? value :
				 value + strlen(value) + 1);
	batch->positions_from = positions;
	batch->advance_from = 0;
	batch->alignment_from = 1;
}

/* Step over an attribute that no tuple holds. */
static void
pass_missing(HeapBatch *batch, int attribute, const Selection *selection)
{
	AttributeStep *step = &batch->steps[attribute];

	if (!step->is_needed || step->length != -1)
		return;
	FOR_SELECTED(row, selection,
				 step->pointers.values[row] = PointerGetDatum(empty_varlena);
				 step->pointers.nulls[row] = true);
	step->pointers.has_nulls = true;
	step->pointers.generation = batch->base.generation;
	fill_from_default(batch, attribute, InvalidOid, &step->pointers, selection);
}

/* How many varlenas from this attribute on, up to attno, do all tuples hold? */
static int
varlenas_held(const HeapBatch *batch, int attribute, AttrNumber attno)
{
	int			count = 1;

	Assert(batch->steps[attribute].length == -1 && attribute < attno);
	while (attribute + count < attno && batch->steps[attribute + count].length == -1 &&
		   !bit_is_set(batch->any_missing, attribute + count))
		count++;
	return count;
}

/* Step over an attribute, several varlenas in a row, or a run. */
static void
pass_attribute(HeapBatch *batch, AttrNumber attno, const Selection *selection)
{
	const int	attribute = batch->steps_done;
	const AttributeStep *step = &batch->steps[attribute];

	if (step->run != NULL)
	{
		Assert(step->run->first == attribute && step->run->count > 0);
		run_pass(batch, step->run, selection);
		batch->steps_done += step->run->count;
		return;
	}
	batch->steps_done++;
	if (bit_is_set(batch->all_missing, attribute))
		pass_missing(batch, attribute, selection);
	else if (step->length != -1)
		pass_string(batch, attribute, selection);
	else if (bit_is_set(batch->any_missing, attribute))
		pass_varlena_present(batch, attribute, selection);
	else
	{
		batch->steps_done = attribute +
			step_over_varlenas(batch, &batch->steps[attribute],
							   varlenas_held(batch, attribute, attno),
							   batch->advance_from, selection);
		batch->alignment_from = 1;
	}
}

/* Fill a column of one of a run's attributes. */
static void
gather_run_column(HeapBatch *batch, BatchColumn *column, const PlacedRun *run,
				  const Selection *selection)
{
	const int	attribute = column->attno - 1;
	Vector	   *vector = &column->vector;

	Assert(attribute >= run->first && attribute < run->first + run->count);
	Assert(run->generation == batch->base.generation);
	vector->generation = batch->base.generation;
	vector->has_nulls = bit_is_set(batch->any_missing, attribute);
	vector->nulls_are_zero = true;
	prefetch_ahead(batch, prefetch_share(batch));
	if (!run->is_held)
		gather_placed(column, run, attribute, selection);
	else if (column->kind != VALUE_OPAQUE)
		gather_values(column, run->starts,
					  run->offset + run->offsets[attribute - run->first][PLACES - 1],
					  selection);
	if (vector->has_nulls)
		fill_from_default(batch, attribute,
						  column->kind == VALUE_OPAQUE ? InvalidOid : column->type,
						  vector, selection);
}

/* Fill a column that is at one offset from the start of the data in all tuples. */
static void
gather_fixed_column(HeapBatch *batch, BatchColumn *column, const Selection *selection)
{
	Assert(batch->steps[column->attno - 1].is_fixed);
	column->vector.generation = batch->base.generation;
	column->vector.has_nulls = false;
	if (column->kind != VALUE_OPAQUE)
		gather_values(column, batch->data_starts,
					  batch->steps[column->attno - 1].offset, selection);
}

/*
 * Fill a fixed-width column of an irregular page, or note where the values of
 * a varlena one start.
 */
void
deform_present_column(HeapBatch *batch, BatchColumn *column,
					  const Selection *selection)
{
	const int	attribute = column->attno - 1;
	const AttributeStep *step = &batch->steps[attribute];
	const AttrNumber passed = step->run != NULL ? step->run->first : column->attno;

	Assert(!batch->is_regular && batch->runs_are_planned);
	Assert(attribute >= 0 && attribute < batch->base.last_attno);
	if (step->run != NULL && step->is_fixed && attribute < batch->first_missing)
	{
		gather_fixed_column(batch, column, selection);
		return;
	}
	while (batch->steps_done < passed)
		pass_attribute(batch, passed, selection);
	Assert(step->run == NULL || batch->steps_done <= step->run->first || step->run->generation == batch->base.generation);
	if (step->run != NULL)
	{
		run_enter(batch, step->run, selection);
		gather_run_column(batch, column, step->run, selection);
	}
	else if (step->length != -1)
		fill_nulls(batch, column, selection);
}
