/*
 * numeric_vector.c
 *	  numeric values as scaled 64-bit integers, and 128-bit sums back to numeric.
 *
 * The on-disk layout read here is that of numeric.c, unchanged since 9.1: a
 * 16-bit header (short form: sign, display scale and weight in it; long form:
 * weight in the next word), then digits to the base 10,000.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "numeric_vector.h"

#define DIGIT_BASE			10000
#define DIGIT_DECIMALS		4
/* Base-10,000 digits that fit in 64 bits without and with overflow checks. */
#define DIGITS_UNCHECKED_MAX	4
#define DIGITS_CHECKED_MAX		5

#define HEADER_FORM_MASK	0xC000
#define HEADER_NEGATIVE		0x4000
#define HEADER_SHORT		0x8000
#define HEADER_SPECIAL		0xC000
#define LONG_SCALE_MASK		0x3FFF
#define SHORT_NEGATIVE		0x2000
#define SHORT_SCALE_MASK	0x1F80
#define SHORT_SCALE_SHIFT	7
#define SHORT_WEIGHT_SIGN	0x0040
#define SHORT_WEIGHT_MASK	0x003F

#define HEADER_NAN			0xC000
#define HEADER_INFINITY		0xD000

/* An order's bits: a weight, and so many digits behind it. */
#define ORDER_DIGITS		4
#define ORDER_DIGIT_BITS	14
#define ORDER_WEIGHT_MIN	(-44)
#define ORDER_WEIGHT_MAX	82

const int64 powers_of_ten[POWER_OF_TEN_MAX + 1] = {
	INT64CONST(1), INT64CONST(10), INT64CONST(100), INT64CONST(1000),
	INT64CONST(10000), INT64CONST(100000), INT64CONST(1000000),
	INT64CONST(10000000), INT64CONST(100000000), INT64CONST(1000000000),
	INT64CONST(10000000000), INT64CONST(100000000000),
	INT64CONST(1000000000000), INT64CONST(10000000000000),
	INT64CONST(100000000000000), INT64CONST(1000000000000000),
	INT64CONST(10000000000000000), INT64CONST(100000000000000000),
	INT64CONST(1000000000000000000)
};

/* digits * 10000^(weight - count + 1), times 10^scale; false if too large. */
static inline bool
scale_digits(const char *digits, int count, int weight, int scale,
			 int64 *scaled)
{
	int64		sum = 0;
	int			power = scale + DIGIT_DECIMALS * (weight - count + 1);

	if (count > DIGITS_CHECKED_MAX)
		return false;
	for (int i = 0; i < count; i++)
	{
		int16		digit;

		memcpy(&digit, digits + i * sizeof(int16), sizeof(int16));
		if (i < DIGITS_UNCHECKED_MAX)
			sum = sum * DIGIT_BASE + digit;
		else if (__builtin_mul_overflow(sum, (int64) DIGIT_BASE, &sum) ||
				 __builtin_add_overflow(sum, (int64) digit, &sum))
			return false;
	}
	switch (power)
	{
		case -3:
			*scaled = sum / 1000;
			return true;
		case -2:
			*scaled = sum / 100;
			return true;
		case -1:
			*scaled = sum / 10;
			return true;
		case 0:
			*scaled = sum;
			return true;
		default:
			if (sum == 0)
			{
				*scaled = 0;
				return true;
			}
			return power > 0 && power <= POWER_OF_TEN_MAX &&
				!__builtin_mul_overflow(sum, powers_of_ten[power], scaled);
	}
}

/* A stored numeric: digits * 10000^(weight - index). */
typedef struct StoredNumeric
{
	const char *digits;
	int			digit_count;
	int			weight;
	int			scale;			/* display scale */
	bool		is_negative;
} StoredNumeric;

/* False for NaN, infinities, and values that are stored compressed or elsewhere. */
static inline bool
read_stored(const void *value, StoredNumeric *stored)
{
	const char *data = VARDATA_ANY(value);
	uint16		header;
	int16		weight;
	int			digit_bytes;

	if (VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value))
		return false;
	digit_bytes = VARSIZE_ANY_EXHDR(value) - sizeof(uint16);
	memcpy(&header, data, sizeof(header));
	data += sizeof(header);
	if (likely((header & HEADER_FORM_MASK) == HEADER_SHORT))
	{
		stored->scale = (header & SHORT_SCALE_MASK) >> SHORT_SCALE_SHIFT;
		weight = ((header & SHORT_WEIGHT_SIGN) ? ~SHORT_WEIGHT_MASK : 0) |
			(header & SHORT_WEIGHT_MASK);
		stored->is_negative = (header & SHORT_NEGATIVE) != 0;
	}
	else if ((header & HEADER_FORM_MASK) == HEADER_SPECIAL)
		return false;
	else
	{
		stored->scale = header & LONG_SCALE_MASK;
		memcpy(&weight, data, sizeof(weight));
		data += sizeof(weight);
		digit_bytes -= sizeof(weight);
		stored->is_negative = (header & HEADER_FORM_MASK) == HEADER_NEGATIVE;
	}
	stored->weight = weight;
	stored->digits = data;
	stored->digit_count = digit_bytes / (int) sizeof(int16);
	return true;
}

/*
 * An integer by which numerics are ordered, as far as their first digits tell: those of one integer may differ.
 * The value is inline and not compressed.
 */
int64
numeric_order(const void *value)
{
	StoredNumeric stored;
	int64		order;

	Assert(!VARATT_IS_EXTERNAL(value) && !VARATT_IS_COMPRESSED(value));
	if (!read_stored(value, &stored))
	{
		uint16		header;

		memcpy(&header, VARDATA_ANY(value), sizeof(header));
		return header == HEADER_NAN ? PG_INT64_MAX : header == HEADER_INFINITY ? PG_INT64_MAX - 1 : PG_INT64_MIN;
	}
	if (stored.digit_count == 0 || stored.weight < ORDER_WEIGHT_MIN)
		return 0;
	if (stored.weight > ORDER_WEIGHT_MAX)
		order = PG_INT64_MAX - 2;
	else
	{
		order = stored.weight - ORDER_WEIGHT_MIN;
		for (int i = 0; i < ORDER_DIGITS; i++)
		{
			int16		digit = 0;

			if (i < stored.digit_count)
				memcpy(&digit, stored.digits + i * sizeof(int16), sizeof(int16));
			order = (order << ORDER_DIGIT_BITS) | digit;
		}
	}
	return stored.is_negative ? -order : order;
}

/*
 * Decode a numeric in storage format to scaled / 10^scale, with scale its
 * display scale.  False for values that can't be read or are too large for 64 bits.
 */
static inline bool
decode(const void *value, int64 *scaled, int *scale)
{
	StoredNumeric stored;

	if (!read_stored(value, &stored))
		return false;
	*scale = stored.scale;
	/* A vector keeps display scales in a byte. */
	if (stored.scale > PG_UINT8_MAX ||
		!scale_digits(stored.digits, stored.digit_count, stored.weight, stored.scale, scaled))
		return false;
	if (stored.is_negative)
		*scaled = -*scaled;
	return true;
}

/*
 * The largest integer up to a numeric times 10^scale, and whether it is just that.  Of a
 * numeric with any number of decimals; false where the integer doesn't fit in 64 bits.
 */
bool
numeric_decode_floor(const void *value, int scale, int64 *floor, bool *is_exact)
{
	StoredNumeric stored;
	int64		sum = 0;
	int			power;

	if (!read_stored(value, &stored))
		return false;
	*is_exact = true;
	power = scale + DIGIT_DECIMALS * (stored.weight + 1);
	for (int i = 0; i < stored.digit_count && *is_exact; i++)
	{
		int16		digit;
		int64		dropped;

		memcpy(&digit, stored.digits + i * sizeof(int16), sizeof(int16));
		power -= DIGIT_DECIMALS;
		dropped = powers_of_ten[Min(Max(-power, 0), DIGIT_DECIMALS)];
		*is_exact = digit % dropped == 0;
		if (__builtin_mul_overflow(sum, DIGIT_BASE / dropped, &sum) ||
			__builtin_add_overflow(sum, digit / dropped, &sum))
			return false;
	}
	if (sum != 0 && power > 0 &&
		(power > POWER_OF_TEN_MAX || __builtin_mul_overflow(sum, powers_of_ten[power], &sum)))
		return false;
	*floor = stored.is_negative ? -sum - !*is_exact : sum;
	return true;
}

bool
numeric_decode(const void *value, int64 *scaled, int *scale)
{
	return decode(value, scaled, scale);
}

/* Decode values of differing display scales to the largest one. */
static bool
decode_mixed(Vector *result, const Datum *pointers, const Selection *selection)
{
	int			scale_max = 0;

	FOR_SELECTED(row, selection,
				 int64 scaled;
				 int scale;
				 if (!decode(DatumGetPointer(pointers[row]), &scaled, &scale))
				 return false;
				 result->values[row] = Int64GetDatum(scaled);
				 result->scales[row] = scale;
				 scale_max = Max(scale_max, scale));
	FOR_SELECTED(row, selection,
				 int power = scale_max - result->scales[row];
				 int64 scaled;
				 if (power > POWER_OF_TEN_MAX ||
					 __builtin_mul_overflow(DatumGetInt64(result->values[row]),
											powers_of_ten[power], &scaled))
				 return false;
				 result->values[row] = Int64GetDatum(scaled));
	result->scale = scale_max;
	result->has_mixed_scales = true;
	return true;
}

/*
 * Decode a vector of pointers to stored numerics.  The result is not usable
 * where a value does not fit; NULL rows read 0.
 */
void
numeric_vector_decode(Vector *result, const Vector *pointers,
					  const Selection *selection)
{
	const Datum *starts = pointers->values;
	Selection	present = *selection;
	uint16		rows[BATCH_ROWS_MAX];
	int			scale_first = -1;
	int			scale_differs = 0;

	result->has_nulls = pointers->has_nulls;
	result->has_mixed_scales = false;
	result->usable = true;
	result->scale = 0;
	if (pointers->has_nulls)
	{
		memcpy(result->nulls, pointers->nulls, sizeof(bool) * BATCH_ROWS_MAX);
		FOR_SELECTED(row, selection, result->values[row] = 0);
		present = selection_without_nulls(selection, pointers, rows);
	}
	FOR_SELECTED(row, &present,
				 int64 scaled;
				 int scale;
				 if (unlikely(!decode(DatumGetPointer(starts[row]), &scaled, &scale)))
				 {
					 result->usable = false;
					 return;
				 }
				 if (unlikely(scale_first < 0))
				 scale_first = scale;
				 scale_differs |= scale ^ scale_first;
				 result->values[row] = Int64GetDatum(scaled));
	if (scale_differs != 0)
		result->usable = decode_mixed(result, starts, &present);
	else
		result->scale = Max(scale_first, 0);
}

/* vector at a larger scale; false where a value does not fit. */
bool
numeric_vector_rescale(Vector *result, const Vector *vector, int scale,
					   const Selection *selection)
{
	int			power = scale - vector->scale;
	bool		overflows = false;
	int64		factor;

	if (power > POWER_OF_TEN_MAX)
		return false;
	factor = powers_of_ten[power];
	FOR_SELECTED(row, selection,
				 int64 scaled;
				 overflows |= __builtin_mul_overflow(DatumGetInt64(vector->values[row]),
													 factor, &scaled);
				 result->values[row] = Int64GetDatum(scaled));
	result->scale = scale;
	return !overflows;
}

/* *value times 10^power; false, and *value as it was, where it doesn't fit. */
bool
int128_multiply_by_power(int128 *value, int power)
{
	int128		product = *value;

	while (power > 0)
	{
		int			step = Min(power, POWER_OF_TEN_MAX);

		if (__builtin_mul_overflow(product, (int128) powers_of_ten[step], &product))
			return false;
		power -= step;
	}
	*value = product;
	return true;
}

static Numeric
numeric_add_datums(Numeric left, Numeric right)
{
	return DatumGetNumeric(DirectFunctionCall2(numeric_add,
											   NumericGetDatum(left),
											   NumericGetDatum(right)));
}

/*
 * value / 10^scale as a numeric with display_scale <= scale digits, which the
 * value is known to need no more of.
 */
Numeric
numeric_from_int128(int128 value, int scale, int display_scale)
{
	const int128 base = powers_of_ten[POWER_OF_TEN_MAX];
	Numeric		high;
	Numeric		factor;

	while (scale > display_scale)
	{
		value /= 10;
		scale--;
	}
	if (value >= PG_INT64_MIN && value <= PG_INT64_MAX)
		return int64_div_fast_to_numeric((int64) value, scale);
	high = numeric_from_int128(value / base, 0, 0);
	factor = int64_to_numeric((int64) base);
	high = DatumGetNumeric(DirectFunctionCall2(numeric_mul,
											   NumericGetDatum(high),
											   NumericGetDatum(factor)));
	high = numeric_add_datums(high, int64_to_numeric((int64) (value % base)));
	if (scale == 0)
		return high;
	/* Multiply by 10^-scale, which numeric holds exactly. */
	factor = int64_div_fast_to_numeric(1, scale);
	return DatumGetNumeric(DirectFunctionCall2(numeric_mul,
											   NumericGetDatum(high),
											   NumericGetDatum(factor)));
}
