/*
 * server.c
 *	  What server.h declares for servers that lack it, or have it in another form.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/xact.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "optimizer/cost.h"
#include "optimizer/paths.h"
#include "tcop/tcopprot.h"
#include "utils/relcache.h"
#include "utils/tuplestore.h"

#include "server.h"

#if PG_VERSION_NUM < 170000

/* What core does where no hook is set. */
void
standard_ExplainOneQuery(Query *query, int cursor_options, IntoClause *into,
						 ExplainState *es, const char *query_string,
						 ParamListInfo parameters, QueryEnvironment *environment)
{
	PlannedStmt *plan;
	instr_time	start;
	instr_time	duration;
	BufferUsage usage_start = pgBufferUsage;
	BufferUsage usage;

	INSTR_TIME_SET_CURRENT(start);
	plan = pg_plan_query(query, query_string, cursor_options, parameters);
	INSTR_TIME_SET_CURRENT(duration);
	INSTR_TIME_SUBTRACT(duration, start);
	if (es->buffers)
	{
		memset(&usage, 0, sizeof(usage));
		BufferUsageAccumDiff(&usage, &pgBufferUsage, &usage_start);
	}
	ExplainOnePlan(plan, into, es, query_string, parameters, environment,
				   &duration, es->buffers ? &usage : NULL);
}

#endif

#if PG_VERSION_NUM >= 150000

shmem_request_hook_type
server_request_memory(shmem_request_hook_type hook)
{
	const shmem_request_hook_type previous = shmem_request_hook;

	shmem_request_hook = hook;
	return previous;
}

#else

/* 14 takes requests while it loads its libraries. */
shmem_request_hook_type
server_request_memory(shmem_request_hook_type hook)
{
	hook();
	return NULL;
}

#endif

#if PG_VERSION_NUM >= 190000

static join_path_setup_hook_type previous_setup_hook = NULL;
static bool merge_joins_are_left_out = false;

static void
set_up_joins(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
			 JoinType type, JoinPathExtraData *extra)
{
	if (previous_setup_hook != NULL)
		previous_setup_hook(root, joined, outer, inner, type, extra);
	if (merge_joins_are_left_out)
		extra->pgs_mask &= ~PGS_MERGEJOIN_ANY;
}

void
server_leave_out_merge_joins(bool leave_out)
{
	merge_joins_are_left_out = leave_out;
}

void
server_install_hooks(void)
{
	previous_setup_hook = join_path_setup_hook;
	join_path_setup_hook = set_up_joins;
}

#else

/* enable_mergejoin, which core's search asks for each join, is off for the search alone. */
void
server_leave_out_merge_joins(bool leave_out)
{
	enable_mergejoin = !leave_out;
}

void
server_install_hooks(void)
{
}

#endif

#if PG_VERSION_NUM >= 180000

BlockNumber
server_next_bitmap_page(BitmapIterator *iterator, OffsetNumber *lines, int lines_max, int *line_count)
{
	TBMIterateResult result;

	if (!tbm_private_iterate(iterator, &result))
		return InvalidBlockNumber;
	if (lines != NULL)
		*line_count = result.lossy ? -1 : tbm_extract_page_tuple(&result, lines, lines_max);
	Assert(lines == NULL || *line_count <= lines_max);
	return result.blockno;
}

#else

BlockNumber
server_next_bitmap_page(BitmapIterator *iterator, OffsetNumber *lines, int lines_max, int *line_count)
{
	const TBMIterateResult *result = tbm_iterate(iterator);

	if (result == NULL)
		return InvalidBlockNumber;
	Assert(result->ntuples <= lines_max);
	if (lines != NULL)
	{
		*line_count = result->ntuples;
		if (result->ntuples > 0)
			memcpy(lines, result->offsets, sizeof(OffsetNumber) * result->ntuples);
	}
	return result->blockno;
}

#endif

/*
 * The head of the receivers of createas.c and matview.c, which these keep to themselves.  It is the same from 14 to 19,
 * and what it holds is checked before it is used.
 */
typedef struct IntoReceiver
{
	DestReceiver base;
	IntoClause *into;
	Relation	relation;
	ObjectAddress address;
	CommandId	command;
	int			options;
	BulkInsertState bulk;
} IntoReceiver;

typedef struct ViewReceiver
{
	DestReceiver base;
	Oid			table;
	Relation	relation;
	CommandId	command;
	int			options;
	BulkInsertState bulk;
} ViewReceiver;

bool
server_into_target(const DestReceiver *receiver, IntoTarget *target)
{
	Oid			table = InvalidOid;
	Relation	found;

	if (receiver->mydest == DestIntoRel)
	{
		const IntoReceiver *into = (const IntoReceiver *) receiver;

		/* Without data, there is nothing to insert. */
		if (IsA(into->into, IntoClause) && !into->into->skipData && into->address.classId == RelationRelationId)
			table = into->address.objectId;
		*target = (IntoTarget) {into->relation, into->command, into->options, into->bulk};
	}
	else if (receiver->mydest == DestTransientRel)
	{
		const ViewReceiver *view = (const ViewReceiver *) receiver;

		table = view->table;
		*target = (IntoTarget) {view->relation, view->command, view->options, view->bulk};
	}
	if (!OidIsValid(table) || target->relation == NULL || target->bulk == NULL ||
		target->command != GetCurrentCommandId(false))
		return false;
	/* The receiver has the table open: its entry of the cache is the one that it holds. */
	found = RelationIdGetRelation(table);
	if (found != NULL)
		RelationClose(found);
	return found == target->relation;
}

#if PG_VERSION_NUM < 170000

/* Nobody comes here: see READ_STREAMS_EXIST. */
static void
no_read_streams(void)
{
	elog(ERROR, "this server has no streams of blocks");
}

ReadStream *
read_stream_begin_relation(int flags, BufferAccessStrategy strategy, Relation relation, ForkNumber fork,
						   ReadStreamBlockNumberCB next_block, void *private_data, size_t buffer_data_bytes)
{
	no_read_streams();
	return NULL;
}

Buffer
read_stream_next_buffer(ReadStream *stream, void **buffer_data)
{
	no_read_streams();
	return InvalidBuffer;
}

void
read_stream_end(ReadStream *stream)
{
	no_read_streams();
}

#endif

#if PG_VERSION_NUM < 160000

void
BufFileReadExact(BufFile *file, void *to, size_t bytes)
{
	if (BufFileRead(file, to, bytes) != bytes)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from a temporary file of a batched node")));
}

#endif

#if PG_VERSION_NUM < 150000

void
InitMaterializedSRF(FunctionCallInfo fcinfo, bits32 flags)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext previous;

	Assert(flags == 0);
	if (result == NULL || !IsA(result, ReturnSetInfo) || (result->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	previous = MemoryContextSwitchTo(result->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &result->setDesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	result->setResult = tuplestore_begin_heap((result->allowedModes & SFRM_Materialize_Random) != 0, false, work_mem);
	result->returnMode = SFRM_Materialize;
	MemoryContextSwitchTo(previous);
}

#endif
