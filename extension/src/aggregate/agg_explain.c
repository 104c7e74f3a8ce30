/*
 * agg_explain.c
 *	  A BatchAgg in EXPLAIN.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/ruleutils.h"

#include "agg_state.h"
#include "explain.h"

/* An expression over the scanned tables as EXPLAIN shows it. */
static char *
deparsed(CustomScanState *css, Node *expression, List *ancestors, ExplainState *es)
{
	List	   *deparse_context = set_deparse_context_plan(es->deparse_cxt,
														  css->ss.ps.plan,
														  ancestors);
	bool		prefixes = es->verbose || EXPLAINED_TABLES(es) > 1;

	return deparse_expression(expression, deparse_context, prefixes, false);
}

/* The filters of the tables, where there are any. */
static void
explain_filters(CustomScanState *css, List *tables, List *ancestors, ExplainState *es)
{
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	List	   *filters = NIL;

	for (int i = 0; i < list_length(tables); i++)
	{
		List	   *qual = linitial(list_nth(plan->custom_exprs, i));

		if (qual != NIL)
			filters = lappend(filters,
							  deparsed(css, (Node *) make_ands_explicit(qual),
									   ancestors, es));
	}
	if (filters == NIL)
		return;
	if (list_length(tables) == 1)
		ExplainPropertyText("Scan Filter", linitial(filters), es);
	else
		ExplainPropertyList("Scan Filters", filters, es);
	if (es->analyze && ((BatchNode *) css)->original == NULL &&
		css->ss.ps.instrument != NULL)
		ExplainPropertyFloat("Rows Removed by Scan Filter", NULL,
							 css->ss.ps.instrument->nfiltered2 /
							 Max(css->ss.ps.instrument->nloops, 1), 0, es);
}

/* The keys of a grouping set, of those that have been deparsed. */
static char *
set_label(const List *keys, uint32 left_out)
{
	StringInfoData label;
	ListCell   *cell;

	initStringInfo(&label);
	foreach(cell, keys)
		if (((left_out >> foreach_current_index(cell)) & 1) == 0)
			appendStringInfo(&label, "%s%s", label.len == 0 ? "" : ", ",
							 (char *) lfirst(cell));
	return psprintf("(%s)", label.data);
}

/* What the rows are grouped by, and the order that the groups are returned in. */
static void
explain_keys(CustomScanState *css, List *ancestors, ExplainState *es)
{
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	const List *sets = list_nth(plan->custom_private, BATCH_AGG_SETS);
	const List *order = list_nth(plan->custom_private, BATCH_AGG_ORDER);
	int			key_count = intVal(list_nth(plan->custom_private, BATCH_AGG_KEY_COUNT));
	List	   *keys = NIL;
	List	   *labels = NIL;
	ListCell   *cell;

	for (int i = 0; i < key_count; i++)
	{
		TargetEntry *entry = list_nth(plan->custom_scan_tlist, i);

		keys = lappend(keys, deparsed(css, (Node *) entry->expr, ancestors, es));
	}
	if (list_length(sets) == 1 && linitial_int(sets) == 0)
	{
		if (keys != NIL)
			ExplainPropertyList("Group Key", keys, es);
	}
	else
		foreach(cell, sets)
			labels = lappend(labels, set_label(keys, (uint32) lfirst_int(cell)));
	if (labels != NIL)
		ExplainPropertyList("Grouping Sets", labels, es);
	if (order == NIL)
		return;
	labels = NIL;
	foreach(cell, (List *) linitial(order))
		labels = lappend(labels, list_nth(keys, lfirst_int(cell)));
	ExplainPropertyList("Groups Sorted By", labels, es);
}

void
agg_explain(CustomScanState *css, List *ancestors, ExplainState *es)
{
	const BatchAggState *state = (const BatchAggState *) css;
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	List	   *scanrelids = list_nth(plan->custom_private, BATCH_AGG_SCANRELIDS);
	List	   *tables = NIL;
	ListCell   *cell;

	if (plan->scan.plan.lefttree == NULL)
		foreach(cell, scanrelids)
			tables = lappend(tables, explain_table_label(es, lfirst_int(cell)));
	if (list_length(tables) == 1 && es->format != EXPLAIN_FORMAT_TEXT)
		explain_table_fields(es, linitial_int(scanrelids));
	else if (list_length(tables) == 1)
		ExplainPropertyText("Batched Table", linitial(tables), es);
	else if (tables != NIL)
		ExplainPropertyList("Batched Tables", tables, es);
	explain_keys(css, ancestors, es);
	explain_filters(css, tables, ancestors, es);
	if (es->analyze && batchexec_explain &&
		(es->format != EXPLAIN_FORMAT_TEXT || state->files_read > 0 || state->file_blocks > 0))
	{
		ExplainPropertyInteger("Files Read", NULL, state->files_read, es);
		ExplainPropertyInteger("Disk Usage", "kB", state->file_blocks * (BLCKSZ / 1024), es);
	}
	node_explain((BatchNode *) css, es);
}
