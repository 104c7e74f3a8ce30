/*
 * boolean.c
 *	  AND, OR, NOT, and tests of NULL, truth and distinctness, in three-valued logic.
 */
#include "postgres.h"

#include "../expr.h"

/* An operand is computed for some rows only where it is for half of them at most. */
#define NARROWING_SHARE_MIN	2

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

bool
kernel_boolean_test(VectorExpr *expression, VectorContext *context,
					const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Datum	   *result = expression->result.values;
	const BoolTestType test = expression->bool_test;
	const bool	is_negated = expression->is_negated;

	if (operand == NULL)
		return false;
	expression->result.has_nulls = false;
	FOR_SELECTED(row, selection,
				 bool is_null = operand->has_nulls && operand->nulls[row];
				 bool is_true = !is_null && operand->values[row] != 0;
				 bool holds = test == IS_TRUE ? is_true : test == IS_UNKNOWN ? is_null :
				 !is_null && !is_true;
				 result[row] = Int64GetDatum(holds != is_negated));
	return true;
}

/* IS DISTINCT FROM: two NULLs are not, and NULL is distinct from any value. */
bool
kernel_distinct(VectorExpr *expression, VectorContext *context,
				const Selection *selection)
{
	const Vector *left = vector_evaluate(expression->left, context, selection);
	const Vector *right = vector_evaluate(expression->right, context, selection);
	const Vector *equality = vector_evaluate(expression->condition, context, selection);
	Datum	   *result = expression->result.values;

	if (left == NULL || right == NULL || equality == NULL)
		return false;
	expression->result.has_nulls = false;
	FOR_SELECTED(row, selection,
				 bool left_null = left->has_nulls && left->nulls[row];
				 bool right_null = right->has_nulls && right->nulls[row];
				 bool differs = left_null || right_null ? left_null != right_null :
				 equality->values[row] == 0;
				 result[row] = Int64GetDatum(differs));
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

/* Is a result used by nobody else, so that it need not be complete?  Columns are filled before. */
static bool
stands_alone(const VectorExpr *expression)
{
	if (expression == NULL || expression->column != NULL || expression->is_constant)
		return true;
	return !expression->is_shared && stands_alone(expression->left) &&
		stands_alone(expression->right) && stands_alone(expression->condition);
}

/* Texts are compared one by one, and that takes longer than to pick out some rows. */
static bool
compares_texts(const VectorExpr *expression)
{
	if (expression == NULL || expression->column != NULL || expression->is_constant)
		return false;
	return (expression->left != NULL && expression->left->kind == VALUE_TEXT) ||
		compares_texts(expression->left) || compares_texts(expression->right) ||
		compares_texts(expression->condition);
}

static bool
narrowing_pays(VectorExpr *expression)
{
	if (expression->narrowing == NARROWING_UNKNOWN)
		expression->narrowing = stands_alone(expression->right) &&
			compares_texts(expression->right) ? NARROWING_PAYS : NARROWING_IS_USELESS;
	return expression->narrowing == NARROWING_PAYS;
}

/* Fill the columns of an expression for the rows that others may ask for. */
static bool
fill_columns(VectorExpr *expression, VectorContext *context, const Selection *selection)
{
	if (expression == NULL || expression->is_constant)
		return true;
	if (expression->column != NULL)
		return vector_evaluate(expression, context, selection) != NULL;
	return fill_columns(expression->left, context, selection) &&
		fill_columns(expression->right, context, selection) &&
		fill_columns(expression->condition, context, selection);
}

/* The rows that the left operand does not decide. */
static Selection
undecided_rows(BoolExprType operation, const Vector *left, const Selection *selection,
			   uint16 *rows)
{
	const bool	deciding = (operation == OR_EXPR);
	int			count = 0;

	FOR_SELECTED(row, selection,
				 rows[count] = row;
				 count += (left->has_nulls && left->nulls[row]) ||
				 (left->values[row] != 0) != deciding);
	return (Selection) {.count = count, .rows = rows};
}

/*
 * Combine with a right operand that is computed for few rows only; false where it can't be.
 * *is_done tells whether it has been.
 */
static bool
combine_narrowed(VectorExpr *expression, VectorContext *context, const Vector *left,
				 const Selection *selection, bool *is_done)
{
	const bool	deciding = (expression->bool_operation == OR_EXPR);
	Vector	   *result = &expression->result;
	uint16		rows[BATCH_ROWS_MAX];
	Selection	undecided = undecided_rows(expression->bool_operation, left, selection, rows);
	const Vector *right;

	*is_done = undecided.count * NARROWING_SHARE_MIN <= selection->count;
	if (!*is_done)
		return true;
	if (!fill_columns(expression->right, context, selection))
		return false;
	FOR_SELECTED(row, selection,
				 result->values[row] = Int64GetDatum(deciding);
				 result->nulls[row] = false);
	result->has_nulls = false;
	if (undecided.count == 0)
		return true;
	right = vector_evaluate(expression->right, context, &undecided);
	if (right == NULL)
		return false;
	combine(expression->bool_operation, left, right, result, &undecided);
	return true;
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
	if (narrowing_pays(expression))
	{
		bool		is_done;

		if (!combine_narrowed(expression, context, left, selection, &is_done))
			return false;
		if (is_done)
			return true;
	}
	right = vector_evaluate(expression->right, context, selection);
	if (right == NULL)
		return false;
	combine(expression->bool_operation, left, right, result, selection);
	return true;
}
