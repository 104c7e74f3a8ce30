/*
 * deform.h
 *	  What the parts of deforming share.
 */
#ifndef BATCHEXEC_DEFORM_H
#define BATCHEXEC_DEFORM_H

#include "heap_batch.h"

/* Which rows hold a value of one attribute: a bit of each row's word. */
typedef struct Presence
{
	const uint64 *words;
	int			bit;
} Presence;

/* All ones for a row that holds a value, else zero. */
#define PRESENT_MASK(presence_, row_) \
	(-(((presence_).words[row_] >> (presence_).bit) & 1))

/* gather.c */
extern void gather_values(BatchColumn *column, char **starts, int offset,
						  const Selection *selection);
extern void gather_present(BatchColumn *column, char **starts, int offset,
						   int alignment, Presence presence,
						   const Selection *selection);
extern void gather_placed(BatchColumn *column, char **starts,
						  const int16 *offsets, const uint8 *bits, int attribute,
						  const Selection *selection);

/* deform.c */
extern int	step_over_varlenas(HeapBatch *batch, AttributeStep *steps,
							   int steps_max, uint32 advance,
							   const Selection *selection);

/* deform_nulls.c */
extern void presence_allocate(HeapBatch *batch);
extern void presence_read(HeapBatch *batch);
extern void deform_present_column(HeapBatch *batch, BatchColumn *column,
								  const Selection *selection);

#endif
