/*
 * choose.c
 *	  CASE and COALESCE: of two operands, the one that a condition says.
 *
 * Both operands are computed for all rows, as they can raise no error here.  If
 * one fails, for a row that would not have chosen it, the batch goes by row.
 */
#include "postgres.h"

#include "../expr.h"

/* Display scale of each row, where the operands' differ or vary. */
static void
choose_scales(Vector *result, const Vector *left, const Vector *right,
			  const bool *takes_left, const Selection *selection)
{
	result->has_mixed_scales = left->has_mixed_scales ||
		right->has_mixed_scales || left->scale != right->scale;
	if (!result->has_mixed_scales)
		return;
	FOR_SELECTED(row, selection,
				 const Vector *chosen = takes_left[row] ? left : right;
				 result->scales[row] = chosen->has_mixed_scales ?
				 chosen->scales[row] : chosen->scale);
}

/* For which rows the left operand is taken. */
static void
evaluate_condition(const Vector *condition, bool *takes_left,
				   const Selection *selection)
{
	if (condition->has_nulls)
		FOR_SELECTED(row, selection,
					 takes_left[row] = condition->values[row] != 0 && !condition->nulls[row]);
	else
		FOR_SELECTED(row, selection, takes_left[row] = condition->values[row] != 0);
}

bool
kernel_choose(VectorExpr *expression, VectorContext *context,
			  const Selection *selection)
{
	const Vector *condition = vector_evaluate(expression->condition, context, selection);
	const Vector *left = vector_evaluate(expression->left, context, selection);
	const Vector *right = vector_evaluate(expression->right, context, selection);
	Vector	   *result = &expression->result;
	bool		takes_left[BATCH_ROWS_MAX];

	if (condition == NULL || left == NULL || right == NULL)
		return false;
	evaluate_condition(condition, takes_left, selection);
	result->has_nulls = left->has_nulls || right->has_nulls;
	if (result->has_nulls)
		FOR_SELECTED(row, selection,
					 result->nulls[row] = takes_left[row] ?
					 left->has_nulls && left->nulls[row] :
					 right->has_nulls && right->nulls[row]);
	if (expression->kind == VALUE_NUMERIC)
	{
		choose_scales(result, left, right, takes_left, selection);
		if (!numeric_align_scales(expression, &left, &right, selection))
			return false;
		result->scale = left->scale;
	}
	FOR_SELECTED(row, selection,
				 result->values[row] = takes_left[row] ? left->values[row] : right->values[row]);
	return true;
}
