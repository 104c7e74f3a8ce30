/*
 * text.c
 *	  Equality, order under C and length of text by its bytes.
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

/* Is each value equal to a constant, or not; false where one is not inline. */
static bool
compare_equality(const VectorExpr *expression, const Datum *values, Datum constant,
				 Datum *result, const Selection *selection)
{
	const bool	is_bpchar = expression->is_bpchar;
	const bool	when_equal = expression->operation == OPERATION_EQ;
	Bytes		bytes;

	if (is_toasted(constant))
		return false;
	bytes = bytes_of(constant, is_bpchar);
	FOR_SELECTED(row, selection,
				 if (is_toasted(values[row]))
				 return false;
				 result[row] = Int64GetDatum(value_equals(values[row], bytes, is_bpchar) ==
											 when_equal));
	return true;
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
	if (expression->right->is_constant && expression->operation <= OPERATION_NE)
		return present.count == 0 ||
			compare_equality(expression, left->values, right->values[0], result->values, &present);
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
