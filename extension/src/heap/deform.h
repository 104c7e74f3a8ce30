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

#define WORD_ATTRIBUTES		64

/* Words of bits that the attributes up to the last one needed take. */
static inline int
word_count(const HeapBatch *batch)
{
	return (batch->base.last_attno + WORD_ATTRIBUTES - 1) / WORD_ATTRIBUTES;
}

/* gather.c */
extern void gather_masks_fill(void);
extern void gather_values(BatchColumn *column, char **starts, int offset,
						  const Selection *selection);
extern void gather_placed(BatchColumn *column, const PlacedRun *run, int attribute,
						  const Selection *selection);
extern void gather_nulls(Vector *vector, Presence presence, const Selection *selection);

/* deform.c */
extern int	step_over_varlenas(HeapBatch *batch, AttributeStep *steps,
							   int steps_max, uint32 advance,
							   const Selection *selection);

/* presence.c */
extern void presence_allocate(HeapBatch *batch);
extern void presence_read(HeapBatch *batch);

/* placed_run.c */
extern void runs_allocate(HeapBatch *batch);
extern void runs_plan(HeapBatch *batch);
extern void run_enter(HeapBatch *batch, PlacedRun *run, const Selection *selection);
extern void run_pass(HeapBatch *batch, PlacedRun *run, const Selection *selection);

/* deform_nulls.c */
extern void deform_present_column(HeapBatch *batch, BatchColumn *column,
								  const Selection *selection);

#endif
