/*
 * statistics.c
 *	  Counters of all sessions, in shared memory, and the view of them.
 *
 * A node adds its figures when it ends.  There is no shared memory where the library was
 * not loaded with the server: then nothing is counted, and the view says so.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "cost.h"
#include "insert.h"
#include "join.h"
#include "rows.h"
#include "server.h"
#include "sort.h"
#include "statistics.h"

/* Of all nodes of a kind. */
typedef enum Figure
{
	FIGURE_RUNS,
	FIGURE_ORIGINAL_RUNS,
	FIGURE_BATCHES,
	FIGURE_ROWS,
	FIGURE_PAGES,
	FIGURE_PAGES_IRREGULAR,
	FIGURE_BATCHES_BY_ROW,
	FIGURE_ROWS_BEYOND_TOP,
	FIGURE_GROUP_FLUSHES,
	FIGURES
} Figure;

typedef struct SharedStatistics
{
	pg_atomic_uint64 figures[NODE_KINDS][FIGURES];
	pg_atomic_uint64 saved_millicost[NODE_KINDS];	/* thousandths of the planner's units */
	pg_atomic_uint64 reset_at;	/* a TimestampTz */
} SharedStatistics;

static const char *const node_names[NODE_KINDS] = {
	[NODE_SCAN] = BATCH_SCAN_NAME,
	[NODE_AGG] = BATCH_AGG_NAME,
	[NODE_JOIN] = BATCH_JOIN_NAME,
	[NODE_ROWS] = BATCH_ROWS_NAME,
	[NODE_SORT] = BATCH_SORT_NAME,
	[NODE_INSERT] = BATCH_INSERT_NAME,
};

static SharedStatistics *statistics = NULL;
static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void
reset_statistics(void)
{
	for (int kind = 0; kind < NODE_KINDS; kind++)
	{
		for (int figure = 0; figure < FIGURES; figure++)
			pg_atomic_write_u64(&statistics->figures[kind][figure], 0);
		pg_atomic_write_u64(&statistics->saved_millicost[kind], 0);
	}
	pg_atomic_write_u64(&statistics->reset_at, (uint64) GetCurrentTimestamp());
}

static void
request_memory(void)
{
	if (previous_request_hook != NULL)
		previous_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(SharedStatistics)));
}

static void
start_memory(void)
{
	bool		found;

	if (previous_startup_hook != NULL)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	statistics = ShmemInitStruct("pg_batchexec", sizeof(SharedStatistics), &found);
	if (!found)
	{
		for (int kind = 0; kind < NODE_KINDS; kind++)
		{
			for (int figure = 0; figure < FIGURES; figure++)
				pg_atomic_init_u64(&statistics->figures[kind][figure], 0);
			pg_atomic_init_u64(&statistics->saved_millicost[kind], 0);
		}
		pg_atomic_init_u64(&statistics->reset_at, (uint64) GetCurrentTimestamp());
	}
	LWLockRelease(AddinShmemInitLock);
}

void
statistics_install_hooks(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	previous_request_hook = server_request_memory(request_memory);
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_memory;
}

static void
add(NodeKind kind, Figure figure, uint64 count)
{
	if (count > 0)
		pg_atomic_fetch_add_u64(&statistics->figures[kind][figure], (int64) count);
}

/* Is the end of this node to be counted?  Of a parallel query, the leader counts all. */
static bool
is_counted(const BatchNode *node)
{
	return statistics != NULL && !IsParallelWorker() &&
		(node->css.ss.ps.state->es_top_eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0;
}

/* Does a kind of node read tables, or batches of them, so that the rows that it read tell what it saved? */
static bool
saves_by_reading(NodeKind kind)
{
	return kind == NODE_SCAN || kind == NODE_AGG;
}

/* Add what a node has done, at its end. */
void
statistics_count_node(NodeKind kind, const BatchNode *node)
{
	BatchCounters sum = node->own_counters;
	double		saved;

	if (!is_counted(node))
		return;
	counters_add(&sum, &node->worker_counters);
	add(kind, FIGURE_RUNS, node->original == NULL);
	add(kind, FIGURE_ORIGINAL_RUNS, node->original != NULL);
	add(kind, FIGURE_BATCHES, sum.batches);
	add(kind, FIGURE_ROWS, sum.rows);
	add(kind, FIGURE_PAGES, sum.pages);
	add(kind, FIGURE_PAGES_IRREGULAR, sum.pages_irregular);
	add(kind, FIGURE_BATCHES_BY_ROW, sum.batches_by_row);
	add(kind, FIGURE_ROWS_BEYOND_TOP, sum.rows_beyond_top);
	add(kind, FIGURE_GROUP_FLUSHES, sum.group_flushes);
	saved = cost_saved_by_reading((double) sum.rows) * 1000;
	if (node->original == NULL && saves_by_reading(kind) && saved >= 1)
		pg_atomic_fetch_add_u64(&statistics->saved_millicost[kind], (int64) saved);
}

/* The same of an INSERT. */
void
statistics_count_insert(const BatchNode *node, uint64 rows, uint64 batches)
{
	if (!is_counted(node))
		return;
	add(NODE_INSERT, FIGURE_RUNS, node->original == NULL);
	add(NODE_INSERT, FIGURE_ORIGINAL_RUNS, node->original != NULL);
	add(NODE_INSERT, FIGURE_ROWS, rows);
	add(NODE_INSERT, FIGURE_BATCHES, batches);
}

/* Rows of a query that no node has inserted, but the receiver of a new table. */
void
statistics_count_rows_inserted(uint64 rows, uint64 batches)
{
	if (statistics == NULL)
		return;
	add(NODE_INSERT, FIGURE_RUNS, 1);
	add(NODE_INSERT, FIGURE_ROWS, rows);
	add(NODE_INSERT, FIGURE_BATCHES, batches);
}

static void
require_statistics(void)
{
	if (statistics == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_batchexec has no shared memory to count in"),
				 errhint("Add pg_batchexec to shared_preload_libraries, and restart the server.")));
}

/* Does a figure say something of a kind of node? */
static bool
figure_is_known(NodeKind kind, Figure figure)
{
	if (figure == FIGURE_RUNS || figure == FIGURE_ORIGINAL_RUNS)
		return true;
	if (kind == NODE_INSERT || kind == NODE_ROWS || kind == NODE_SORT)
		return figure == FIGURE_BATCHES || figure == FIGURE_ROWS;
	return kind != NODE_JOIN;
}

PG_FUNCTION_INFO_V1(pg_stat_batchexec);
Datum
pg_stat_batchexec(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	require_statistics();
	InitMaterializedSRF(fcinfo, 0);
	for (int kind = 0; kind < NODE_KINDS; kind++)
	{
		/* The name, the figures, the saved cost, and when they began. */
		Datum		values[FIGURES + 3];
		bool		nulls[FIGURES + 3] = {false};
		double		saved = (double) pg_atomic_read_u64(&statistics->saved_millicost[kind]) / 1000;

		values[0] = CStringGetTextDatum(node_names[kind]);
		for (int figure = 0; figure < FIGURES; figure++)
		{
			values[figure + 1] = Int64GetDatum((int64) pg_atomic_read_u64(
													&statistics->figures[kind][figure]));
			nulls[figure + 1] = !figure_is_known(kind, figure);
		}
		values[FIGURES + 1] = Float8GetDatum(saved);
		nulls[FIGURES + 1] = !saves_by_reading((NodeKind) kind);
		values[FIGURES + 2] = TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&statistics->reset_at));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(pg_stat_batchexec_reset);
Datum
pg_stat_batchexec_reset(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	require_statistics();
	reset_statistics();
	PG_RETURN_VOID();
}
