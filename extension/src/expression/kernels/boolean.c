/*
 * boolean.c
 *	  AND, OR, NOT and IS [NOT] NULL in three-valued logic.
 */
#include "postgres.h"

#include "../expr.h"

bool
kernel_null_test(VectorExpr *expression, VectorContext *context,
				 const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Datum	   *result = expression->result.values;
	const bool	is_negated = expression->is_negated;

	if (operand == NULL)
		return false;
	expression->result.has_nulls = false;
	FOR_SELECTED(row, selection,
				 bool is_null = operand->has_nulls && operand->nulls[row];
				 result[row] = Int64GetDatum(is_null != is_negated));
	return true;
}

/* AND and OR: the deciding value wins over NULL. */
static void
combine(BoolExprType operation, const Vector *left, const Vector *right,
		Vector *result, const Selection *selection)
{
	const bool	deciding = (operation == OR_EXPR);

	result->has_nulls = left->has_nulls || right->has_nulls;
	if (!result->has_nulls)
	{
		if (operation == OR_EXPR)
			FOR_SELECTED(row, selection,
						 result->values[row] = left->values[row] | right->values[row]);
		else
			FOR_SELECTED(row, selection,
						 result->values[row] = left->values[row] & right->values[row]);
		return;
	}
	FOR_SELECTED(row, selection,
				 bool left_null = left->has_nulls && left->nulls[row];
				 bool right_null = right->has_nulls && right->nulls[row];
				 bool decided = (!left_null && (left->values[row] != 0) == deciding) ||
				 (!right_null && (right->values[row] != 0) == deciding);
				 result->nulls[row] = !decided && (left_null || right_null);
				 result->values[row] = Int64GetDatum((int64) (decided == deciding)));
}

bool
kernel_boolean(VectorExpr *expression, VectorContext *context,
			   const Selection *selection)
{
	const Vector *left = vector_evaluate(expression->left, context, selection);
	const Vector *right;
	Vector	   *result = &expression->result;

	if (left == NULL)
		return false;
	if (expression->bool_operation == NOT_EXPR)
	{
		vector_merge_nulls(result, left, NULL, selection);
		FOR_SELECTED(row, selection,
					 result->values[row] = Int64GetDatum(!DatumGetInt64(left->values[row])));
		return true;
	}
	right = vector_evaluate(expression->right, context, selection);
	if (right == NULL)
		return false;
	combine(expression->bool_operation, left, right, result, selection);
	return true;
}
