/*
 * backend.c
 *	  What stands in the place of the server around the code that is fuzzed: one
 *	  buffer, memory from malloc, which the sanitizers watch, and transactions
 *	  of which two are known.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/transam.h"
#include "fmgr.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/snapmgr.h"

#include "backend.h"

/* A value that no statistics are known of takes so many bytes. */
#define VARLENA_BYTES	32

/* The one buffer.  The sanitizer guards what is behind its last byte. */
static char block[BLCKSZ] pg_attribute_aligned(4096);
char	   *BufferBlocks = block;
int			NBuffers = 1;
int			NLocBuffer = 0;
Block	   *LocalBufferBlockPointers = NULL;
int			old_snapshot_threshold = -1;

typedef struct Allocation
{
	struct Allocation *next;
	void	   *memory;
} Allocation;

static Allocation *allocations = NULL;

void *
palloc0(Size size)
{
	Allocation *allocation = malloc(sizeof(Allocation));

	if (allocation == NULL || (allocation->memory = calloc(1, Max(size, 1))) == NULL)
		abort();
	allocation->next = allocations;
	allocations = allocation;
	return allocation->memory;
}

void *
palloc(Size size)
{
	return palloc0(size);
}

void
free_all(void)
{
	while (allocations != NULL)
	{
		Allocation *first = allocations;

		allocations = first->next;
		free(first->memory);
		free(first);
	}
}

int32
get_attavgwidth(Oid relid, AttrNumber attnum)
{
	return 0;
}

int32
get_typavgwidth(Oid typid, int32 typmod)
{
	return VARLENA_BYTES;
}

void
LockBuffer(Buffer buffer, int mode)
{
}

void
heap_page_prune_opt(Relation relation, Buffer buffer)
{
}

void
TestForOldSnapshot_impl(Snapshot snapshot, Relation relation)
{
}

bool
TransactionIdPrecedes(TransactionId id1, TransactionId id2)
{
	return id1 < id2;
}

bool
HeapTupleSatisfiesVisibility(HeapTuple tuple, Snapshot snapshot, Buffer buffer)
{
	return HeapTupleHeaderGetRawXmin(tuple->t_data) == VISIBLE_XID;
}

/* An assertion has failed: for libFuzzer, that is a finding. */
void
#if PG_VERSION_NUM >= 160000
ExceptionalCondition(const char *condition, const char *file, int line)
#else
ExceptionalCondition(const char *condition, const char *error_type, const char *file, int line)
#endif
{
	/* The stack that libFuzzer prints tells which one. */
#if PG_VERSION_NUM < 160000
	(void) error_type;
#endif
	(void) condition;
	(void) file;
	(void) line;
	abort();
}

/* What is linked, and not reached. */

Numeric
int64_to_numeric(int64 val)
{
	abort();
}

Numeric
int64_div_fast_to_numeric(int64 val1, int log10val2)
{
	abort();
}

Datum
numeric_add(PG_FUNCTION_ARGS)
{
	abort();
}

Datum
numeric_mul(PG_FUNCTION_ARGS)
{
	abort();
}

Datum
DirectFunctionCall2Coll(PGFunction func, Oid collation, Datum arg1, Datum arg2)
{
	abort();
}

struct varlena *
pg_detoast_datum(struct varlena *datum)
{
	abort();
}

bool
heap_hot_search_buffer(ItemPointer tid, Relation relation, Buffer buffer, Snapshot snapshot,
					   HeapTuple tuple, bool *all_dead, bool first_call)
{
	abort();
}
