/*
 * text.c
 *	  Equality, order under C and LIKE of text by its bytes.
 *
 * Compressed and external values make a kernel return false: the row path
 * detoasts them.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "../expr.h"
#include "bytes.h"

static inline int
bytes_compare(Bytes a, Bytes b)
{
	int			order = memcmp(a.data, b.data, Min(a.length, b.length));

	return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static bool
comparison_holds(VectorOperation operation, Bytes a, Bytes b)
{
	switch (operation)
	{
		case OPERATION_EQ:
			return bytes_equal(a, b);
		case OPERATION_NE:
			return !bytes_equal(a, b);
		case OPERATION_LT:
			return bytes_compare(a, b) < 0;
		case OPERATION_LE:
			return bytes_compare(a, b) <= 0;
		case OPERATION_GT:
			return bytes_compare(a, b) > 0;
		default:
			return bytes_compare(a, b) >= 0;
	}
}

bool
kernel_compare_text(VectorExpr *expression, VectorContext *context,
					const Selection *selection)
{
	const Vector *left = vector_evaluate(expression->left, context, selection);
	const Vector *right = vector_evaluate(expression->right, context, selection);
	Vector	   *result = &expression->result;
	Selection	present = *selection;
	uint16		rows[BATCH_ROWS_MAX];
	const bool	is_bpchar = expression->is_bpchar;

	if (left == NULL || right == NULL)
		return false;
	vector_merge_nulls(result, left, right, selection);
	present = selection_without_nulls(selection, result, rows);
	FOR_SELECTED(row, &present,
				 if (is_toasted(left->values[row]) || is_toasted(right->values[row]))
				 return false;
				 result->values[row] =
				 Int64GetDatum(comparison_holds(expression->operation,
												bytes_of(left->values[row], is_bpchar),
												bytes_of(right->values[row], is_bpchar))));
	return true;
}

/* In UTF-8 each byte but those that go on with a character begins one. */
static inline int
count_characters(Bytes value, bool is_multibyte)
{
	int			count = 0;

	if (!is_multibyte)
		return value.length;
	for (int i = 0; i < value.length; i++)
		count += ((unsigned char) value.data[i] & 0xC0) != 0x80;
	return count;
}

bool
kernel_length(VectorExpr *expression, VectorContext *context,
			  const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Vector	   *result = &expression->result;
	const bool	is_multibyte = pg_database_encoding_max_length() > 1;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];

	if (operand == NULL)
		return false;
	vector_merge_nulls(result, operand, NULL, selection);
	if (result->has_nulls)
		FOR_SELECTED(row, selection, result->values[row] = 0);
	present = selection_without_nulls(selection, operand, rows);
	FOR_SELECTED(row, &present,
				 if (is_toasted(operand->values[row]))
				 return false;
				 result->values[row] =
				 Int64GetDatum(count_characters(bytes_of(operand->values[row], false),
												is_multibyte)));
	return true;
}

/* Strings of a pattern between its %, the first and last included. */
#define LIKE_PIECES_MAX	16

typedef struct LikePattern
{
	int			count;			/* 1: no % at all */
	Bytes		pieces[LIKE_PIECES_MAX];
} LikePattern;

/* Take a pattern apart at its %; false where there are too many. */
static bool
split_pattern(Bytes pattern, LikePattern *result)
{
	const char *end = pattern.data + pattern.length;
	const char *start = pattern.data;

	result->count = 0;
	for (;;)
	{
		const char *percent = memchr(start, '%', end - start);
		const char *stop = percent != NULL ? percent : end;

		if (result->count == LIKE_PIECES_MAX)
			return false;
		result->pieces[result->count++] = (Bytes) {start, stop - start};
		if (percent == NULL)
			return true;
		start = percent + 1;
	}
}

/*
 * Can a pattern be matched byte by byte?  It has no wildcard but %, and is not
 * looked for inside of a string where a byte may be a part of two characters.
 */
bool
like_pattern_is_simple(const char *pattern, int bytes)
{
	LikePattern split;

	if (memchr(pattern, '\\', bytes) != NULL || memchr(pattern, '_', bytes) != NULL ||
		!split_pattern((Bytes) {pattern, bytes}, &split))
		return false;
	return split.count == 1 || (split.count == 2 && split.pieces[1].length == 0) ||
		pg_database_encoding_max_length() == 1 || GetDatabaseEncoding() == PG_UTF8;
}

/* Does a value hold the pieces, in their order, between the first and the last? */
static inline bool
pattern_matches(const LikePattern *pattern, Bytes value)
{
	const Bytes first = pattern->pieces[0];
	const Bytes last = pattern->pieces[pattern->count - 1];
	const char *from = value.data + first.length;
	const char *to = value.data + value.length - last.length;

	if (pattern->count == 1)
		return bytes_equal(value, first);
	if (value.length < first.length + last.length ||
		memcmp(value.data, first.data, first.length) != 0 ||
		memcmp(to, last.data, last.length) != 0)
		return false;
	for (int i = 1; i < pattern->count - 1; i++)
	{
		const Bytes piece = pattern->pieces[i];

		from = memmem(from, to - from, piece.data, piece.length);
		if (from == NULL)
			return false;
		from += piece.length;
	}
	return true;
}

/* LIKE with % anywhere, and its negation. */
bool
kernel_like(VectorExpr *expression, VectorContext *context,
			const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Vector	   *result = &expression->result;
	const bool	is_negated = (expression->operation == OPERATION_NOT_LIKE);
	LikePattern pattern;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];

	if (operand == NULL ||
		!split_pattern(bytes_of(expression->right->result.values[0], false), &pattern))
		return false;
	vector_merge_nulls(result, operand, NULL, selection);
	present = selection_without_nulls(selection, operand, rows);
	FOR_SELECTED(row, &present,
				 bool matches;
				 if (is_toasted(operand->values[row]))
				 return false;
				 matches = pattern_matches(&pattern, bytes_of(operand->values[row], false));
				 result->values[row] = Int64GetDatum(matches != is_negated));
	return true;
}
