/*
 * sort_entries.c
 *	  Rows in memory, put in order by words of their keys.
 *
 * Entries are sorted by the first word, those of one word by the next: of a text its next
 * eight bytes, then that of the next key.  So a comparison looks at a row only where
 * a key has no words.  All steps are stable.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"

#include "heap_batch.h"
#include "sort_entries.h"

#define DIGIT_BITS		8
#define DIGITS			(1 << DIGIT_BITS)
#define WORD_DIGITS		(64 / DIGIT_BITS)

/* Entries that are sorted by insertion, and by merging, at most; and whose digits stay in a processor's cache. */
#define INSERTION_ENTRIES_MAX	16
#define MERGE_ENTRIES_MAX		400
#define CACHED_ENTRIES_MAX		32768

/* How many entries ahead a row is asked for. */
#define ROWS_AHEAD		12

static void sort_by_keys(const EntrySorter *sorter, SortEntry *entries, Size count, int key, int offset);

/* Does an entry belong behind another, by their words, or by their rows' keys from this one on? */
static pg_attribute_always_inline bool
is_behind(const EntrySorter *sorter, const SortEntry *left, const SortEntry *right, int from_key)
{
	if (from_key < 0)
		return left->word > right->word;
	return sort_compare_keys(sorter->keys + from_key, sorter->key_count - from_key,
							 sorter->format, left->row, right->row) > 0;
}

static pg_attribute_always_inline void
insertion_sort(const EntrySorter *sorter, SortEntry *entries, Size count, int from_key)
{
	for (Size i = 1; i < count; i++)
	{
		const SortEntry entry = entries[i];
		Size		at = i;

		for (; at > 0 && is_behind(sorter, &entries[at - 1], &entry, from_key); at--)
			entries[at] = entries[at - 1];
		entries[at] = entry;
	}
}

/* Merge two sorted ranges that follow each other. */
static pg_attribute_always_inline void
merge(const EntrySorter *sorter, const SortEntry *from, Size middle, Size end, SortEntry *to, int from_key)
{
	Size		left = 0;
	Size		right = middle;

	while (left < middle && right < end)
		*to++ = is_behind(sorter, &from[left], &from[right], from_key) ? from[right++] : from[left++];
	memcpy(to, from + left, sizeof(SortEntry) * (middle - left));
	memcpy(to + (middle - left), from + right, sizeof(SortEntry) * (end - right));
}

static pg_attribute_always_inline void
merge_sort(const EntrySorter *sorter, SortEntry *entries, Size count, int from_key)
{
	SortEntry  *from = entries;
	SortEntry  *to = sorter->room;

	for (Size start = 0; start < count; start += INSERTION_ENTRIES_MAX)
		insertion_sort(sorter, entries + start, Min(INSERTION_ENTRIES_MAX, count - start), from_key);
	for (Size width = INSERTION_ENTRIES_MAX; width < count; width *= 2)
	{
		SortEntry  *merged = to;

		CHECK_FOR_INTERRUPTS();
		for (Size start = 0; start < count; start += 2 * width)
		{
			const Size	end = Min(2 * width, count - start);

			merge(sorter, from + start, Min(width, end), end, to + start, from_key);
		}
		to = from;
		from = merged;
	}
	if (from != entries)
		memcpy(entries, from, sizeof(SortEntry) * count);
}

/* The bits in which words differ; 0: they are in order. */
static uint64
differing_bits(const SortEntry *entries, Size count)
{
	uint64		bits = 0;
	bool		is_sorted = true;

	for (Size i = 1; i < count; i++)
	{
		bits |= entries[i].word ^ entries[0].word;
		is_sorted &= entries[i - 1].word <= entries[i].word;
	}
	return is_sorted ? 0 : bits;
}

/* Put entries in the order of one digit.  On return, starts holds the ends of the digits' ranges. */
static void
scatter(const SortEntry *from, SortEntry *to, Size count, int shift, Size *starts)
{
	Size		start = 0;

	memset(starts, 0, sizeof(Size) * DIGITS);
	for (Size i = 0; i < count; i++)
		starts[(from[i].word >> shift) & (DIGITS - 1)]++;
	for (int digit = 0; digit < DIGITS; digit++)
	{
		const Size	length = starts[digit];

		starts[digit] = start;
		start += length;
	}
	Assert(start == count);
	for (Size i = 0; i < count; i++)
		to[starts[(from[i].word >> shift) & (DIGITS - 1)]++] = from[i];
}

/* Sort by the lower digits first, where entries fit in a cache. */
static void
sort_from_low_digit(const EntrySorter *sorter, SortEntry *entries, Size count, uint64 bits)
{
	SortEntry  *from = entries;
	SortEntry  *to = sorter->room;
	Size		starts[DIGITS];

	for (int digit = 0; digit < WORD_DIGITS; digit++)
	{
		SortEntry  *scattered = to;

		if (((bits >> (digit * DIGIT_BITS)) & (DIGITS - 1)) == 0)
			continue;
		scatter(from, to, count, digit * DIGIT_BITS, starts);
		to = from;
		from = scattered;
	}
	if (from != entries)
		memcpy(entries, from, sizeof(SortEntry) * count);
}

/* Sort by the words. */
static void
sort_by_word(const EntrySorter *sorter, SortEntry *entries, Size count)
{
	uint64		bits;
	Size		ends[DIGITS];
	Size		start = 0;
	int			shift;

	CHECK_FOR_INTERRUPTS();
	if (count <= MERGE_ENTRIES_MAX)
	{
		merge_sort(sorter, entries, count, -1);
		return;
	}
	bits = differing_bits(entries, count);
	if (bits == 0)
		return;
	if (count <= CACHED_ENTRIES_MAX)
	{
		sort_from_low_digit(sorter, entries, count, bits);
		return;
	}
	/* Divide by the highest digit that differs; a part has fewer bits left. */
	shift = Max(pg_leftmost_one_pos64(bits) + 1 - DIGIT_BITS, 0);
	scatter(entries, sorter->room, count, shift, ends);
	memcpy(entries, sorter->room, sizeof(SortEntry) * count);
	if (shift == 0)
		return;
	for (int digit = 0; digit < DIGITS; digit++)
	{
		if (ends[digit] - start > 1)
			sort_by_word(sorter, entries + start, ends[digit] - start);
		start = ends[digit];
	}
}

static void
prefetch_row(const SortEntry *entries, Size count, Size at)
{
	if (at + ROWS_AHEAD < count)
		__builtin_prefetch(entries[at + ROWS_AHEAD].row, 0, PREFETCH_TO_FIRST_LEVEL);
}

/* Move the rows whose key is NULL before or behind the others; returns how many there are. */
static Size
divide_nulls(const EntrySorter *sorter, SortEntry *entries, Size count, int key)
{
	const int	column = sorter->keys[key].column;
	SortEntry  *nulls = sorter->room;
	Size		null_count = 0;
	Size		other_count = 0;

	for (Size i = 0; i < count; i++)
	{
		prefetch_row(entries, count, i);
		if (row_nulls(sorter->format, entries[i].row)[column])
			nulls[null_count++] = entries[i];
		else
			entries[other_count++] = entries[i];
	}
	if (!sorter->keys[key].comparison.ssup_nulls_first)
		memcpy(entries + other_count, nulls, sizeof(SortEntry) * null_count);
	else if (null_count > 0)
	{
		memmove(entries + null_count, entries, sizeof(SortEntry) * other_count);
		memcpy(entries, nulls, sizeof(SortEntry) * null_count);
	}
	return null_count;
}

/* Sort rows of one word of a key by what comes behind it. */
static void
sort_equal_words(const EntrySorter *sorter, SortEntry *entries, Size count, int key, int offset)
{
	const SortWords words = sorter->keys[key].words;

	if (sort_words_are_exact(words))
		sort_by_keys(sorter, entries, count, key + 1, 0);
	else if (!sort_words_are_of_text(words))
		merge_sort(sorter, entries, count, key);
	else if (!sort_text_goes_on(&sorter->keys[key], entries[0].word))
		sort_by_keys(sorter, entries, count, key + 1, 0);
	else if (offset + TEXT_WORD_BYTES < TEXT_WORDS_BYTES_MAX)
		sort_by_keys(sorter, entries, count, key, offset + TEXT_WORD_BYTES);
	else
		merge_sort(sorter, entries, count, key);
}

/* Sort rows that are alike in all keys before this one, and in its bytes before the offset. */
static void
sort_by_keys(const EntrySorter *sorter, SortEntry *entries, Size count, int key, int offset)
{
	SortKey    *sort_key = &sorter->keys[key];
	Size		start = 0;

	check_stack_depth();
	if (count < 2 || key == sorter->key_count)
		return;
	if (sort_key->words == WORDS_NONE)
	{
		merge_sort(sorter, entries, count, key);
		return;
	}
	if (offset == 0 && sort_key->is_nullable)
	{
		const Size	null_count = divide_nulls(sorter, entries, count, key);
		const bool	nulls_first = sort_key->comparison.ssup_nulls_first;

		sort_by_keys(sorter, nulls_first ? entries : entries + (count - null_count), null_count, key + 1, 0);
		entries += nulls_first ? null_count : 0;
		count -= null_count;
	}
	for (Size i = 0; i < count; i++)
	{
		prefetch_row(entries, count, i);
		entries[i].word = sort_word(sort_key, sorter->format, entries[i].row, offset);
	}
	sort_by_word(sorter, entries, count);
	if (key + 1 == sorter->key_count && sort_words_are_exact(sort_key->words))
		return;
	for (Size end = 1; end <= count; end++)
	{
		if (end < count && entries[end].word == entries[start].word)
			continue;
		if (end - start > 1)
			sort_equal_words(sorter, entries + start, end - start, key, offset);
		start = end;
	}
}

/* Put rows in the order of the keys; those that are equal stay in theirs. */
void
sort_entries(const EntrySorter *sorter, SortEntry *entries, Size count)
{
	sort_by_keys(sorter, entries, count, 0, 0);
}
