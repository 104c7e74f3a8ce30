/*
 * cost.c
 *	  What batched scans and aggregations cost, next to the stock server's.
 *
 * The stock model counts a tuple and an operator, whatever the number of columns
 * before the one in question; batches save most of both.  Pages cost the same
 * either way (path_cost.c).
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "cost.h"
#include "expr.h"
#include "batch_limits.h"
#include "plan.h"
#include "server.h"

/* What a pair of rows costs that a join makes in a batch, next to a row that is read in one. */
#define COST_PAIR_FACTOR	2

/* Blocks that are looked up to see how much of a table is in shared buffers. */
#define BLOCKS_SAMPLED	8

/* What estimate_rel_size makes of a table that was never vacuumed. */
#define PAGES_OF_NEW_TABLE	10

/* Tuples a page, where the table was never analysed. */
#define TUPLES_A_PAGE_GUESS	50

/* What a group takes beside its keys, in bytes, and what an aggregate's state does. */
#define GROUP_BYTES			64
#define AGGREGATE_BYTES		32

static bool
block_is_buffered(Relation relation, BlockNumber block)
{
	BufferTag	tag;
	uint32		hash;
	LWLock	   *lock;
	bool		is_found;

	InitBufferTag(&tag, &relation->rd_locator, MAIN_FORKNUM, block);
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);
	LWLockAcquire(lock, LW_SHARED);
	is_found = BufTableLookup(&tag, hash) >= 0;
	LWLockRelease(lock);
	return is_found;
}

static double
sample_buffered_share(Oid relid, BlockNumber pages)
{
	Relation	relation = RelationIdGetRelation(relid);
	int			found = 0;

	if (relation == NULL)
		return 0;
	if (!RelationUsesLocalBuffers(relation))
		for (int i = 0; i < BLOCKS_SAMPLED; i++)
			found += block_is_buffered(relation,
									   (BlockNumber) ((uint64) pages * i / BLOCKS_SAMPLED));
	RelationClose(relation);
	return (double) found / BLOCKS_SAMPLED;
}

/* What a sample has found, for later statements. */
typedef struct BufferedSample
{
	Oid			relid;
	BlockNumber pages;
	TimestampTz taken_at;
	double		share;
} BufferedSample;

static BufferedSample samples[BUFFERED_SAMPLES_KEPT];

/* The share of a table that is in shared buffers, by a sample that is new, or nearly so. */
static double
buffered_share(Oid relid, BlockNumber pages)
{
	BufferedSample *sample = &samples[relid % BUFFERED_SAMPLES_KEPT];
	const TimestampTz now = GetCurrentStatementStartTimestamp();

	if (sample->relid != relid || sample->pages != pages || sample->taken_at > now ||
		now - sample->taken_at > BUFFERED_SAMPLE_AGE_MAX_US)
		*sample = (BufferedSample) {relid, pages, now, sample_buffered_share(relid, pages)};
	return sample->share;
}

/* What the filters of a table cost, for each tuple that is read. */
typedef struct FilterCost
{
	Cost		batched;
	double		row_share;		/* of the tuples: left to clauses that go by row */
} FilterCost;

/* Each join of a table asks for its facts: remember them. */
typedef struct TableMemo
{
	uint64		planning;
	const PlannerInfo *root;
	const RelOptInfo *rel;
	bool		knows_filters;
	FilterCost	filters;
	double		buffered_share; /* negative: not known yet */
} TableMemo;

static TableMemo memos[TABLES_REMEMBERED];
uint64		cost_planning = 1;

/* Of the tablespace that was asked for last; negative: not known. */
static double last_page_cost = -1;
static Oid	last_tablespace;

/* To be called where planning begins or ends: another table or path may have an address that was remembered. */
void
cost_forget_memos(void)
{
	cost_planning++;
	last_page_cost = -1;
}

/* What a page of a table costs that is read in order. */
double
cost_page(const RelOptInfo *rel)
{
	if (last_page_cost < 0 || last_tablespace != rel->reltablespace)
	{
		last_tablespace = rel->reltablespace;
		get_tablespace_page_costs(last_tablespace, NULL, &last_page_cost);
	}
	return last_page_cost;
}

/* What the planning of a statement has found of a table that it reads. */
typedef struct TableFacts
{
	Oid			relid;
	double		rows;
	bool		knows_obstacle;
	const char *obstacle;		/* to reading it in batches, or NULL */
} TableFacts;

static TableFacts remembered[TABLES_REMEMBERED];
static int	remembered_count = 0;

/* What it has found of an index. */
typedef struct IndexFacts
{
	Oid			index;
	double		rows;			/* that a scan of it finds, before its filter */
} IndexFacts;

static IndexFacts indexes_remembered[TABLES_REMEMBERED];
static int	index_count = 0;

/* To be called where the planning of a statement begins. */
void
cost_forget_facts(void)
{
	remembered_count = index_count = 0;
}

/* Remember what scans of a table's indexes find that need no value from another table. */
static void
remember_indexes(const RelOptInfo *rel)
{
	ListCell   *cell;

	foreach(cell, rel->pathlist)
	{
		const IndexPath *path = lfirst(cell);

		if (IsA(path, IndexPath) && path->path.param_info == NULL &&
			index_count < TABLES_REMEMBERED)
			indexes_remembered[index_count++] = (IndexFacts) {
				path->indexinfo->indexoid, path->indexselectivity * rel->tuples
			};
	}
}

/* How many rows a scan of an index is estimated to find, at most; 0: it is not known. */
double
cost_rows_indexed(Oid index)
{
	double		rows = 0;

	for (int i = 0; i < index_count; i++)
		if (indexes_remembered[i].index == index)
			rows = Max(rows, indexes_remembered[i].rows);
	return rows;
}

/* Spare cost_table_pays a look at the file of a table, and remember what its indexes find. */
void
cost_remember_rows(Oid relid, const RelOptInfo *rel)
{
	/* Core takes a new table of fewer pages for one of so many; a foreign one has no file. */
	if (remembered_count < TABLES_REMEMBERED &&
		(rel->pages != PAGES_OF_NEW_TABLE || rel->fdwroutine != NULL))
		remembered[remembered_count++] = (TableFacts) {.relid = relid,.rows = rel->tuples};
	remember_indexes(rel);
}

static TableFacts *
recall_facts(Oid relid)
{
	for (int i = 0; i < remembered_count; i++)
		if (remembered[i].relid == relid)
			return &remembered[i];
	return NULL;
}

/* As table_obstacle; looked up once in the planning of a statement, which has the table locked. */
const char *
cost_table_obstacle(Oid relid)
{
	TableFacts *facts = recall_facts(relid);

	if (facts == NULL)
		return table_obstacle(relid);
	if (!facts->knows_obstacle)
	{
		facts->obstacle = table_obstacle(relid);
		facts->knows_obstacle = true;
	}
	return facts->obstacle;
}

static FilterCost
cost_filters(PlannerInfo *root, RelOptInfo *rel)
{
	FilterCost	cost = {0, 0};
	double		passing = 1;
	bool		is_leading = true;
	ListCell   *cell;

	foreach(cell, rel->baserestrictinfo)
	{
		RestrictInfo *clause = lfirst_node(RestrictInfo, cell);
		int			size = expression_size((Node *) clause->clause, NIL);
		bool		was_leading = is_leading;
		QualCost	by_row;

		/* Behind a clause by row, a BatchScan evaluates all by row. */
		is_leading = is_leading && size <= EXPRESSION_NODES_MAX &&
			vector_form_exists(clause->clause, rel->relid);
		if (was_leading && !is_leading)
			cost.row_share = passing;
		if (is_leading)
			cost.batched += passing * size * batchexec_cost_operator;
		else
		{
			cost_qual_eval_node(&by_row, (Node *) clause, root);
			cost.batched += passing * by_row.per_tuple;
		}
		passing *= clause_selectivity(root, (Node *) clause, 0, JOIN_INNER, NULL);
	}
	return cost;
}

static TableMemo *
look_at_table(PlannerInfo *root, RelOptInfo *rel)
{
	TableMemo  *memo = &memos[rel->relid % TABLES_REMEMBERED];

	if (memo->rel != rel || memo->root != root || memo->planning != cost_planning)
		*memo = (TableMemo) {.planning = cost_planning,.root = root,.rel = rel,.buffered_share = -1};
	return memo;
}

static const FilterCost *
table_filters(PlannerInfo *root, RelOptInfo *rel)
{
	TableMemo  *table = look_at_table(root, rel);

	if (!table->knows_filters)
	{
		table->filters = cost_filters(root, rel);
		table->knows_filters = true;
	}
	return &table->filters;
}

/* How much of a table is in shared buffers; looked up once. */
double
cost_buffered_share(PlannerInfo *root, RelOptInfo *rel)
{
	TableMemo  *table;

	if (!IS_SIMPLE_REL(rel) || rel->rtekind != RTE_RELATION || rel->pages == 0 ||
		rel->fdwroutine != NULL)
		return 0;
	table = look_at_table(root, rel);
	if (table->buffered_share < 0)
		table->buffered_share = buffered_share(planner_rt_fetch(rel->relid, root)->relid,
											   rel->pages);
	return table->buffered_share;
}

/*
 * What batches save on a table's sequential scan, or on a process's share of
 * it.  Nothing is negative: where batches don't pay, the stock nodes run.
 */
ScanSaving
cost_scan_saving(PlannerInfo *root, RelOptInfo *rel, double share)
{
	const FilterCost filters = *table_filters(root, rel);
	double		tuples = rel->tuples * share;
	double		results = rel->rows * share;
	double		by_row = tuples * filters.row_share;
	Cost		saved = tuples * (cpu_tuple_cost + rel->baserestrictcost.per_tuple) -
		batchexec_cost_startup - tuples * (batchexec_cost_row + filters.batched);
	ScanSaving	saving;

	/* A row that is evaluated as one is made only once. */
	saving.as_scan = saved - Max(results, by_row) * batchexec_cost_result_row;
	saving.as_input = saved - by_row * batchexec_cost_result_row;
	saving.as_scan = Max(saving.as_scan, 0);
	saving.as_input = Max(saving.as_input, 0);
	return saving;
}

/* What reading a table in batches costs at least, whatever its filters are, and however much of it is in shared buffers. */
Cost
cost_input_least(const RelOptInfo *rel)
{
	return batchexec_cost_startup + rel->tuples * batchexec_cost_row +
		rel->pages * cost_page(rel) * Min(batchexec_cost_page, 1);
}

/* The same of a BatchScan. */
Cost
cost_scan_least(const RelOptInfo *rel)
{
	return cost_input_least(rel) + rel->rows * batchexec_cost_result_row;
}

/*
 * What the rows of a join's inner side cost on their way into the hash table.  A semi or anti join
 * keeps one of a key: most others are only looked up.
 */
Cost
cost_hash_rows(double rows, int key_count, bool keeps_one)
{
	return rows * (cpu_tuple_cost / (keeps_one ? 4 : 2) + cpu_operator_cost * key_count);
}

/* What the rows of the outer side cost that are looked up in batches, and the pairs of equal keys. */
Cost
cost_probe(double rows, int key_count, double matches)
{
	return batchexec_cost_startup + (rows * key_count + matches * COST_PAIR_FACTOR) * batchexec_cost_row;
}

/*
 * What batches save on an aggregation, over its input, that costs the stock
 * server agg_cost.  Aggregates of arguments that are evaluated by row save little.
 */
Cost
cost_agg_saving(Cost agg_cost, double group_count, int row_aggregates, int aggregates)
{
	Cost		results = group_count * cpu_tuple_cost;
	double		share = aggregates > 0 ? 1 - (double) row_aggregates / aggregates : 1;
	double		ratio = cpu_operator_cost > 0 ?
		Min(batchexec_cost_operator * 2 / cpu_operator_cost, 1) : 1;

	return Max(agg_cost - results, 0) * share * (1 - ratio);
}

/* Does a scan pay that reads so many rows, and returns these of them? */
bool
cost_rows_pay(double rows_read, double rows_returned)
{
	return rows_read * (cpu_tuple_cost - batchexec_cost_row) -
		Min(rows_returned, rows_read) * batchexec_cost_result_row > batchexec_cost_startup;
}

/* What batches save on reading so many rows, at least: expressions save more. */
Cost
cost_saved_by_reading(double rows)
{
	return Max(rows * (cpu_tuple_cost - batchexec_cost_row) - batchexec_cost_startup, 0);
}

/* By its file. */
static double
count_rows(Oid relid)
{
	Relation	relation = RelationIdGetRelation(relid);
	double		density = TUPLES_A_PAGE_GUESS;
	double		rows;

	if (relation == NULL)
		return 0;
	if (relation->rd_rel->relpages > 0 && relation->rd_rel->reltuples >= 0)
		density = relation->rd_rel->reltuples / relation->rd_rel->relpages;
	rows = RELKIND_HAS_STORAGE(relation->rd_rel->relkind) ?
		density * RelationGetNumberOfBlocks(relation) : Max(relation->rd_rel->reltuples, 0);
	RelationClose(relation);
	return rows;
}

/* Has a table enough rows for batches to pay?  Adds them to *rows. */
bool
cost_table_pays(Oid relid, double *rows)
{
	const TableFacts *facts = recall_facts(relid);

	*rows += facts != NULL ? facts->rows : count_rows(relid);
	return *rows * (cpu_tuple_cost - batchexec_cost_row) > batchexec_cost_startup;
}

/* How often the memory for a hash table holds the groups, if they are as estimated: 1 and less: they fit. */
double
cost_group_memories(double group_count, int width, int aggregates)
{
	return group_count * (MAXALIGN(width) + GROUP_BYTES + AGGREGATE_BYTES * aggregates) /
		get_hash_memory_limit();
}

/* What it costs to write rows to files, and to read them again; as core has it for a hash join. */
Cost
cost_files(double rows, int width)
{
	const double bytes = rows * (MAXALIGN(width) + MAXALIGN(SizeofHeapTupleHeader));

	return 2 * seq_page_cost * ceil(bytes / BLCKSZ);
}
