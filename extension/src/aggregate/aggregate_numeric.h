/*
 * aggregate_numeric.h
 *	  Transition states of core's numeric aggregates in their serialised form.
 */
#ifndef BATCHEXEC_AGGREGATE_NUMERIC_H
#define BATCHEXEC_AGGREGATE_NUMERIC_H

#include "utils/numeric.h"

/* For int8_avg_deserialize: how many values, and their sum. */
extern Datum numeric_state_serialize_int8(int64 count, Numeric sum);

/* For numeric_poly_deserialize: the sum of the squares, too. */
extern Datum numeric_state_serialize_squares(int64 count, Numeric sum, Numeric square_sum);

#endif
