/*
 * deform_nulls.c
 *	  Tuples of an irregular page to columns: some hold a NULL, or fewer
 *	  attributes than others.
 *
 * A word of bits says for each row which attributes its tuple holds.  As on a
 * regular page, one array of positions advances an attribute at a time; where
 * some tuples hold no value of it, theirs stay where they are.  Attributes of
 * which all tuples hold a value, or none, cost no more than on a regular page.
 * The first few attributes, up to a varlena, need no steps: where each of them is
 * follows from the first byte of bits, and is looked up.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "port/pg_bitutils.h"
#include "port/pg_bswap.h"

#include "deform.h"
#include "expr.h"
#include "tuple_header.h"

#define WORD_ATTRIBUTES		64
#define BYTE_ATTRIBUTES		8

/* What a NULL is loaded from: the end of the tuple's header, if only to be masked out. */
#define OFFSET_OF_NULL		(-(int) sizeof(int64))

/* Attributes that take more are not placed by a table. */
#define PLACED_BYTES_MAX	4096

/* Rows that are read between two requests for some of the next page. */
#define ROWS_A_PREFETCH		4

/* A short varlena of no bytes, in the place of a NULL. */
#ifdef WORDS_BIGENDIAN
static char empty_varlena[] = {(char) 0x81};
#else
static char empty_varlena[] = {0x03};
#endif

static int
word_count(const HeapBatch *batch)
{
	return (batch->base.last_attno + WORD_ATTRIBUTES - 1) / WORD_ATTRIBUTES;
}

/* The largest alignment that an address at this offset from an aligned one has. */
static uint32
alignment_at(uint32 alignment, uint32 offset)
{
	return offset == 0 ? alignment : Min(alignment, offset & -offset);
}

/* Bytes from the start of a tuple's data to an attribute, or behind the last one. */
static uint32
placed_offset(const HeapBatch *batch, int attribute, int bits)
{
	uint32		offset = 0;

	for (int i = 0; i < attribute; i++)
		if ((bits >> i) & 1)
			offset = TYPEALIGN(batch->steps[i].alignment_bytes, offset) +
				batch->steps[i].length;
	return attribute == batch->placed_count ? offset :
		TYPEALIGN(batch->steps[attribute].alignment_bytes, offset);
}

/* Where are the first attributes, for each value of the first byte of bits? */
static void
plan_placed(HeapBatch *batch)
{
	uint32		bytes = 0;
	int			count = 0;

	batch->placed_alignment = MAXIMUM_ALIGNOF;
	for (; count < Min(batch->base.last_attno, PLACED_ATTRIBUTES_MAX); count++)
	{
		const AttributeStep *step = &batch->steps[count];

		if (step->length <= 0)
			break;
		bytes = TYPEALIGN(MAXIMUM_ALIGNOF, bytes + step->length);
		if (bytes > PLACED_BYTES_MAX)
			break;
		batch->placed_alignment = Min(batch->placed_alignment,
									  alignment_at(step->alignment_bytes, step->length));
	}
	batch->placed_count = count;
	for (int i = 0; i <= count; i++)
	{
		batch->offsets[i] = NULL;
		if (i < count && !batch->steps[i].is_needed)
			continue;
		batch->offsets[i] = palloc(sizeof(int16) * (1 << BYTE_ATTRIBUTES));
		for (int bits = 0; bits < 1 << BYTE_ATTRIBUTES; bits++)
			batch->offsets[i][bits] = i < count && ((bits >> i) & 1) == 0 ?
				OFFSET_OF_NULL : (int16) placed_offset(batch, i, bits);
	}
}

/* Make room for what is read of irregular pages. */
void
presence_allocate(HeapBatch *batch)
{
	int			words = word_count(batch);

	batch->presence = palloc(sizeof(uint64 *) * (words + 1));
	for (int i = 0; i < words; i++)
		batch->presence[i] = palloc(sizeof(uint64) * BATCH_ROWS_MAX);
	batch->any_missing = palloc(sizeof(uint64) * (words + 1));
	batch->all_missing = palloc(sizeof(uint64) * (words + 1));
	batch->data_starts = palloc(sizeof(char *) * BATCH_ROWS_MAX);
	batch->first_bits = palloc(BATCH_ROWS_MAX);
	plan_placed(batch);
}

/*
 * The bits of up to 64 attributes.  A bitmap of more than a byte is followed by
 * padding up to t_hoff or by another byte of it, so that eight can be read.
 */
static inline uint64
presence_word(HeapTupleHeader tuple, int word)
{
	int			attributes = HeapTupleHeaderGetNatts(tuple) - word * WORD_ATTRIBUTES;
	const bits8 *bytes = tuple->t_bits + word * sizeof(uint64);
	uint64		bits = PG_UINT64_MAX;

	if (attributes <= 0)
		return 0;
	if ((tuple->t_infomask & HEAP_HASNULL) != 0)
	{
		if (attributes <= BYTE_ATTRIBUTES)
			bits = *bytes;
		else
		{
			memcpy(&bits, bytes, sizeof(bits));
#ifdef WORDS_BIGENDIAN
			bits = pg_bswap64(bits);
#endif
		}
	}
	if (attributes < WORD_ATTRIBUTES)
		bits &= (UINT64CONST(1) << attributes) - 1;
	return bits;
}

/* Attributes before the first one that some tuple does not hold. */
static AttrNumber
attributes_held(const HeapBatch *batch)
{
	for (int word = 0; word < word_count(batch); word++)
		if (batch->any_missing[word] != 0)
			return Min(batch->base.last_attno, word * WORD_ATTRIBUTES +
					   pg_rightmost_one_pos64(batch->any_missing[word]));
	return batch->base.last_attno;
}

/*
 * As presence_word, of tuples that all have more than these attributes: without
 * a branch.  A tuple without a bitmap has a byte or more for each attribute, so
 * that as much can be read of it.
 */
static inline uint64
presence_word_uniform(HeapTupleHeader tuple, int word, bool is_byte)
{
	const bits8 *bytes = tuple->t_bits + word * sizeof(uint64);
	const uint64 has_nulls = -(uint64) (tuple->t_infomask & HEAP_HASNULL);
	uint64		bits;

	StaticAssertStmt(HEAP_HASNULL == 1, "the flag is the lowest bit");
	if (is_byte)
		bits = *bytes;
	else
	{
		memcpy(&bits, bytes, sizeof(bits));
#ifdef WORDS_BIGENDIAN
		bits = pg_bswap64(bits);
#endif
	}
	return bits | ~has_nulls;
}

#define READ_WORDS(word_of_tuple_) \
	for (int row = 0; row < batch->base.row_count; row++) \
	{ \
		HeapTupleHeader tuple = (HeapTupleHeader) batch->tuples[row]; \
		presence[row] = (word_of_tuple_); \
		any |= ~presence[row]; \
		all &= ~presence[row]; \
	}

/* Read one word of each tuple; uniform_attributes: of all of them, or 0. */
static void
presence_read_word(HeapBatch *batch, int word, int uniform_attributes)
{
	uint64	   *presence = batch->presence[word];
	uint64		any = 0;
	uint64		all = PG_UINT64_MAX;

	if (uniform_attributes < batch->base.last_attno)
		READ_WORDS(presence_word(tuple, word))
	else if (uniform_attributes - word * WORD_ATTRIBUTES <= BYTE_ATTRIBUTES)
		READ_WORDS(presence_word_uniform(tuple, word, true))
	else
		READ_WORDS(presence_word_uniform(tuple, word, false))
	batch->any_missing[word] = any;
	batch->all_missing[word] = all;
}

/* Ask for as much more of tuples as their bitmaps take. */
static void
prefetch_bitmaps(HeapBatch *batch, int attributes)
{
	if (batch->prefetches_bitmaps)
		return;
	batch->prefetches_bitmaps = true;
	batch->prefetch_bytes += MAXALIGN(SizeofHeapTupleHeader + BITMAPLEN(attributes)) -
		MAXALIGN(SizeofHeapTupleHeader);
}

/*
 * Read a page's headers and its only word of bits in one go, if all tuples have
 * these attributes; false if they have not.
 */
static inline bool
presence_read_at_once(HeapBatch *batch, int attributes, int prefetches, bool is_byte)
{
	/* Copies: the compiler would load these anew after each store. */
	const int	row_count = batch->base.row_count;
	char	  **tuples = batch->tuples;
	char	  **starts = batch->data_starts;
	uint64	   *presence = batch->presence[0];
	uint8	   *first_bits = batch->first_bits;
	uint64		any = 0;
	uint64		all = PG_UINT64_MAX;
	uint16		flags = 0;

	for (int row = 0; row < row_count;)
	{
		const int	end = Min(row + ROWS_A_PREFETCH, row_count);

		for (; row < end; row++)
		{
			HeapTupleHeader tuple = (HeapTupleHeader) tuples[row];
			uint64		bits;

			if (unlikely(HeapTupleHeaderGetNatts(tuple) != attributes))
				return false;
			bits = presence_word_uniform(tuple, 0, is_byte);
			starts[row] = (char *) tuple + tuple->t_hoff;
			presence[row] = bits;
			first_bits[row] = (uint8) bits;
			any |= ~bits;
			all &= ~bits;
			flags |= tuple->t_infomask;
		}
		prefetch_ahead(batch, prefetches * ROWS_A_PREFETCH);
	}
	batch->any_missing[0] = any;
	batch->all_missing[0] = all;
	batch->has_external = (flags & HEAP_HASEXTERNAL) != 0;
	batch->has_short_tuples = false;
	prefetch_bitmaps(batch, attributes);
	return true;
}

/* As presence_read_at_once, of tuples of any number of attributes. */
static void
presence_read_by_word(HeapBatch *batch, int attributes, int prefetches)
{
	int			attributes_least = attributes;
	int			attributes_most = attributes;
	uint16		flags = 0;

	for (int row = 0; row < batch->base.row_count; row++)
	{
		HeapTupleHeader tuple = (HeapTupleHeader) batch->tuples[row];
		const int	held = HeapTupleHeaderGetNatts(tuple);

		batch->data_starts[row] = (char *) tuple + tuple->t_hoff;
		flags |= tuple->t_infomask;
		attributes_least = Min(attributes_least, held);
		attributes_most = Max(attributes_most, held);
		prefetch_ahead(batch, prefetches);
	}
	batch->has_external = (flags & HEAP_HASEXTERNAL) != 0;
	batch->has_short_tuples = attributes_least < batch->base.last_attno;
	for (int word = 0; word < word_count(batch); word++)
		presence_read_word(batch, word,
						   attributes_least == attributes_most ? attributes : 0);
	if (batch->base.last_attno > 0)
		for (int row = 0; row < batch->base.row_count; row++)
			batch->first_bits[row] = (uint8) batch->presence[0][row];
	prefetch_bitmaps(batch, attributes_most);
}

/* Read which attributes each tuple of the batch holds. */
void
presence_read(HeapBatch *batch)
{
	const int	prefetches = batch->ahead_count / batch->base.row_count + 1;
	const int	attributes = HeapTupleHeaderGetNatts((HeapTupleHeader) batch->tuples[0]);
	bool		is_read = false;

	if (attributes >= batch->base.last_attno && word_count(batch) == 1)
		is_read = Min(attributes, batch->base.last_attno) <= BYTE_ATTRIBUTES ?
			presence_read_at_once(batch, attributes, prefetches, true) :
			presence_read_at_once(batch, attributes, prefetches, false);
	if (!is_read)
		presence_read_by_word(batch, attributes, prefetches);
	batch->first_missing = attributes_held(batch);
	batch->steps_generation = batch->base.generation;
	batch->steps_done = 0;
	batch->positions_from = batch->data_starts;
	batch->advance_from = 0;
	batch->alignment_from = MAXIMUM_ALIGNOF;
}

static Presence
presence_of(const HeapBatch *batch, int attribute)
{
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

/* The values of a fixed-width attribute at an offset from these addresses. */
static void
gather_column(HeapBatch *batch, BatchColumn *column, char **starts, int offset,
			  const Selection *selection)
{
	const int	attribute = column->attno - 1;
	Vector	   *vector = &column->vector;

	vector->generation = batch->base.generation;
	vector->has_nulls = bit_is_set(batch->any_missing, attribute);
	vector->nulls_are_zero = true;
	if (vector->has_nulls)
	{
		gather_present(column, starts, offset,
					   batch->steps[attribute].alignment_bytes,
					   presence_of(batch, attribute), selection);
		fill_from_default(batch, attribute,
						  column->kind == VALUE_OPAQUE ? InvalidOid : column->type,
						  vector, selection);
	}
	else if (column->kind != VALUE_OPAQUE)
		gather_values(column, starts, offset, selection);
}

static void
gather_columns(HeapBatch *batch, int attribute, char **starts, int offset,
			   const Selection *selection)
{
	for (int i = 0; i < batch->base.column_count; i++)
		if (batch->base.columns[i].attno == attribute + 1)
			gather_column(batch, &batch->base.columns[i], starts, offset, selection);
}

/* Is the attribute at one offset from the start of the data in all tuples? */
static bool
is_at_fixed_offset(const HeapBatch *batch, int attribute)
{
	const AttributeStep *step = &batch->steps[attribute];

	return step->is_fixed && step->length > 0 && attribute <= batch->first_missing;
}

/* Step over a fixed-width attribute that all tuples hold. */
static void
pass_fixed(HeapBatch *batch, int attribute, const Selection *selection)
{
	const AttributeStep *step = &batch->steps[attribute];
	const uint32 alignment = step->alignment_bytes;
	uint32		offset = TYPEALIGN(alignment, batch->advance_from);

	if (alignment > batch->alignment_from)
	{
		char	  **from = batch->positions_from;
		char	  **positions = batch->positions;
		const uint32 advance = batch->advance_from;

		FOR_SELECTED(row, selection,
					 positions[row] = (char *) TYPEALIGN(alignment, from[row] + advance));
		batch->positions_from = positions;
		batch->alignment_from = alignment;
		offset = 0;
	}
	if (step->is_needed && !is_at_fixed_offset(batch, attribute))
		gather_columns(batch, attribute, batch->positions_from, offset, selection);
	batch->advance_from = offset + step->length;
}

/* Step over a fixed-width attribute that some tuples do not hold. */
static void
pass_fixed_present(HeapBatch *batch, int attribute, const Selection *selection)
{
	const AttributeStep *step = &batch->steps[attribute];
	const Presence presence = presence_of(batch, attribute);
	char	  **from = batch->positions_from;
	char	  **positions = batch->positions;
	const uint32 advance = batch->advance_from;
	const uint32 alignment = step->alignment_bytes;
	const uint32 alignment_before = alignment_at(batch->alignment_from, advance);
	const uint32 length = step->length;

	if (step->is_needed && !is_at_fixed_offset(batch, attribute))
		gather_columns(batch, attribute, from, advance, selection);
	FOR_SELECTED(row, selection,
				 char *before = from[row] + advance;
				 char *behind = (char *) TYPEALIGN(alignment, before) + length;
				 positions[row] = before +
				 ((uintptr_t) (behind - before) & (uintptr_t) PRESENT_MASK(presence, row)));
	batch->positions_from = positions;
	batch->advance_from = 0;
	batch->alignment_from = Min(alignment_before,
								alignment_at(Max(alignment, alignment_before), length));
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

	gather_columns(batch, attribute, from, advance, selection);
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

	if (!step->is_needed || is_at_fixed_offset(batch, attribute))
		return;
	if (step->length != -1)
	{
		gather_columns(batch, attribute, batch->positions_from, 0, selection);
		return;
	}
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

	while (attribute + count < attno && batch->steps[attribute + count].length == -1 &&
		   !bit_is_set(batch->any_missing, attribute + count))
		count++;
	return count;
}

/* Step over an attribute, or several varlenas in a row. */
static void
pass_attribute(HeapBatch *batch, AttrNumber attno, const Selection *selection)
{
	const int	attribute = batch->steps_done;
	const int	length = batch->steps[attribute].length;
	const bool	is_held = !bit_is_set(batch->any_missing, attribute);

	batch->steps_done++;
	if (bit_is_set(batch->all_missing, attribute))
		pass_missing(batch, attribute, selection);
	else if (length == -1 && is_held)
	{
		batch->steps_done = attribute +
			step_over_varlenas(batch, &batch->steps[attribute],
							   varlenas_held(batch, attribute, attno),
							   batch->advance_from, selection);
		batch->alignment_from = 1;
	}
	else if (length == -1)
		pass_varlena_present(batch, attribute, selection);
	else if (length < 0)
		pass_string(batch, attribute, selection);
	else if (is_held)
		pass_fixed(batch, attribute, selection);
	else
		pass_fixed_present(batch, attribute, selection);
}

/* Fill a column of one of the attributes that are placed by a table. */
static void
gather_placed_column(HeapBatch *batch, BatchColumn *column, const Selection *selection)
{
	const int	attribute = column->attno - 1;
	Vector	   *vector = &column->vector;

	vector->generation = batch->base.generation;
	vector->has_nulls = bit_is_set(batch->any_missing, attribute);
	vector->nulls_are_zero = true;
	gather_placed(column, batch->data_starts, batch->offsets[attribute],
				  batch->first_bits, attribute, selection);
	if (vector->has_nulls)
		fill_from_default(batch, attribute,
						  column->kind == VALUE_OPAQUE ? InvalidOid : column->type,
						  vector, selection);
}

/* Begin the steps behind the attributes that are placed by a table. */
static void
pass_placed(HeapBatch *batch, const Selection *selection)
{
	const int16 *offsets = batch->offsets[batch->placed_count];
	const uint8 *bits = batch->first_bits;
	char	  **starts = batch->data_starts;
	char	  **positions = batch->positions;

	batch->steps_done = batch->placed_count;
	if (batch->first_missing >= batch->placed_count)
	{
		batch->advance_from = offsets[(1 << BYTE_ATTRIBUTES) - 1];
		return;
	}
	FOR_SELECTED(row, selection,
				 positions[row] = starts[row] + offsets[bits[row]]);
	batch->positions_from = positions;
	batch->alignment_from = batch->placed_alignment;
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

	if (is_at_fixed_offset(batch, attribute))
		gather_column(batch, column, batch->data_starts,
					  batch->steps[attribute].offset, selection);
	else if (attribute < batch->placed_count)
		gather_placed_column(batch, column, selection);
	else
	{
		if (batch->steps_done < batch->placed_count)
			pass_placed(batch, selection);
		while (batch->steps_done < column->attno)
			pass_attribute(batch, column->attno, selection);
	}
}
