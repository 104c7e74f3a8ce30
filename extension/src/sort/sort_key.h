/*
 * sort_key.h
 *	  The keys of a sort, and words that stand for their values.
 *
 * A word is an unsigned integer: where the words of two values differ, the values are in
 * the order of these.  A text has a word for each eight bytes.
 */
#ifndef BATCHEXEC_SORT_KEY_H
#define BATCHEXEC_SORT_KEY_H

#include <math.h>

#include "nodes/pg_list.h"
#include "utils/sortsupport.h"

#include "row_file.h"

typedef enum SortWords
{
	WORDS_NONE,					/* values are compared */
	WORDS_INTEGER,
	WORDS_FLOAT4,
	WORDS_FLOAT8,
	WORDS_TEXT,					/* of a collation that orders bytes */
	WORDS_BPCHAR,				/* the same without spaces at the end */
	WORDS_NUMERIC				/* of the first digits */
} SortWords;

typedef struct SortKey
{
	int			column;			/* of the rows, from 0 */
	Oid			type;
	SortWords	words;
	bool		is_descending;
	bool		is_nullable;	/* a row that was added has a NULL */
	SortSupportData comparison; /* of values */
} SortKey;

#define WORD_SIGN_BIT	(UINT64CONST(1) << 63)

/* Bytes that a word of a text holds, and how many of them are sorted by words, at most. */
#define TEXT_WORD_BYTES		8
#define TEXT_WORDS_BYTES_MAX	64

/* Integers that are ordered as floats are: -0 as 0, NaN above all others. */
static inline int64
order_of_float(double value)
{
	int64		bits;

	if (isnan(value))
		return PG_INT64_MAX;
	if (value == 0)
		return 0;
	memcpy(&bits, &value, sizeof(bits));
	return bits >= 0 ? bits : PG_INT64_MIN - bits;
}

/* Are values equal whose words are? */
static inline bool
sort_words_are_exact(SortWords words)
{
	return words == WORDS_INTEGER || words == WORDS_FLOAT4 || words == WORDS_FLOAT8;
}

static inline bool
sort_words_are_of_text(SortWords words)
{
	return words == WORDS_TEXT || words == WORDS_BPCHAR;
}

/* Has a text a further word behind this one? */
static inline bool
sort_text_goes_on(const SortKey *key, uint64 word)
{
	return ((key->is_descending ? ~word : word) & 0xFF) != 0;
}

/* The value of a row's column. */
static inline Datum
sort_row_value(const RowFormat *format, const FileRow *row, int column)
{
	return TupleDescAttr(format->descriptor, column)->attbyval ? row->values[column] :
		PointerGetDatum((char *) row + row->values[column]);
}

extern SortWords sort_words_of_operator(Oid type, Oid operator, Oid collation);
extern void sort_key_begin(SortKey *key, int column, Oid type, Oid operator, Oid collation,
						   bool nulls_first);
extern uint64 sort_word_of_value(SortKey *key, Datum value, int offset);
extern uint64 sort_word(SortKey *key, const RowFormat *format, const FileRow *row, int offset);
extern int	sort_compare_keys(SortKey *keys, int key_count, const RowFormat *format,
							  const FileRow *left, const FileRow *right);

#endif
