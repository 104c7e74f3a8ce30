/*
 * gather.c
 *	  Fixed-width values of a page's tuples to a column.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"

#include "deform.h"

/* Load what at_ points to as ctype_, and store it as a Datum word. */
#define LOAD(ctype_, stored_, at_) \
	ctype_ loaded; \
	memcpy(&loaded, at_, sizeof(ctype_)); \
	values[row] = (stored_)

/* Run a loop for the column's type. */
#define FOR_TYPE(loop_) \
	switch (column->type) \
	{ \
		case FLOAT4OID: \
			loop_(float4, Float8GetDatum((float8) loaded)); \
			break; \
		case BOOLOID: \
		case CHAROID: \
			loop_(int8, Int64GetDatum((int64) loaded)); \
			break; \
		case INT2OID: \
			loop_(int16, Int64GetDatum((int64) loaded)); \
			break; \
		case OIDOID: \
			loop_(uint32, Int64GetDatum((int64) loaded)); \
			break; \
		case INT4OID: \
		case DATEOID: \
			loop_(int32, Int64GetDatum((int64) loaded)); \
			break; \
		default: \
			loop_(int64, Int64GetDatum(loaded)); \
			break; \
	}

#define GATHER(ctype_, stored_) \
	FOR_SELECTED(row, selection, LOAD(ctype_, stored_, starts[row] + offset))

/* Values without NULLs, at one offset from these addresses. */
void
gather_values(BatchColumn *column, char **starts, int offset,
			  const Selection *selection)
{
	Datum	   *values = column->vector.values;

	FOR_TYPE(GATHER);
}

/* All ones where the bit of an attribute is set in a byte of bits. */
static uint64 masks[PLACED_ATTRIBUTES_MAX][PLACES];

void
gather_masks_fill(void)
{
	for (int attribute = 0; attribute < PLACED_ATTRIBUTES_MAX; attribute++)
		for (int bits = 0; bits < PLACES; bits++)
			masks[attribute][bits] = -(uint64) ((bits >> attribute) & 1);
}

/* Note which rows of a run hold no value of an attribute. */
static void
gather_placed_nulls(bool *nulls, const uint8 *bits, uint8 bit, const Selection *selection)
{
	/* Of all rows, and a few more, so that no rest is left that is not vectorised. */
	const int	end = TYPEALIGN(FLAGS_AT_ONCE, selection->count);
	Assert(end <= BATCH_FLAGS_MAX);

	if (selection->rows == NULL)
		for (int row = 0; row < end; row++)
			nulls[row] = ((bits[row] & bit) == 0);
	else
		FOR_SELECTED(row, selection, nulls[row] = ((bits[row] & bit) == 0));
}

#define GATHER_PLACED(ctype_, stored_) \
	FOR_SELECTED(row, selection, \
				 const uint8 held = bits[row]; \
				 LOAD(ctype_, (stored_) & present[held], starts[row] + offsets[held]))

/* Values that may be NULL, at the offsets that the bits of their rows tell. */
void
gather_placed(BatchColumn *column, const PlacedRun *run, int attribute,
			  const Selection *selection)
{
	Datum	   *values = column->vector.values;
	char	  **starts = run->starts;
	const uint8 *bits = run->bits;
	const int16 *offsets = run->offsets[attribute - run->first];
	const uint64 *present = masks[attribute - run->first];
	Assert(attribute >= run->first && attribute < run->first + run->count);
	Assert(offsets != NULL || column->kind == VALUE_OPAQUE);

	if (column->kind != VALUE_OPAQUE)
		FOR_TYPE(GATHER_PLACED);
	if (column->vector.has_nulls)
		gather_placed_nulls(column->vector.nulls, bits, 1 << (attribute - run->first),
							selection);
}

/* Note which rows hold no value of an attribute. */
void
gather_nulls(Vector *vector, Presence presence, const Selection *selection)
{
	bool	   *nulls = vector->nulls;

	FOR_SELECTED(row, selection, nulls[row] = (PRESENT_MASK(presence, row) == 0));
}
