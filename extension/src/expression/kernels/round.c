/*
 * round.c
 *	  Roundings, and casts to types with less room.
 *
 * A value that does not fit makes a kernel return false.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/date.h"
#include "utils/timestamp.h"

#include "../expr.h"
#include "../numeric_vector.h"

/* Integers that a double holds exactly, and powers of ten. */
#define EXACT_INTEGER_MAX	(INT64CONST(1) << 53)
#define EXACT_POWER_OF_TEN_MAX	22

/* value / divisor as an operation rounds it; the divisor is positive. */
static inline int64
divide_rounded(VectorOperation operation, int64 value, int64 divisor)
{
	const int64 quotient = value / divisor;
	const int64 rest = value % divisor;

	switch (operation)
	{
		case OPERATION_CEIL:
			return quotient + (rest > 0);
		case OPERATION_FLOOR:
			return quotient - (rest < 0);
		case OPERATION_ROUND_DOWN:
			return quotient;
		default:
			/* Half away from zero. */
			if (rest >= 0)
				return quotient + (rest >= divisor - rest);
			return quotient - (-rest >= divisor + rest);
	}
}

static bool
round_numerics(VectorExpr *expression, const Vector *operand, int digits,
			   const Selection *present)
{
	Vector	   *result = &expression->result;
	const int	less = operand->scale - digits;
	bool		fails = false;

	result->scale = digits;
	result->has_mixed_scales = false;
	if (less > POWER_OF_TEN_MAX || less < -POWER_OF_TEN_MAX)
		return false;
	if (less > 0)
		FOR_SELECTED(row, present,
					 result->values[row] =
					 Int64GetDatum(divide_rounded(expression->operation,
												  DatumGetInt64(operand->values[row]),
												  powers_of_ten[less])));
	else
		FOR_SELECTED(row, present,
					 int64 value;
					 fails |= __builtin_mul_overflow(DatumGetInt64(operand->values[row]),
													 powers_of_ten[-less], &value);
					 result->values[row] = Int64GetDatum(value));
	return !fails;
}

#define ROUND_FLOATS(function_) \
	FOR_SELECTED(row, present, \
				 result[row] = Float8GetDatum(function_(DatumGetFloat8(operand->values[row])))); \
	break

static void
round_floats(VectorOperation operation, const Vector *operand, Datum *result,
			 const Selection *present)
{
	switch (operation)
	{
		case OPERATION_CEIL:
			ROUND_FLOATS(ceil);
		case OPERATION_FLOOR:
			ROUND_FLOATS(floor);
		case OPERATION_ROUND_DOWN:
			ROUND_FLOATS(trunc);
		default:
			ROUND_FLOATS(rint);
	}
}

static Selection
begin_result(VectorExpr *expression, const Vector *operand, const Selection *selection,
			 uint16 *rows)
{
	Vector	   *result = &expression->result;

	vector_merge_nulls(result, operand, NULL, selection);
	result->scale = 0;
	if (result->has_nulls)
		FOR_SELECTED(row, selection, result->values[row] = 0);
	return selection_without_nulls(selection, operand, rows);
}

/* round, trunc, ceil and floor; of a numeric, to a constant number of decimals. */
bool
kernel_round(VectorExpr *expression, VectorContext *context, const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];
	int			digits = 0;

	if (operand == NULL)
		return false;
	present = begin_result(expression, operand, selection, rows);
	if (expression->right != NULL)
		digits = (int) DatumGetInt64(expression->right->result.values[0]);
	if (expression->kind == VALUE_NUMERIC)
		return round_numerics(expression, operand, digits, &present);
	round_floats(expression->operation, operand, expression->result.values, &present);
	return true;
}

/* Is a rounded float an integer of a type?  As core's FLOAT8_FITS_IN_… macros say. */
static inline bool
float_fits(Oid type, float8 value)
{
	return !isnan(value) &&
		(type == INT2OID ? FLOAT8_FITS_IN_INT16(value) :
		 type == INT4OID ? FLOAT8_FITS_IN_INT32(value) : FLOAT8_FITS_IN_INT64(value));
}

static inline bool
integer_fits(Oid type, int64 value)
{
	return type == INT2OID ? value >= PG_INT16_MIN && value <= PG_INT16_MAX :
		type == INT4OID ? value >= PG_INT32_MIN && value <= PG_INT32_MAX : true;
}

static bool
to_integers(VectorExpr *expression, const Vector *operand, const Selection *present)
{
	const Oid	type = expression->type;
	const ValueKind kind = expression->left->kind;
	Datum	   *result = expression->result.values;
	bool		fails = false;

	if (kind == VALUE_NUMERIC && operand->scale > POWER_OF_TEN_MAX)
		return false;
	FOR_SELECTED(row, present,
				 int64 value;
				 if (kind == VALUE_FLOAT)
				 {
					 float8 rounded = rint(DatumGetFloat8(operand->values[row]));
					 if (!float_fits(type, rounded))
					 return false;
					 value = (int64) rounded;
				 }
				 else if (kind == VALUE_NUMERIC)
				 value = divide_rounded(OPERATION_ROUND, DatumGetInt64(operand->values[row]),
										powers_of_ten[operand->scale]);
				 else
				 value = DatumGetInt64(operand->values[row]);
				 fails |= !integer_fits(type, value);
				 result[row] = Int64GetDatum(value));
	return !fails;
}

/*
 * A numeric as a double is the nearest one, as its decimals are read.  Where both the
 * digits and the power of ten are exact doubles, that is what their division makes.
 */
static bool
to_doubles(const Vector *operand, Datum *result, const Selection *present)
{
	const float8 divisor = operand->scale <= POWER_OF_TEN_MAX ?
		(float8) powers_of_ten[operand->scale] : 0;
	bool		fails = operand->scale > Min(POWER_OF_TEN_MAX, EXACT_POWER_OF_TEN_MAX);

	if (fails)
		return false;
	FOR_SELECTED(row, present,
				 int64 value = DatumGetInt64(operand->values[row]);
				 fails |= value > EXACT_INTEGER_MAX || value < -EXACT_INTEGER_MAX;
				 result[row] = Float8GetDatum((float8) value / divisor));
	return !fails;
}

static bool
to_float4(ValueKind kind, const Vector *operand, Datum *result, const Selection *present)
{
	bool		fails = false;

	if (kind == VALUE_FLOAT)
		FOR_SELECTED(row, present,
					 float8 value = DatumGetFloat8(operand->values[row]);
					 float4 narrow = (float4) value;
					 fails |= (isinf(narrow) && !isinf(value)) || (narrow == 0 && value != 0);
					 result[row] = Float8GetDatum((float8) narrow));
	else
		FOR_SELECTED(row, present,
					 result[row] = Float8GetDatum((float8) (float4) DatumGetInt64(operand->values[row])));
	return !fails;
}

static bool
to_dates(const Vector *operand, Datum *result, const Selection *present)
{
	bool		fails = false;

	FOR_SELECTED(row, present,
				 int64 value = DatumGetInt64(operand->values[row]);
				 fails |= TIMESTAMP_NOT_FINITE(value);
				 result[row] = Int64GetDatum(value / USECS_PER_DAY - (value % USECS_PER_DAY < 0)));
	return !fails;
}

/* Casts that can fail, or round. */
bool
kernel_narrow(VectorExpr *expression, VectorContext *context, const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Datum	   *result = expression->result.values;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];

	if (operand == NULL)
		return false;
	present = begin_result(expression, operand, selection, rows);
	switch (expression->operation)
	{
		case OPERATION_TO_INTEGER:
			return to_integers(expression, operand, &present);
		case OPERATION_TO_FLOAT:
			return to_doubles(operand, result, &present);
		case OPERATION_TO_FLOAT4:
			return to_float4(expression->left->kind, operand, result, &present);
		case OPERATION_TO_DATE:
			return to_dates(operand, result, &present);
		default:
			FOR_SELECTED(row, &present, result[row] = Int64GetDatum(operand->values[row] != 0));
			return true;
	}
}
