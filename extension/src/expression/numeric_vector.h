/*
 * numeric_vector.h
 *	  numeric values as scaled 64-bit integers, and 128-bit sums back to numeric.
 */
#ifndef BATCHEXEC_NUMERIC_VECTOR_H
#define BATCHEXEC_NUMERIC_VECTOR_H

#include "utils/numeric.h"

#include "batch.h"

/* Largest power of ten that fits in 64 signed bits: 10^18. */
#define POWER_OF_TEN_MAX	18

extern const int64 powers_of_ten[POWER_OF_TEN_MAX + 1];

extern int64 numeric_order(const void *value);
extern bool numeric_decode(const void *value, int64 *scaled, int *scale);
extern bool numeric_decode_floor(const void *value, int scale, int64 *floor, bool *is_exact);
extern bool numeric_vector_rescale(Vector *result, const Vector *vector,
								   int scale, const Selection *selection);
extern Numeric numeric_from_int128(int128 value, int scale, int display_scale);
extern bool int128_multiply_by_power(int128 *value, int power);

#endif
