/*
 * arithmetic.c
 *	  Arithmetic and conversions.  An overflow or a zero divisor anywhere in
 *	  the batch makes the kernel return false, never an error.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "utils/date.h"

#include "../expr.h"
#include "../numeric_vector.h"

/* The range that a result of an integer type must keep to. */
static void
integer_range(Oid type, int64 *minimum, int64 *maximum)
{
	*minimum = (type == INT2OID) ? PG_INT16_MIN :
		(type == INT4OID) ? PG_INT32_MIN : PG_INT64_MIN;
	*maximum = (type == INT2OID) ? PG_INT16_MAX :
		(type == INT4OID) ? PG_INT32_MAX : PG_INT64_MAX;
}

#define INTEGER_LOOP(statement_) \
	FOR_SELECTED(row, selection, \
				 int64 a = DatumGetInt64(left[row]); \
				 int64 b = DatumGetInt64(right[row]); \
				 int64 value; \
				 statement_; \
				 fails |= (value < minimum) | (value > maximum); \
				 result[row] = Int64GetDatum(value)); \
	break

/* Division and modulo; b == 0 fails, b == -1 is a negation. */
static bool
divide_integers(VectorOperation operation, const Datum *left,
				const Datum *right, Datum *result, int64 minimum,
				int64 maximum, const Selection *selection)
{
	bool		fails = false;

	FOR_SELECTED(row, selection,
				 int64 a = DatumGetInt64(left[row]);
				 int64 b = DatumGetInt64(right[row]);
				 int64 value;
				 if (unlikely(b == 0 || (b == -1 && a == PG_INT64_MIN)))
				 return false;
				 value = operation == OPERATION_DIVIDE ? a / b : a % b;
				 fails |= (value < minimum) | (value > maximum);
				 result[row] = Int64GetDatum(value));
	return !fails;
}

static bool
compute_integers(VectorOperation operation, Oid type, const Datum *left,
				 const Datum *right, Datum *result, const Selection *selection)
{
	int64		minimum;
	int64		maximum;
	bool		fails = false;

	integer_range(type, &minimum, &maximum);
	switch (operation)
	{
		case OPERATION_ADD:
			INTEGER_LOOP(fails |= __builtin_add_overflow(a, b, &value));
		case OPERATION_SUBTRACT:
			INTEGER_LOOP(fails |= __builtin_sub_overflow(a, b, &value));
		case OPERATION_MULTIPLY:
			INTEGER_LOOP(fails |= __builtin_mul_overflow(a, b, &value));
		default:
			return divide_integers(operation, left, right, result, minimum,
								   maximum, selection);
	}
	return !fails;
}

/*
 * An infinite result may be an overflow and a zero one an underflow: both
 * leave the decision to the row path.
 */
#define FLOAT_LOOP(type_, expression_) \
	FOR_SELECTED(row, selection, \
				 type_ a = (type_) DatumGetFloat8(left[row]); \
				 type_ b = (type_) DatumGetFloat8(right[row]); \
				 type_ value = expression_; \
				 fails |= (isinf(value) != 0) | \
				 (checks_zero && ((divides && b == 0) || (value == 0 && a != 0))); \
				 result[row] = Float8GetDatum((float8) value)); \
	break

#define FLOAT_SWITCH(type_) \
	switch (operation) \
	{ \
		case OPERATION_ADD: FLOAT_LOOP(type_, a + b); \
		case OPERATION_SUBTRACT: FLOAT_LOOP(type_, a - b); \
		case OPERATION_MULTIPLY: FLOAT_LOOP(type_, a * b); \
		default: FLOAT_LOOP(type_, a / b); \
	}

static bool
compute_floats(VectorOperation operation, Oid type, const Datum *left,
			   const Datum *right, Datum *result, const Selection *selection)
{
	const bool	divides = (operation == OPERATION_DIVIDE);
	const bool	checks_zero = divides || operation == OPERATION_MULTIPLY;
	bool		fails = false;

	if (type == FLOAT4OID)
		FLOAT_SWITCH(float4)
	else
		FLOAT_SWITCH(float8)
	return !fails;
}

/* Display scale of each row, where they differ within an operand. */
static void
merge_scales(Vector *result, VectorOperation operation, const Vector *left,
			 const Vector *right, const Selection *selection)
{
	result->has_mixed_scales = left->has_mixed_scales || right->has_mixed_scales;
	if (!result->has_mixed_scales)
		return;
	FOR_SELECTED(row, selection,
				 int a = left->has_mixed_scales ? left->scales[row] : left->scale;
				 int b = right->has_mixed_scales ? right->scales[row] : right->scale;
				 result->scales[row] = operation == OPERATION_MULTIPLY ? a + b : Max(a, b));
}

static bool
compute_numerics(VectorExpr *expression, const Vector *left,
				 const Vector *right, const Selection *selection)
{
	Vector	   *result = &expression->result;

	/* A vector keeps display scales in a byte. */
	if (left->scale + right->scale > PG_UINT8_MAX)
		return false;
	merge_scales(result, expression->operation, left, right, selection);
	if (expression->operation == OPERATION_MULTIPLY)
		result->scale = left->scale + right->scale;
	else if (!numeric_align_scales(expression, &left, &right, selection))
		return false;
	else
		result->scale = left->scale;
	return compute_integers(expression->operation, INT8OID, left->values,
							right->values, result->values, selection);
}

bool
kernel_arithmetic(VectorExpr *expression, VectorContext *context,
				  const Selection *selection)
{
	const Vector *left = vector_evaluate(expression->left, context, selection);
	const Vector *right = vector_evaluate(expression->right, context, selection);
	Vector	   *result = &expression->result;

	if (left == NULL || right == NULL)
		return false;
	vector_merge_nulls(result, left, right, selection);
	switch (expression->kind)
	{
		case VALUE_NUMERIC:
			return compute_numerics(expression, left, right, selection);
		case VALUE_FLOAT:
			return compute_floats(expression->operation, expression->type,
								  left->values, right->values, result->values,
								  selection);
		default:
			return compute_integers(expression->operation, expression->type,
									left->values, right->values,
									result->values, selection);
	}
}

static bool
negate(VectorExpr *expression, const Vector *operand, const Selection *selection)
{
	Datum	   *result = expression->result.values;
	int64		minimum;
	int64		maximum;
	bool		fails = false;

	integer_range(expression->type, &minimum, &maximum);
	if (expression->kind == VALUE_FLOAT)
		FOR_SELECTED(row, selection,
					 result[row] = Float8GetDatum(-DatumGetFloat8(operand->values[row])));
	else
		FOR_SELECTED(row, selection,
					 int64 value = DatumGetInt64(operand->values[row]);
					 fails |= (value == minimum);
					 result[row] = Int64GetDatum((int64) (0 - (uint64) value)));
	return !fails;
}

/* As negate, of what is below zero. */
static bool
make_absolute(VectorExpr *expression, const Vector *operand,
			  const Selection *selection)
{
	Datum	   *result = expression->result.values;
	int64		minimum;
	int64		maximum;
	bool		fails = false;

	integer_range(expression->type, &minimum, &maximum);
	if (expression->kind == VALUE_FLOAT)
		FOR_SELECTED(row, selection,
					 result[row] = Float8GetDatum(fabs(DatumGetFloat8(operand->values[row]))));
	else
		FOR_SELECTED(row, selection,
					 int64 value = DatumGetInt64(operand->values[row]);
					 fails |= (value == minimum);
					 result[row] = Int64GetDatum(value < 0 ? (int64) (0 - (uint64) value) : value));
	return !fails;
}

/*
 * A date as a timestamp, in the order of date_cmp_timestamp: dates beyond the
 * last timestamp come after every finite one and before infinity.
 */
static inline int64
date_to_timestamp(int64 date, bool *is_out_of_range)
{
	if (DATE_IS_NOBEGIN(date))
		return DT_NOBEGIN;
	if (DATE_IS_NOEND(date))
		return DT_NOEND;
	if (date >= (TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE))
	{
		*is_out_of_range = true;
		return DT_NOEND - 1;
	}
	return date * USECS_PER_DAY;
}

/* Conversions and sign: functions of one argument. */
bool
kernel_convert(VectorExpr *expression, VectorContext *context,
			   const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Datum	   *result = expression->result.values;
	bool		is_out_of_range = false;

	if (operand == NULL)
		return false;
	vector_merge_nulls(&expression->result, operand, NULL, selection);
	expression->result.scale = operand->scale;
	merge_scales(&expression->result, OPERATION_COPY, operand, operand, selection);
	switch (expression->operation)
	{
		case OPERATION_NEGATE:
			return negate(expression, operand, selection);
		case OPERATION_ABSOLUTE:
			return make_absolute(expression, operand, selection);
		case OPERATION_TO_FLOAT:
			FOR_SELECTED(row, selection,
						 result[row] = Float8GetDatum((float8) DatumGetInt64(operand->values[row])));
			return true;
		case OPERATION_DATE_TO_TIMESTAMP:
			FOR_SELECTED(row, selection,
						 result[row] = Int64GetDatum(date_to_timestamp(DatumGetInt64(operand->values[row]),
																	   &is_out_of_range)));
			/* Only comparisons may take a date that is no timestamp. */
			return !is_out_of_range || expression->is_for_comparison;
		default:
			if (expression->operation == OPERATION_TO_NUMERIC)
				expression->result.scale = 0;
			FOR_SELECTED(row, selection, result[row] = operand->values[row]);
			return true;
	}
}
