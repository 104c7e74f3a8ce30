/*
 * text.c
 *	  Equality, order under C, IN and LIKE of text by its bytes.
 *
 * Compressed and external values make a kernel return false: the row path
 * detoasts them.
 */
#include "postgres.h"

#include "../expr.h"

typedef struct Bytes
{
	const char *data;
	int			length;
} Bytes;

static inline bool
is_toasted(Datum value)
{
	return VARATT_IS_EXTERNAL(DatumGetPointer(value)) ||
		VARATT_IS_COMPRESSED(DatumGetPointer(value));
}

/* The bytes of an inline value, without a bpchar's trailing spaces. */
static inline Bytes
bytes_of(Datum value, bool is_bpchar)
{
	Bytes		bytes;

	bytes.data = VARDATA_ANY(DatumGetPointer(value));
	bytes.length = VARSIZE_ANY_EXHDR(DatumGetPointer(value));
	if (is_bpchar)
		while (bytes.length > 0 && bytes.data[bytes.length - 1] == ' ')
			bytes.length--;
	return bytes;
}

static inline bool
bytes_equal(Bytes a, Bytes b)
{
	return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

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

static bool
list_contains(const VectorExpr *expression, Datum value)
{
	Bytes		bytes;

	if (expression->left->kind == VALUE_INTEGER)
	{
		for (int i = 0; i < expression->list_count; i++)
			if (expression->list[i] == DatumGetInt64(value))
				return true;
		return false;
	}
	bytes = bytes_of(value, expression->is_bpchar);
	for (int i = 0; i < expression->list_count; i++)
		if (bytes_equal(bytes, bytes_of(Int64GetDatum(expression->list[i]),
										expression->is_bpchar)))
			return true;
	return false;
}

/* x IN (list) and x NOT IN (list), with a NULL in the list as SQL has it. */
bool
kernel_in_list(VectorExpr *expression, VectorContext *context,
			   const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Vector	   *result = &expression->result;
	const bool	is_text = (expression->left->kind == VALUE_TEXT);

	if (operand == NULL)
		return false;
	result->has_nulls = operand->has_nulls || expression->list_has_null;
	FOR_SELECTED(row, selection,
				 bool is_null = operand->has_nulls && operand->nulls[row];
				 bool found = false;
				 if (!is_null)
				 {
					 if (is_text && is_toasted(operand->values[row]))
					 return false;
					 found = list_contains(expression, operand->values[row]);
					 is_null = !found && expression->list_has_null;
				 }
				 result->nulls[row] = is_null;
				 result->values[row] = Int64GetDatum(found != expression->is_negated));
	/* x IN () is false and x NOT IN () true, even where x is NULL. */
	if (expression->list_count == 0 && !expression->list_has_null)
		result->has_nulls = false;
	return true;
}
