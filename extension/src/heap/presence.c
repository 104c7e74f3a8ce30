/*
 * presence.c
 *	  Which attributes the tuples of an irregular page hold.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "port/pg_bitutils.h"
#include "port/pg_bswap.h"

#include "deform.h"
#include "tuple_header.h"

/* Attributes of a bitmap of one byte. */
#define BYTE_ATTRIBUTES		8

/* Make room for what is read of irregular pages. */
void
presence_allocate(HeapBatch *batch)
{
	const int	words = word_count(batch);

	batch->presence = palloc(sizeof(uint64 *) * (words + 1));
	for (int i = 0; i < words; i++)
		batch->presence[i] = palloc(sizeof(uint64) * BATCH_ROWS_MAX);
	batch->any_missing = palloc(sizeof(uint64) * (words + 1));
	batch->all_missing = palloc(sizeof(uint64) * (words + 1));
	batch->data_starts = palloc(sizeof(char *) * BATCH_ROWS_MAX);
	batch->first_bits = palloc0(BATCH_FLAGS_MAX);
}

/*
 * The bits of up to 64 attributes.  A bitmap of more than a byte is followed by
 * padding up to t_hoff or by another byte of it, so that eight can be read.
 */
static inline uint64
presence_word(HeapTupleHeader tuple, int word)
{
	int			attributes = HeapTupleHeaderGetNatts(tuple) - word * WORD_ATTRIBUTES;
	const uint8 *bytes = tuple->t_bits + word * sizeof(uint64);
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
	const uint8 *bytes = tuple->t_bits + word * sizeof(uint64);
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
	Assert(word < word_count(batch));
	Assert((all & ~any) == 0 || batch->base.row_count == 0);
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

/* Note what the headers show: the bits that some have set, and those in which some differ. */
static void
note_headers(HeapBatch *batch, uint64 seen, uint64 difference)
{
	batch->has_external = (seen & header_mask(0, HEAP_HASEXTERNAL, 0)) != 0;
	batch->is_regular = !batch->always_irregular &&
		(seen & header_mask(0, HEAP_HASNULL, 0)) == 0 &&
		(difference & header_shape_mask()) == 0;
}

/* Note which attributes some rows lack, and which ones all lack, by the first byte of bits. */
static void
note_missing_bytes(HeapBatch *batch)
{
	uint8	   *bytes = batch->first_bits;
	uint64		any_held = 0;
	uint64		all_held = PG_UINT64_MAX;

	/* Fill the last word. */
	Assert(batch->base.row_count + sizeof(uint64) - 1 <= BATCH_FLAGS_MAX);
	memset(bytes + batch->base.row_count, bytes[0], sizeof(uint64) - 1);
	for (int row = 0; row < batch->base.row_count; row += sizeof(uint64))
	{
		uint64		word;

		memcpy(&word, bytes + row, sizeof(word));
		any_held |= word;
		all_held &= word;
	}
	for (int shift = 32; shift >= 8; shift /= 2)
	{
		any_held |= any_held >> shift;
		all_held &= all_held >> shift;
	}
	batch->any_missing[0] = (uint8) ~all_held;
	batch->all_missing[0] = (uint8) ~any_held;
}

/*
 * Read a page's headers and the first byte of its bitmaps in one go; false if
 * the tuples have not all as many attributes as the first.
 */
static bool
presence_read_bytes(HeapBatch *batch, int prefetches)
{
	/* Copies: the compiler would load these anew after each store. */
	const int	row_count = batch->base.row_count;
	char	  **tuples = batch->tuples;
	char	  **starts = batch->data_starts;
	uint8	   *first_bits = batch->first_bits;
	const uint64 expected = header_word(tuples[0]);
	uint64		seen = 0;
	uint64		difference = 0;

	for (int row = 0; row < row_count;)
	{
		const int	end = Min(row + ROWS_A_PREFETCH, row_count);

		for (; row < end; row++)
		{
			HeapTupleHeader tuple = (HeapTupleHeader) tuples[row];
			const uint64 word = header_word(tuples[row]);

			seen |= word;
			difference |= word ^ expected;
			starts[row] = (char *) tuple + tuple->t_hoff;
			first_bits[row] = (uint8) presence_word_uniform(tuple, 0, true);
		}
		prefetch_ahead(batch, prefetches);
	}
	if ((difference & header_mask(HEAP_NATTS_MASK, 0, 0)) != 0)
		return false;
	note_headers(batch, seen, difference);
	note_missing_bytes(batch);
	return true;
}

/* As presence_read_bytes, of the only word of bits. */
static inline bool
presence_read_words(HeapBatch *batch, int prefetches, bool is_byte)
{
	const int	row_count = batch->base.row_count;
	char	  **tuples = batch->tuples;
	char	  **starts = batch->data_starts;
	uint64	   *presence = batch->presence[0];
	uint8	   *first_bits = batch->first_bits;
	const uint64 expected = header_word(tuples[0]);
	uint64		any_held = 0;
	uint64		all_held = PG_UINT64_MAX;
	uint64		seen = 0;
	uint64		difference = 0;

	for (int row = 0; row < row_count;)
	{
		const int	end = Min(row + ROWS_A_PREFETCH, row_count);

		for (; row < end; row++)
		{
			HeapTupleHeader tuple = (HeapTupleHeader) tuples[row];
			const uint64 word = header_word(tuples[row]);
			uint64		bits;

			seen |= word;
			difference |= word ^ expected;
			/* A tuple of fewer attributes may be too short for reading a word. */
			if (unlikely((difference & header_mask(HEAP_NATTS_MASK, 0, 0)) != 0))
				return false;
			bits = presence_word_uniform(tuple, 0, is_byte);
			starts[row] = (char *) tuple + tuple->t_hoff;
			presence[row] = bits;
			first_bits[row] = (uint8) bits;
			any_held |= bits;
			all_held &= bits;
		}
		prefetch_ahead(batch, prefetches);
	}
	note_headers(batch, seen, difference);
	batch->any_missing[0] = ~all_held;
	batch->all_missing[0] = ~any_held;
	return true;
}

/* As presence_read_bytes, of any tuples. */
static void
presence_read_by_word(HeapBatch *batch, int prefetches)
{
	const uint64 expected = header_word(batch->tuples[0]);
	int			attributes_least = HeapTupleHeaderGetNatts((HeapTupleHeader) batch->tuples[0]);
	int			attributes_most = attributes_least;
	uint64		seen = 0;
	uint64		difference = 0;

	for (int row = 0; row < batch->base.row_count; row++)
	{
		HeapTupleHeader tuple = (HeapTupleHeader) batch->tuples[row];
		const uint64 word = header_word(batch->tuples[row]);
		const int	held = HeapTupleHeaderGetNatts(tuple);

		seen |= word;
		difference |= word ^ expected;
		batch->data_starts[row] = (char *) tuple + tuple->t_hoff;
		attributes_least = Min(attributes_least, held);
		attributes_most = Max(attributes_most, held);
		prefetch_ahead(batch, prefetches);
	}
	note_headers(batch, seen, difference);
	batch->has_short_tuples = attributes_least < batch->base.last_attno;
	batch->is_regular &= !batch->has_short_tuples;
	for (int word = 0; word < word_count(batch); word++)
		presence_read_word(batch, word,
						   attributes_least == attributes_most ? attributes_least : 0);
	if (batch->base.last_attno > 0)
		for (int row = 0; row < batch->base.row_count; row++)
			batch->first_bits[row] = (uint8) batch->presence[0][row];
	prefetch_bitmaps(batch, attributes_most);
}

/* The same, faster where all tuples have the same attributes; false if they have not. */
static bool
presence_read_uniform(HeapBatch *batch, int prefetches)
{
	const int	attributes = HeapTupleHeaderGetNatts((HeapTupleHeader) batch->tuples[0]);
	bool		is_read;

	if (attributes < batch->base.last_attno || word_count(batch) != 1)
		return false;
	if (batch->runs[0].count == batch->base.last_attno)
		is_read = presence_read_bytes(batch, prefetches);
	else if (Min(attributes, batch->base.last_attno) <= BYTE_ATTRIBUTES)
		is_read = presence_read_words(batch, prefetches, true);
	else
		is_read = presence_read_words(batch, prefetches, false);
	if (!is_read)
		return false;
	batch->has_short_tuples = false;
	prefetch_bitmaps(batch, attributes);
	return true;
}

/* Read which attributes each tuple of the batch holds, and whether it is regular after all. */
void
presence_read(HeapBatch *batch)
{
	const int	prefetches = prefetches_beside_headers(batch);

	Assert(batch->base.row_count > 0);
	if (!presence_read_uniform(batch, prefetches))
		presence_read_by_word(batch, prefetches / ROWS_A_PREFETCH + 1);
	batch->expects_nulls = !batch->is_regular;
	if (batch->is_regular)
		return;
	if (!batch->runs_are_planned)
		runs_plan(batch);
	batch->first_missing = attributes_held(batch);
	Assert(batch->first_missing >= 0 && batch->first_missing <= batch->base.last_attno);
	batch->steps_generation = batch->base.generation;
	batch->steps_done = 0;
	batch->positions_from = batch->data_starts;
	batch->advance_from = 0;
	batch->alignment_from = MAXIMUM_ALIGNOF;
}
