/*
 * interval.c
 *	  Days added to dates, and intervals to dates and timestamps.
 *
 * Infinite ones, and results out of range, make a kernel return false.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "../expr.h"

/* date + days, date - days, date - date. */
bool
kernel_date_arithmetic(VectorExpr *expression, VectorContext *context,
					   const Selection *selection)
{
	const Vector *left = vector_evaluate(expression->left, context, selection);
	const Vector *right = vector_evaluate(expression->right, context, selection);
	Vector	   *result = &expression->result;
	const bool	is_difference = expression->operation == OPERATION_DATE_DIFFERENCE;
	const int64 sign = expression->operation == OPERATION_DATE_ADD ? 1 : -1;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];
	bool		fails = false;

	if (left == NULL || right == NULL)
		return false;
	vector_merge_nulls(result, left, right, selection);
	if (result->has_nulls)
		FOR_SELECTED(row, selection, result->values[row] = 0);
	present = selection_without_nulls(selection, result, rows);
	FOR_SELECTED(row, &present,
				 int64 date = DatumGetInt64(left->values[row]);
				 int64 other = DatumGetInt64(right->values[row]);
				 int64 value = date + sign * other;
				 fails |= DATE_NOT_FINITE(date) ||
				 (is_difference ? DATE_NOT_FINITE(other) : !IS_VALID_DATE(value));
				 result->values[row] = Int64GetDatum(value));
	return !fails;
}

static inline int64
floor_divide(int64 value, int64 divisor)
{
	return value / divisor - (value % divisor < 0);
}

/* The same day of a later or earlier month, or that month's last day. */
static inline int64
add_months(int64 day, int64 months)
{
	int			year;
	int			month;
	int			month_day;
	int64		month_number;

	j2date((int) day + POSTGRES_EPOCH_JDATE, &year, &month, &month_day);
	month_number = (int64) year * MONTHS_PER_YEAR + month - 1 + months;
	year = (int) floor_divide(month_number, MONTHS_PER_YEAR);
	month = (int) (month_number - (int64) year * MONTHS_PER_YEAR) + 1;
	month_day = Min(month_day, day_tab[isleap(year)][month - 1]);
	return date2j(year, month, month_day) - POSTGRES_EPOCH_JDATE;
}

/* Years for which the calendar's functions are exact, far beyond those of timestamps. */
#define MONTHS_MAX	(500000 * MONTHS_PER_YEAR)

/* A timestamp, and an interval's months, days and time, in this order; false: it is out of range. */
static inline bool
add_interval(int64 *timestamp, int64 months, int64 days, int64 time)
{
	int64		value = *timestamp;

	if (TIMESTAMP_NOT_FINITE(value) || !IS_VALID_TIMESTAMP(value))
		return false;
	if (months != 0)
	{
		const int64 day = floor_divide(value, USECS_PER_DAY);
		const int64 moved = add_months(day, months);

		if (moved < MIN_TIMESTAMP / USECS_PER_DAY || moved > END_TIMESTAMP / USECS_PER_DAY)
			return false;
		value += (moved - day) * USECS_PER_DAY;
		if (!IS_VALID_TIMESTAMP(value))
			return false;
	}
	if (days != 0)
	{
		int64		usecs;

		if (__builtin_mul_overflow(days, USECS_PER_DAY, &usecs) ||
			__builtin_add_overflow(value, usecs, &value) || !IS_VALID_TIMESTAMP(value))
			return false;
	}
	if (__builtin_add_overflow(value, time, &value) || !IS_VALID_TIMESTAMP(value))
		return false;
	*timestamp = value;
	return true;
}

bool
kernel_add_interval(VectorExpr *expression, VectorContext *context,
					const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	const Interval *interval =
		DatumGetIntervalP(((const Const *) expression->leaf)->constvalue);
	const int64 sign = expression->operation == OPERATION_ADD_INTERVAL ? 1 : -1;
	const bool	is_date = expression->left->type == DATEOID;
	Vector	   *result = &expression->result;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];

	if (operand == NULL || interval->time == PG_INT64_MIN ||
		interval->month > MONTHS_MAX || interval->month < -MONTHS_MAX)
		return false;
	vector_merge_nulls(result, operand, NULL, selection);
	if (result->has_nulls)
		FOR_SELECTED(row, selection, result->values[row] = 0);
	present = selection_without_nulls(selection, operand, rows);
	FOR_SELECTED(row, &present,
				 int64 value = DatumGetInt64(operand->values[row]);
				 if (is_date && (DATE_NOT_FINITE(value) ||
								 value >= TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE))
				 return false;
				 value *= is_date ? USECS_PER_DAY : 1;
				 if (!add_interval(&value, sign * interval->month, sign * interval->day,
								   sign * interval->time))
				 return false;
				 result->values[row] = Int64GetDatum(value));
	return true;
}
