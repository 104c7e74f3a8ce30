/*
 * datum_vector.h
 *	  Datums of rows as vectors, and batches of rows that are collected.
 */
#ifndef BATCHEXEC_DATUM_VECTOR_H
#define BATCHEXEC_DATUM_VECTOR_H

#include "executor/tuptable.h"
#include "nodes/bitmapset.h"

#include "batch.h"

/* Rows that are collected, of a node or of a file: a column of Datums for each attribute. */
typedef struct DatumBatch
{
	TupleDesc	descriptor;
	Vector	   *attributes;		/* native Datums, rather than vector words; an attribute
								 * without values is NULL in all rows */
	int			row_count;
} DatumBatch;

extern const TupleBatchOps datum_batch_ops;

extern void vector_from_datums(BatchColumn *column, const Vector *datums,
							   const Selection *selection);
extern Datum vector_datum(const Vector *words, Oid type, int row, bool *is_null);
extern void vector_of_nulls(BatchColumn *column, const Selection *selection);
extern DatumBatch *datum_batch_create(TupleDesc descriptor, const Bitmapset *attributes);
extern void datum_batch_add(DatumBatch *rows, TupleTableSlot *slot,
							Datum (*copy) (void *owner, Datum value, int length),
							void *owner);
extern void datum_batch_append_column(DatumBatch *rows, int number, const Vector *words,
									  const Selection *selection,
									  Datum (*copy) (void *owner, Datum value, int length),
									  void *owner);

#endif
