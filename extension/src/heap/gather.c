/*
 * gather.c
 *	  Fixed-width values of a page's tuples to a column.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"

#include "deform.h"

/* What a NULL is loaded from. */
static const char zeroes[sizeof(int64)] = {0};

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

/* The address if mask is all ones, other if it is zero; without a branch. */
static inline const char *
select_address(const char *address, const char *other, uint64 mask)
{
	return (const char *) (((uintptr_t) address & (uintptr_t) mask) |
						   ((uintptr_t) other & ~(uintptr_t) mask));
}

#define GATHER_PRESENT(ctype_, stored_) \
	FOR_SELECTED(row, selection, \
				 const uint64 mask = PRESENT_MASK(presence, row); \
				 const char *at = (const char *) \
				 TYPEALIGN(alignment, starts[row] + offset); \
				 LOAD(ctype_, stored_, select_address(at, zeroes, mask)); \
				 nulls[row] = (mask == 0))

/* Values that may be NULL, aligned from one offset behind these addresses. */
void
gather_present(BatchColumn *column, char **starts, int offset, int alignment,
			   Presence presence, const Selection *selection)
{
	Datum	   *values = column->vector.values;
	bool	   *nulls = column->vector.nulls;

	if (column->kind != VALUE_OPAQUE)
		FOR_TYPE(GATHER_PRESENT)
	else
		FOR_SELECTED(row, selection,
					 nulls[row] = (PRESENT_MASK(presence, row) == 0));
}

#define GATHER_PLACED(ctype_, stored_) \
	FOR_SELECTED(row, selection, \
				 const uint8 held = bits[row]; \
				 const uint64 mask = -(uint64) ((held >> attribute) & 1); \
				 LOAD(ctype_, (stored_) & mask, starts[row] + offsets[held]))

/* Values that may be NULL, at the offsets that the bits of their rows tell. */
void
gather_placed(BatchColumn *column, char **starts, const int16 *offsets,
			  const uint8 *bits, int attribute, const Selection *selection)
{
	Datum	   *values = column->vector.values;
	bool	   *nulls = column->vector.nulls;
	const uint8 bit = 1 << attribute;

	if (column->kind != VALUE_OPAQUE)
		FOR_TYPE(GATHER_PLACED);
	FOR_SELECTED(row, selection, nulls[row] = ((bits[row] & bit) == 0));
}
