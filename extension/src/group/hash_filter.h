/*
 * hash_filter.h
 *	  Which hashes may be among some: a bit for each, as far as the size goes.
 */
#ifndef BATCHEXEC_HASH_FILTER_H
#define BATCHEXEC_HASH_FILTER_H

#include "utils/memutils.h"

/* Rows after which a filter that most of them pass is given up. */
#define HASH_FILTER_TRIAL_ROWS	8192

typedef struct HashFilter
{
	uint64	   *words;			/* NULL: not made */
	uint32		mask;			/* of bits */
	uint64		rows_seen;
	uint64		rows_passed;
} HashFilter;

/* Make an empty one of so many bits, a power of two and 64 or more. */
static inline HashFilter
hash_filter_create(MemoryContext memory, uint64 bits)
{
	Assert(bits >= 64 && (bits & (bits - 1)) == 0);
	return (HashFilter) {
		.words = MemoryContextAllocExtended(memory, bits / BITS_PER_BYTE,
											MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO),
		.mask = (uint32) (bits - 1),
	};
}

static inline void
hash_filter_add(HashFilter *filter, uint32 hash)
{
	const uint32 bit = hash & filter->mask;
	Assert(filter->words != NULL);

	filter->words[bit / 64] |= UINT64CONST(1) << (bit % 64);
}

static inline bool
hash_filter_passes(const HashFilter *filter, uint32 hash)
{
	const uint32 bit = hash & filter->mask;
	Assert(filter->words != NULL);

	return (filter->words[bit / 64] >> (bit % 64)) & 1;
}

static inline void
hash_filter_count(HashFilter *filter, int seen, int passed)
{
	Assert(passed >= 0 && passed <= seen);
	filter->rows_seen += seen;
	filter->rows_passed += passed;
}

/* Do most rows pass? */
static inline bool
hash_filter_is_useless(const HashFilter *filter)
{
	return filter->rows_seen >= HASH_FILTER_TRIAL_ROWS &&
		filter->rows_passed > filter->rows_seen / 2;
}

#endif
