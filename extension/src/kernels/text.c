/*
 * text.c
 *	  Equality, order under C and LIKE of text by its bytes.
 *
 * Compressed and external values make a kernel return false: the row path
 * detoasts them.
 */
#include "postgres.h"

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

/* Is the pattern free of wildcards, but for a trailing %? */
bool
like_pattern_is_simple(const char *pattern, int bytes)
{
	for (int i = 0; i < bytes; i++)
	{
		if (pattern[i] == '\\' || pattern[i] == '_' ||
			(pattern[i] == '%' && i < bytes - 1))
			return false;
	}
	return true;
}

/* LIKE 'prefix%' and LIKE 'literal', and their negations. */
bool
kernel_like(VectorExpr *expression, VectorContext *context,
			const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Bytes		pattern = bytes_of(expression->right->result.values[0], false);
	Vector	   *result = &expression->result;
	const bool	is_negated = (expression->operation == OPERATION_NOT_LIKE);
	const bool	is_prefix = pattern.length > 0 && pattern.data[pattern.length - 1] == '%';
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];

	if (operand == NULL)
		return false;
	if (is_prefix)
		pattern.length--;
	vector_merge_nulls(result, operand, NULL, selection);
	present = selection_without_nulls(selection, operand, rows);
	FOR_SELECTED(row, &present,
				 Bytes value;
				 bool matches;
				 if (is_toasted(operand->values[row]))
				 return false;
				 value = bytes_of(operand->values[row], false);
				 matches = (is_prefix ? value.length >= pattern.length : value.length == pattern.length) &&
				 memcmp(value.data, pattern.data, pattern.length) == 0;
				 result->values[row] = Int64GetDatum(matches != is_negated));
	return true;
}
