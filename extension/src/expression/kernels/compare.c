/*
 * compare.c
 *	  Comparisons of integers, floats and numerics, one loop for each operator.
 */
#include "postgres.h"

#include <math.h>

#include "../expr.h"
#include "../numeric_vector.h"

/* PostgreSQL's order of floats: NaN equals NaN and is above all others. */
#define FLOAT_EQ(a_, b_) (isnan(a_) ? isnan(b_) : (a_) == (b_))
#define FLOAT_NE(a_, b_) (!FLOAT_EQ(a_, b_))
#define FLOAT_LT(a_, b_) (!isnan(a_) && (isnan(b_) || (a_) < (b_)))
#define FLOAT_LE(a_, b_) (isnan(b_) || (!isnan(a_) && (a_) <= (b_)))
#define FLOAT_GT(a_, b_) FLOAT_LT(b_, a_)
#define FLOAT_GE(a_, b_) FLOAT_LE(b_, a_)

#define INTEGER_EQ(a_, b_) ((a_) == (b_))
#define INTEGER_NE(a_, b_) ((a_) != (b_))
#define INTEGER_LT(a_, b_) ((a_) < (b_))
#define INTEGER_LE(a_, b_) ((a_) <= (b_))
#define INTEGER_GT(a_, b_) ((a_) > (b_))
#define INTEGER_GE(a_, b_) ((a_) >= (b_))

#define COMPARE_LOOP(type_, get_, test_) \
	FOR_SELECTED(row, selection, \
				 type_ a = get_(left[row]); \
				 type_ b = get_(right[row]); \
				 result[row] = Int64GetDatum((int64) (test_(a, b)))); \
	break

#define COMPARE_SWITCH(type_, get_, prefix_) \
	switch (operation) \
	{ \
		case OPERATION_EQ: COMPARE_LOOP(type_, get_, prefix_##_EQ); \
		case OPERATION_NE: COMPARE_LOOP(type_, get_, prefix_##_NE); \
		case OPERATION_LT: COMPARE_LOOP(type_, get_, prefix_##_LT); \
		case OPERATION_LE: COMPARE_LOOP(type_, get_, prefix_##_LE); \
		case OPERATION_GT: COMPARE_LOOP(type_, get_, prefix_##_GT); \
		default: COMPARE_LOOP(type_, get_, prefix_##_GE); \
	}

static void
compare_integers(VectorOperation operation, const Datum *left,
				 const Datum *right, Datum *result, const Selection *selection)
{
	COMPARE_SWITCH(int64, DatumGetInt64, INTEGER);
}

static void
compare_floats(VectorOperation operation, const Datum *left,
			   const Datum *right, Datum *result, const Selection *selection)
{
	COMPARE_SWITCH(float8, DatumGetFloat8, FLOAT);
}

/*
 * Bring two numeric operands to the larger of their scales.  *left and *right
 * are replaced by scratch vectors where that takes a multiplication.
 */
bool
numeric_align_scales(VectorExpr *expression, const Vector **left,
					 const Vector **right, const Selection *selection)
{
	int			scale = Max((*left)->scale, (*right)->scale);

	if ((*left)->scale < scale)
	{
		if (!numeric_vector_rescale(&expression->scratch_left, *left, scale,
									selection))
			return false;
		*left = &expression->scratch_left;
	}
	if ((*right)->scale < scale)
	{
		if (!numeric_vector_rescale(&expression->scratch_right, *right, scale,
									selection))
			return false;
		*right = &expression->scratch_right;
	}
	return true;
}

/*
 * A comparison of numerics with a constant, as one of their scaled integers with a bound.
 * The constant may have more decimals than they have, as averages do.
 */
bool
numeric_bound(const VectorExpr *constant, int scale, VectorOperation *operation, int64 *bound)
{
	const bool	is_read = constant->constant_state == NULL || constant->result.generation != 0;
	bool		is_exact;

	if (!is_read || constant->is_null_constant ||
		!numeric_decode_floor(constant->numeric, scale, bound, &is_exact))
		return false;
	if (is_exact)
		return true;
	switch (*operation)
	{
		case OPERATION_LE:
		case OPERATION_GT:
			return true;
		case OPERATION_LT:
			*operation = OPERATION_LE;
			return true;
		case OPERATION_GE:
			*operation = OPERATION_GT;
			return true;
		default:
			return false;
	}
}

static bool
compare_numerics_with_constant(VectorExpr *expression, const Vector *left,
							   const Selection *selection)
{
	Vector	   *bounds = &expression->scratch_right;
	VectorOperation operation = expression->operation;
	int64		bound;

	if (!numeric_bound(expression->right, left->scale, &operation, &bound))
		return false;
	FOR_SELECTED(row, selection, bounds->values[row] = Int64GetDatum(bound));
	vector_merge_nulls(&expression->result, left, NULL, selection);
	compare_integers(operation, left->values, bounds->values, expression->result.values,
					 selection);
	return true;
}

/* A comparison of two vectors as a vector of 0 and 1. */
bool
kernel_compare(VectorExpr *expression, VectorContext *context,
			   const Selection *selection)
{
	const Vector *left = vector_evaluate(expression->left, context, selection);
	const Vector *right = vector_evaluate(expression->right, context, selection);
	Vector	   *result = &expression->result;

	if (left != NULL && expression->left->kind == VALUE_NUMERIC &&
		expression->right->is_constant &&
		compare_numerics_with_constant(expression, left, selection))
		return true;
	if (left == NULL || right == NULL)
		return false;
	vector_merge_nulls(result, left, right, selection);
	if (expression->left->kind == VALUE_NUMERIC &&
		!numeric_align_scales(expression, &left, &right, selection))
		return false;
	if (expression->left->kind == VALUE_FLOAT)
		compare_floats(expression->operation, left->values, right->values,
					   result->values, selection);
	else
		compare_integers(expression->operation, left->values, right->values,
						 result->values, selection);
	return true;
}

/*
 * Narrow the selection to the rows whose integer is in a range, without a
 * vector of truth values between.  A NULL is in no range.
 */
void
select_range(const Vector *vector, IntegerRange range, Selection *selection,
			 uint16 *rows)
{
	const Datum *values = vector->values;
	const bool *nulls = vector->nulls;
	const uint64 lowest = (uint64) range.lowest;
	const uint64 span = (uint64) range.highest - lowest;
	int			count = 0;

	if (!range.wraps && range.lowest > range.highest)
		count = 0;
	else if (vector->has_nulls)
		FOR_SELECTED(row, selection,
					 rows[count] = row;
					 count += ((uint64) values[row] - lowest <= span) & !nulls[row]);
	else
		FOR_SELECTED(row, selection,
					 rows[count] = row;
					 count += ((uint64) values[row] - lowest <= span));
	/* A selection of all rows stays dense. */
	if (count < selection->count)
	{
		selection->rows = rows;
		selection->count = count;
	}
}
