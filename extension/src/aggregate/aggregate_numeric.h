/*
 * aggregate_numeric.h
 *	  Transition states of core's numeric aggregates in their serialised form.
 */
#ifndef BATCHEXEC_AGGREGATE_NUMERIC_H
#define BATCHEXEC_AGGREGATE_NUMERIC_H

/* For int8_avg_deserialize: how many values, and their sum. */
extern Datum integer_state_serialize(int64 count, int128 sum);

/* For numeric_poly_deserialize: the sum of the squares, too. */
extern Datum integer_state_serialize_squares(int64 count, int128 sum, int128 square_sum);

#endif
