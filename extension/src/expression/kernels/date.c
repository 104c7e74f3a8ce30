/*
 * date.c
 *	  Fields of dates and timestamps, and timestamps truncated to one.
 *
 * Infinite ones make a kernel return false: they have no fields.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "../expr.h"

#define DAYS_A_WEEK		7
#define MONTHS_A_QUARTER	3

/* Of the numeric that a second is. */
#define SECOND_SCALE	6

typedef struct FieldName
{
	const char *name;
	DateField	field;
} FieldName;

/* As the parser writes them; any other spelling goes by row. */
static const FieldName field_names[] = {
	{"year", FIELD_YEAR}, {"quarter", FIELD_QUARTER}, {"month", FIELD_MONTH},
	{"week", FIELD_WEEK}, {"day", FIELD_DAY}, {"dow", FIELD_DOW},
	{"isodow", FIELD_ISODOW}, {"doy", FIELD_DOY}, {"hour", FIELD_HOUR},
	{"minute", FIELD_MINUTE}, {"second", FIELD_SECOND}
};

bool
date_field_lookup(const char *name, int bytes, DateField *field)
{
	for (size_t i = 0; i < lengthof(field_names); i++)
	{
		if (strlen(field_names[i].name) == (size_t) bytes &&
			memcmp(field_names[i].name, name, bytes) == 0)
		{
			*field = field_names[i].field;
			return true;
		}
	}
	return false;
}

static inline bool
is_infinite(Oid type, int64 value)
{
	return type == DATEOID ? DATE_NOT_FINITE(value) : TIMESTAMP_NOT_FINITE(value);
}

/* Rounds down, before the epoch as well. */
static inline int64
floor_divide(int64 value, int64 divisor)
{
	return value / divisor - (value % divisor < 0);
}

/* A field of a day, counted from the epoch. */
static inline int64
field_of_day(DateField field, int64 day)
{
	const int	julian = (int) day + POSTGRES_EPOCH_JDATE;
	int			year;
	int			month;
	int			month_day;

	if (field == FIELD_DOW)
		return j2day(julian);
	if (field == FIELD_ISODOW)
		return j2day(julian) == 0 ? DAYS_A_WEEK : j2day(julian);
	j2date(julian, &year, &month, &month_day);
	switch (field)
	{
		case FIELD_YEAR:
			/* There is no year zero. */
			return year > 0 ? year : year - 1;
		case FIELD_QUARTER:
			return (month - 1) / MONTHS_A_QUARTER + 1;
		case FIELD_MONTH:
			return month;
		case FIELD_DAY:
			return month_day;
		default:
			return julian - date2j(year, 1, 1) + 1;
	}
}

static inline int64
field_of_time(DateField field, int64 time)
{
	switch (field)
	{
		case FIELD_HOUR:
			return time / USECS_PER_HOUR;
		case FIELD_MINUTE:
			return time / USECS_PER_MINUTE % MINS_PER_HOUR;
		default:
			return time % USECS_PER_MINUTE;
	}
}

bool
kernel_extract(VectorExpr *expression, VectorContext *context,
			   const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Vector	   *result = &expression->result;
	const DateField field = expression->field;
	const Oid	type = expression->left->type;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];

	if (operand == NULL)
		return false;
	vector_merge_nulls(result, operand, NULL, selection);
	result->scale = field == FIELD_SECOND ? SECOND_SCALE : 0;
	if (result->has_nulls)
		FOR_SELECTED(row, selection, result->values[row] = 0);
	present = selection_without_nulls(selection, operand, rows);
	FOR_SELECTED(row, &present,
				 int64 value = DatumGetInt64(operand->values[row]);
				 int64 day;
				 if (unlikely(is_infinite(type, value)))
				 return false;
				 day = type == DATEOID ? value : floor_divide(value, USECS_PER_DAY);
				 result->values[row] =
				 Int64GetDatum(field <= FIELD_DOY ? field_of_day(field, day) :
							   field_of_time(field, value - day * USECS_PER_DAY)));
	return true;
}

/* The first day of the field that a day lies in. */
static inline int64
truncate_day(DateField field, int64 day)
{
	const int	julian = (int) day + POSTGRES_EPOCH_JDATE;
	int			year;
	int			month;
	int			month_day;

	if (field == FIELD_DAY)
		return day;
	if (field == FIELD_WEEK)
		return day - (field_of_day(FIELD_ISODOW, day) - 1);
	j2date(julian, &year, &month, &month_day);
	if (field == FIELD_YEAR)
		month = 1;
	else if (field == FIELD_QUARTER)
		month = (month - 1) / MONTHS_A_QUARTER * MONTHS_A_QUARTER + 1;
	return date2j(year, month, 1) - POSTGRES_EPOCH_JDATE;
}

static inline int64
truncate_timestamp(DateField field, int64 value)
{
	switch (field)
	{
		case FIELD_HOUR:
			return floor_divide(value, USECS_PER_HOUR) * USECS_PER_HOUR;
		case FIELD_MINUTE:
			return floor_divide(value, USECS_PER_MINUTE) * USECS_PER_MINUTE;
		case FIELD_SECOND:
			return floor_divide(value, USECS_PER_SEC) * USECS_PER_SEC;
		default:
			return truncate_day(field, floor_divide(value, USECS_PER_DAY)) * USECS_PER_DAY;
	}
}

bool
kernel_truncate(VectorExpr *expression, VectorContext *context,
				const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Vector	   *result = &expression->result;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];

	if (operand == NULL)
		return false;
	vector_merge_nulls(result, operand, NULL, selection);
	present = selection_without_nulls(selection, operand, rows);
	FOR_SELECTED(row, &present,
				 int64 value = DatumGetInt64(operand->values[row]);
				 /* In the first years, the start of one may be no timestamp. */
				 if (unlikely(is_infinite(TIMESTAMPOID, value) ||
							  value < MIN_TIMESTAMP + 366 * USECS_PER_DAY))
				 return false;
				 result->values[row] = Int64GetDatum(truncate_timestamp(expression->field, value)));
	return true;
}
