/*
 * sort.c
 *	  BatchSort: rows of a batched node, or of any plan, in the order of keys.
 *
 * Rows of batches are copied a column at a time, without a tuple in between.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"

#include "datum_vector.h"
#include "node.h"
#include "row_sort.h"
#include "sort.h"
#include "statistics.h"

/* A column of the rows, in batches. */
typedef struct SortColumn
{
	AttrNumber	attno;
	BatchColumn *words;			/* what a Datum is made of; NULL: it is taken from a row */
} SortColumn;

typedef struct BatchSortState
{
	BatchNode	node;			/* must be first */
	BatchNode  *child;			/* NULL: the rows of any node are read */
	SortColumn *columns;		/* of the child's batches */
	int			column_count;
	RowSort    *sort;
	bool		is_sorted;
	Datum	   *values;			/* of a row */
	bool	   *nulls;
} BatchSortState;

/* Take in the selected rows of a batch. */
static void
add_batch(BatchSortState *state, TupleBatch *batch)
{
	const Selection *selection = &batch->selection;

	for (int i = 0; i < state->column_count; i++)
		if (state->columns[i].words != NULL)
			(void) batch_column(batch, state->columns[i].words, selection);
	for (int at = 0; at < selection->count; at++)
	{
		const int	row = selection->rows != NULL ? selection->rows[at] : at;
		TupleTableSlot *slot = NULL;

		for (int i = 0; i < state->column_count; i++)
		{
			const SortColumn *column = &state->columns[i];

			if (column->words == NULL && slot == NULL)
				slot = batch->ops->materialise_row(batch, row);
			state->values[i] = column->words != NULL ?
				vector_datum(&column->words->vector, column->words->type, row, &state->nulls[i]) :
				slot_getattr(slot, column->attno, &state->nulls[i]);
		}
		row_sort_add(state->sort, state->values, state->nulls);
	}
}

/* Take in all rows of the node below, and sort them. */
static void
fill_sort(BatchSortState *state)
{
	BatchCounters *counters = state->node.counters;
	PlanState  *below = outerPlanState(&state->node.css);
	TupleTableSlot *slot;

	if (state->child != NULL)
		while (node_pull(state->child))
		{
			counters_note_batch(counters, state->child->output->selection.count);
			add_batch(state, state->child->output);
		}
	else
		for (slot = ExecProcNode(below); !TupIsNull(slot); slot = ExecProcNode(below))
		{
			CHECK_FOR_INTERRUPTS();
			slot_getallattrs(slot);
			/* The values are the slot's own, and may become plain ones. */
			memcpy(state->values, slot->tts_values, sizeof(Datum) * state->column_count);
			row_sort_add(state->sort, state->values, slot->tts_isnull);
			counters->rows++;
		}
	row_sort_finish(state->sort);
	state->is_sorted = true;
}

static void
store_row(const BatchSortState *state, const FileRow *row, TupleTableSlot *slot)
{
	const RowFormat *format = state->sort->format;
	const bool *nulls = row_nulls(format, row);

	ExecClearTuple(slot);
	memcpy(slot->tts_isnull, nulls, sizeof(bool) * format->attribute_count);
	memcpy(slot->tts_values, row->values, sizeof(Datum) * format->attribute_count);
	if (format->holds_references)
		for (int i = 0; i < format->attribute_count; i++)
			if (!nulls[i] && !TupleDescAttr(format->descriptor, i)->attbyval)
				slot->tts_values[i] = PointerGetDatum((char *) row + row->values[i]);
	ExecStoreVirtualTuple(slot);
}

static TupleTableSlot *
exec_sort(CustomScanState *css)
{
	BatchSortState *state = (BatchSortState *) css;
	TupleTableSlot *slot = css->ss.ss_ScanTupleSlot;
	const FileRow *row;

	if (state->node.original != NULL)
		return ExecProcNode(state->node.original);
	if (!state->is_sorted)
		fill_sort(state);
	row = row_sort_next(state->sort);
	if (row == NULL)
		return ExecClearTuple(slot);
	store_row(state, row, slot);
	if (css->ss.ps.ps_ProjInfo == NULL)
		return slot;
	ResetExprContext(css->ss.ps.ps_ExprContext);
	css->ss.ps.ps_ExprContext->ecxt_scantuple = slot;
	return ExecProject(css->ss.ps.ps_ProjInfo);
}

/* Have the batches of the node below provide the columns. */
static void
begin_columns(BatchSortState *state, const List *attributes)
{
	TupleBatch *batch = state->child->output;
	ListCell   *cell;

	state->columns = palloc0(sizeof(SortColumn) * state->column_count);
	foreach(cell, attributes)
	{
		SortColumn *column = &state->columns[foreach_current_index(cell)];
		ValueKind	kind;
		Oid			type;

		column->attno = (AttrNumber) lfirst_int(cell);
		type = TupleDescAttr(batch->descriptor, column->attno - 1)->atttypid;
		/* A stored numeric is a pointer, as a text is. */
		if (value_kind_of_type(type, &kind))
			column->words = batch_add_column(batch, column->attno, type,
											 kind == VALUE_NUMERIC ? VALUE_TEXT : kind);
	}
}

static SortKey *
begin_keys(const List *private, TupleDesc descriptor)
{
	const List *columns = list_nth(private, BATCH_SORT_COLUMNS);
	SortKey    *keys = palloc(sizeof(SortKey) * list_length(columns));

	for (int i = 0; i < list_length(columns); i++)
	{
		const int	column = list_nth_int(columns, i);

		sort_key_begin(&keys[i], column, getBaseType(TupleDescAttr(descriptor, column)->atttypid),
					   list_nth_oid(list_nth(private, BATCH_SORT_OPERATORS), i),
					   list_nth_oid(list_nth(private, BATCH_SORT_COLLATIONS), i),
					   list_nth_int(list_nth(private, BATCH_SORT_NULLS_FIRST), i) != 0);
	}
	return keys;
}

/* Why the original has to run, or NULL: the node above may want rows again that files hold no more. */
static const char *
rewind_obstacle(int eflags)
{
	return (eflags & (EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK)) != 0 ?
		"its rows may be read again" : NULL;
}

static void
begin_sort(CustomScanState *css, EState *estate, int eflags)
{
	BatchSortState *state = (BatchSortState *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;
	TupleDesc	descriptor = css->ss.ss_ScanTupleSlot->tts_tupleDescriptor;
	const List *attributes = list_nth(plan->custom_private, BATCH_SORT_ATTRIBUTES);
	MemoryContext caller;

	if (node_begin_original_if(&state->node, rewind_obstacle(eflags), estate, eflags))
		return;
	state->node.counters = &state->node.own_counters;
	state->column_count = descriptor->natts;
	state->values = palloc0(sizeof(Datum) * state->column_count);
	state->nulls = palloc0(sizeof(bool) * state->column_count);
	if (attributes != NIL)
	{
		state->child = node_begin_child(&state->node, plan->scan.plan.lefttree, estate, eflags);
		begin_columns(state, attributes);
	}
	else
		outerPlanState(css) = ExecInitNode(plan->scan.plan.lefttree, estate, eflags);
	caller = MemoryContextSwitchTo(AllocSetContextCreate(CurrentMemoryContext, BATCH_SORT_NAME,
														 ALLOCSET_DEFAULT_SIZES));
	state->sort = row_sort_create(descriptor, begin_keys(plan->custom_private, descriptor),
								  list_length(list_nth(plan->custom_private, BATCH_SORT_COLUMNS)),
								  work_mem * (Size) 1024);
	MemoryContextSwitchTo(caller);
}

static void
rescan_sort(CustomScanState *css)
{
	BatchSortState *state = (BatchSortState *) css;

	if (state->node.original != NULL)
	{
		node_rescan(&state->node);
		return;
	}
	if (state->is_sorted && outerPlanState(css)->chgParam == NULL && row_sort_rewind(state->sort))
		return;
	row_sort_reset(state->sort);
	state->is_sorted = false;
	if (outerPlanState(css)->chgParam == NULL)
		ExecReScan(outerPlanState(css));
}

static void
end_sort(CustomScanState *css)
{
	BatchSortState *state = (BatchSortState *) css;

	statistics_count_node(NODE_SORT, &state->node);
	if (state->node.original != NULL)
	{
		ExecEndNode(state->node.original);
		return;
	}
	ExecClearTuple(css->ss.ss_ScanTupleSlot);
	row_sort_reset(state->sort);
	ExecEndNode(outerPlanState(css));
}

/* A key as the stock server shows it, but for its collation. */
static char *
key_label(const SortKey *key, const char *expression)
{
	const bool	nulls_first = key->comparison.ssup_nulls_first;

	return psprintf("%s%s%s", expression, key->is_descending ? " DESC" : "",
					nulls_first == key->is_descending ? "" : nulls_first ? " NULLS FIRST" : " NULLS LAST");
}

static void
explain_keys(const BatchSortState *state, List *ancestors, ExplainState *es)
{
	const CustomScan *plan = (const CustomScan *) state->node.css.ss.ps.plan;
	List	   *context = set_deparse_context_plan(es->deparse_cxt, (Plan *) plan, ancestors);
	const bool	prefixes = es->verbose || EXPLAINED_TABLES(es) > 1;
	List	   *labels = NIL;

	for (int i = 0; i < state->sort->key_count; i++)
	{
		const SortKey *key = &state->sort->keys[i];
		const TargetEntry *entry = list_nth_node(TargetEntry, plan->custom_scan_tlist, key->column);

		labels = lappend(labels, key_label(key, deparse_expression((Node *) entry->expr, context, prefixes, true)));
	}
	ExplainPropertyList("Sort Key", labels, es);
}

static void
explain_figures(const RowSort *sort, ExplainState *es)
{
	const bool	shows_all = es->format != EXPLAIN_FORMAT_TEXT;
	const uint64 runs = Max(sort->runs_most, sort->runs_made);
	const int64 blocks = Max(sort->blocks_most, sort->store != NULL ? sort->store->block_count : 0);

	if (shows_all || sort->bytes_most > 0)
		ExplainPropertyInteger("Sort Memory", "kB", (int64) ((sort->bytes_most + 1023) / 1024), es);
	if (shows_all || runs > 0)
	{
		ExplainPropertyInteger("Sorted Runs", NULL, (int64) runs, es);
		ExplainPropertyInteger("Disk Usage", "kB", blocks * (BLCKSZ / 1024), es);
	}
}

static void
explain_sort(CustomScanState *css, List *ancestors, ExplainState *es)
{
	BatchSortState *state = (BatchSortState *) css;

	if (state->node.original != NULL)
	{
		if (batchexec_explain)
			ExplainPropertyText("Not Batched", state->node.obstacle, es);
		return;
	}
	explain_keys(state, ancestors, es);
	if (es->analyze && batchexec_explain)
		explain_figures(state->sort, es);
}

static const CustomExecMethods sort_exec_methods = {
	.CustomName = BATCH_SORT_NAME,
	.BeginCustomScan = begin_sort,
	.ExecCustomScan = exec_sort,
	.EndCustomScan = end_sort,
	.ReScanCustomScan = rescan_sort,
	.ExplainCustomScan = explain_sort,
};

static Node *
create_sort_state(CustomScan *plan)
{
	BatchSortState *state = palloc0(sizeof(BatchSortState));

	(void) plan;
	NodeSetTag(&state->node, T_CustomScanState);
	state->node.css.methods = &sort_exec_methods;
	return (Node *) state;
}

const CustomScanMethods batch_sort_methods = {
	.CustomName = BATCH_SORT_NAME,
	.CreateCustomScanState = create_sort_state,
};
