/*
 * insert.c
 *	  BatchInsert: rows are kept in slots, and written by heap_multi_insert, which
 *	  locks a page and writes a WAL record once for all rows that fit in it.
 *
 * Constraints of a row are checked when it comes, index entries are made when its
 * batch is written.  An error is raised if and only if the stock server raises one.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/hio.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "parser/parsetree.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "explain.h"
#include "insert.h"
#include "batch_limits.h"
#include "node.h"
#include "row_buffer.h"
#include "statistics.h"
#include "server.h"

typedef struct BatchInsertState
{
	BatchNode	node;			/* must be first */
	ResultRelInfo *target;
	bool		sets_tag;
	bool		is_done;
	BulkInsertState bulk;		/* keeps the page that is being filled */
	RowBuffer	rows;
} BatchInsertState;

static void
begin_insert(CustomScanState *css, EState *estate, int eflags)
{
	BatchInsertState *state = (BatchInsertState *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;
	const Plan *original = linitial(plan->custom_plans);

	if (node_begin_original(&state->node, estate, eflags))
		return;
	state->sets_tag = intVal(list_nth(plan->custom_private, BATCH_INSERT_SETS_TAG)) != 0;
	outerPlanState(css) = ExecInitNode(original->lefttree, estate, eflags);
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	/* The executor closes it, and its indexes. */
	state->target = makeNode(ResultRelInfo);
	ExecInitResultRelation(estate, state->target,
						   intVal(list_nth(plan->custom_private, BATCH_INSERT_TARGET)));
	if (state->target->ri_RelationDesc->rd_rel->relhasindex)
		ExecOpenIndices(state->target, false);
	row_buffer_begin(&state->rows, state->target->ri_RelationDesc);
}

/* Check a row as the stock server does, and keep a copy of it. */
static void
keep_row(BatchInsertState *state, TupleTableSlot *row)
{
	EState	   *estate = state->node.css.ss.ps.state;
	Relation	relation = state->target->ri_RelationDesc;

	row->tts_tableOid = RelationGetRelid(relation);
	Assert(!TTS_EMPTY(row));
	Assert(row->tts_tupleDescriptor->natts == RelationGetDescr(relation)->natts);
	if (RelationGetDescr(relation)->constr != NULL)
		ExecConstraints(state->target, row, estate);
	if (relation->rd_rel->relispartition)
		ExecPartitionCheck(state->target, row, estate, true);
	row_buffer_keep(&state->rows, row);
}

/*
 * The page that is being filled, without the small ring of buffers that COPY uses: as with
 * the stock server's INSERT, the table stays in shared buffers.
 */
static BulkInsertState
start_bulk_insert(void)
{
	BulkInsertState bulk = GetBulkInsertState();

	FreeAccessStrategy(bulk->strategy);
	bulk->strategy = NULL;
	return bulk;
}

/* Write the rows that wait, and their index entries. */
static void
write_rows(BatchInsertState *state)
{
	EState	   *estate = state->node.css.ss.ps.state;
	ResultRelInfo *target = state->target;
	RowBuffer  *rows = &state->rows;

	Assert(rows->relation == target->ri_RelationDesc);
	if (rows->row_count == 0)
		return;
	if (state->bulk == NULL)
		state->bulk = start_bulk_insert();
	row_buffer_write(rows, estate->es_output_cid, 0, state->bulk);
	for (int i = 0; i < rows->row_count && target->ri_NumIndices > 0; i++)
	{
		ResetPerTupleExprContext(estate);
		(void) INSERT_INTO_INDEXES(target, rows->slots[i], estate);
	}
	if (state->sets_tag)
		estate->es_processed += rows->row_count;
	row_buffer_forget(rows);
	Assert(rows->row_count == 0);
}

static TupleTableSlot *
exec_insert(CustomScanState *css)
{
	BatchInsertState *state = (BatchInsertState *) css;
	EState	   *estate = css->ss.ps.state;

	if (state->node.original != NULL)
		return ExecProcNode(state->node.original);
	while (!state->is_done)
	{
		TupleTableSlot *row;

		ResetPerTupleExprContext(estate);
		row = ExecProcNode(outerPlanState(css));
		state->is_done = TupIsNull(row);
		if (!state->is_done)
			keep_row(state, row);
		if (state->is_done || row_buffer_is_full(&state->rows))
			write_rows(state);
	}
	return NULL;
}

static void
end_insert(CustomScanState *css)
{
	BatchInsertState *state = (BatchInsertState *) css;

	statistics_count_insert(&state->node, state->rows.rows_written, state->rows.batches_written);
	if (state->node.original != NULL)
	{
		node_end(&state->node);
		return;
	}
	if (state->bulk != NULL)
		FreeBulkInsertState(state->bulk);
	if (state->rows.relation != NULL)
		row_buffer_end(&state->rows);
	ExecEndNode(outerPlanState(css));
}

/* A top node is never rescanned: core does so for parameters, and it has none. */
static void
rescan_insert(CustomScanState *css)
{
	(void) css;
	elog(ERROR, "an INSERT cannot be run again");
}

static void
explain_insert(CustomScanState *css, List *ancestors, ExplainState *es)
{
	BatchInsertState *state = (BatchInsertState *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;
	const int	target = intVal(list_nth(plan->custom_private, BATCH_INSERT_TARGET));

	(void) ancestors;
	if (state->node.original != NULL)
	{
		node_explain(&state->node, es);
		return;
	}
	if (es->format == EXPLAIN_FORMAT_TEXT)
		ExplainPropertyText("Insert Into", explain_table_label(es, target), es);
	else
	{
		ExplainPropertyText("Operation", "Insert", es);
		explain_table_fields(es, target);
	}
	if (!es->analyze || !batchexec_explain)
		return;
	ExplainPropertyUInteger("Rows Inserted", NULL, state->rows.rows_written, es);
	ExplainPropertyUInteger("Insert Batches", NULL, state->rows.batches_written, es);
}

static const CustomExecMethods insert_exec_methods = {
	.CustomName = BATCH_INSERT_NAME,
	.BeginCustomScan = begin_insert,
	.ExecCustomScan = exec_insert,
	.EndCustomScan = end_insert,
	.ReScanCustomScan = rescan_insert,
	.ExplainCustomScan = explain_insert,
};

static Node *
create_insert_state(CustomScan *plan)
{
	BatchInsertState *state = palloc0(sizeof(BatchInsertState));

	(void) plan;
	NodeSetTag(&state->node, T_CustomScanState);
	state->node.css.methods = &insert_exec_methods;
	return (Node *) state;
}

const CustomScanMethods batch_insert_methods = {
	.CustomName = BATCH_INSERT_NAME,
	.CreateCustomScanState = create_insert_state,
};
