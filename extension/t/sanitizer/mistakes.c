/*
 * mistakes.c
 *	  SQL functions that each make a mistake, which the sanitizers have to report.
 *
 * Each is called with zero, which the compiler does not know.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "storage/bufmgr.h"

#define CHUNK_BYTES	20

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(read_behind_chunk);
PG_FUNCTION_INFO_V1(read_freed_chunk);
PG_FUNCTION_INFO_V1(read_unpinned_buffer);
PG_FUNCTION_INFO_V1(load_misaligned);
PG_FUNCTION_INFO_V1(overflow_sum);
PG_FUNCTION_INFO_V1(shift_too_far);
PG_FUNCTION_INFO_V1(cast_large_float);

Datum
read_behind_chunk(PG_FUNCTION_ARGS)
{
	const char *chunk = palloc0(CHUNK_BYTES);

	PG_RETURN_INT32(chunk[CHUNK_BYTES + PG_GETARG_INT32(0)]);
}

Datum
read_freed_chunk(PG_FUNCTION_ARGS)
{
	char	   *chunk = palloc0(CHUNK_BYTES);
	const char *kept = chunk + PG_GETARG_INT32(0);

	pfree(chunk);
	PG_RETURN_INT32(*kept);
}

Datum
read_unpinned_buffer(PG_FUNCTION_ARGS)
{
	Relation	relation = relation_open(RelationRelationId, AccessShareLock);
	Buffer		buffer = ReadBuffer(relation, PG_GETARG_INT32(0));
	const char *page = BufferGetPage(buffer);

	ReleaseBuffer(buffer);
	relation_close(relation, AccessShareLock);
	PG_RETURN_INT32(*page);
}

Datum
load_misaligned(PG_FUNCTION_ARGS)
{
	const char *chunk = palloc0(CHUNK_BYTES);

	PG_RETURN_INT32(*(const int32 *) (chunk + 1 + PG_GETARG_INT32(0)));
}

Datum
overflow_sum(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(PG_GETARG_INT32(0) + 1 + PG_INT32_MAX);
}

Datum
shift_too_far(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32((int32) (1U << (PG_GETARG_INT32(0) + 32)));
}

Datum
cast_large_float(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32((int32) (1e300 + PG_GETARG_INT32(0)));
}
