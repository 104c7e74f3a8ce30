/*
 * sort_key.c
 *	  The keys of a sort, and words that stand for their values.
 */
#include "postgres.h"

#include "port/pg_bswap.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "collation.h"
#include "expr.h"
#include "numeric_vector.h"
#include "sort_key.h"

/* The words of values that are ordered by this operator; WORDS_NONE: it has none. */
SortWords
sort_words_of_operator(Oid type, Oid operator, Oid collation)
{
	const Oid	function = get_opcode(operator);
	VectorOperation operation;
	ValueKind	kind;

	if (!value_kind_of_type(type, &kind) || !function_lookup(function, &operation) ||
		(operation != OPERATION_LT && operation != OPERATION_GT))
		return WORDS_NONE;
	switch (kind)
	{
		case VALUE_INTEGER:
			return WORDS_INTEGER;
		case VALUE_FLOAT:
			return function == F_FLOAT4LT || function == F_FLOAT4GT ? WORDS_FLOAT4 : WORDS_FLOAT8;
		case VALUE_NUMERIC:
			return WORDS_NUMERIC;
		case VALUE_TEXT:
			if (!collation_is_c(collation))
				return WORDS_NONE;
			return function == F_BPCHARLT || function == F_BPCHARGT ? WORDS_BPCHAR : WORDS_TEXT;
		default:
			return WORDS_NONE;
	}
}

/* Set up a key in the current memory context. */
void
sort_key_begin(SortKey *key, int column, Oid type, Oid operator, Oid collation, bool nulls_first)
{
	memset(key, 0, sizeof(SortKey));
	key->column = column;
	key->type = type;
	key->words = sort_words_of_operator(type, operator, collation);
	key->comparison.ssup_cxt = CurrentMemoryContext;
	key->comparison.ssup_collation = collation;
	key->comparison.ssup_nulls_first = nulls_first;
	PrepareSortSupportFromOrderingOp(operator, &key->comparison);
	key->is_descending = key->comparison.ssup_reverse;
}

/* The bytes of a text from an offset on, with zeros behind its end, as a number. */
static inline uint64
text_word(Datum value, int offset, bool is_bpchar)
{
	const struct varlena *text = (const struct varlena *) DatumGetPointer(value);
	const char *bytes = VARDATA_ANY(text);
	int			length = VARSIZE_ANY_EXHDR(text);
	uint64		word = 0;

	Assert(!VARATT_IS_EXTERNAL(text) && !VARATT_IS_COMPRESSED(text));
	if (is_bpchar)
		while (length > 0 && bytes[length - 1] == ' ')
			length--;
	length -= offset;
	if (length >= TEXT_WORD_BYTES)
		memcpy(&word, bytes + offset, TEXT_WORD_BYTES);
	else if (length > 0)
		memcpy(&word, bytes + offset, length);
	return pg_ntoh64(word);
}

/* The word of a value; of a text, which is plain, that of its bytes from an offset on. */
uint64
sort_word_of_value(SortKey *key, Datum value, int offset)
{
	uint64		word;

	Assert(offset == 0 || sort_words_are_of_text(key->words));
	switch (key->words)
	{
		case WORDS_INTEGER:
			word = (uint64) DatumGetInt64(vector_word_from_datum(key->type, value)) ^ WORD_SIGN_BIT;
			break;
		case WORDS_FLOAT4:
			word = (uint64) order_of_float(DatumGetFloat4(value)) ^ WORD_SIGN_BIT;
			break;
		case WORDS_FLOAT8:
			word = (uint64) order_of_float(DatumGetFloat8(value)) ^ WORD_SIGN_BIT;
			break;
		case WORDS_TEXT:
		case WORDS_BPCHAR:
			word = text_word(value, offset, key->words == WORDS_BPCHAR);
			break;
		case WORDS_NUMERIC:
			word = (uint64) numeric_order(DatumGetPointer(value)) ^ WORD_SIGN_BIT;
			break;
		default:
			elog(ERROR, "values of type %u have no words", key->type);
	}
	return key->is_descending ? ~word : word;
}

/* The word of a row's value. */
uint64
sort_word(SortKey *key, const RowFormat *format, const FileRow *row, int offset)
{
	Assert(!row_nulls(format, row)[key->column]);
	return sort_word_of_value(key, sort_row_value(format, row, key->column), offset);
}

/* Compare rows by these keys, most significant first. */
int
sort_compare_keys(SortKey *keys, int key_count, const RowFormat *format,
				  const FileRow *left, const FileRow *right)
{
	for (int i = 0; i < key_count; i++)
	{
		const int	column = keys[i].column;
		int			result = ApplySortComparator(sort_row_value(format, left, column),
												 row_nulls(format, left)[column],
												 sort_row_value(format, right, column),
												 row_nulls(format, right)[column],
												 &keys[i].comparison);

		if (result != 0)
			return result;
	}
	return 0;
}
