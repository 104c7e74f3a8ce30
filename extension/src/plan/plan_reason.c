/*
 * plan_reason.c
 *	  Why parts of a plan were not batched, for EXPLAIN and for batchexec.mode = require.
 */
#include "postgres.h"

#include "nodes/plannodes.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "join.h"
#include "plan.h"

/* A scanned table as reasons name it. */
static const char *
scan_label(const PlanContext *context, const Scan *scan)
{
	RangeTblEntry *entry = rt_fetch(scan->scanrelid, context->statement->rtable);
	const char *table = entry->rtekind == RTE_RELATION ?
		get_rel_name(entry->relid) : NULL;

	return table != NULL ? table : entry->eref->aliasname;
}

/* Note why a node of this kind was not batched, where anybody asks. */
void
note_reason(PlanContext *context, const char *kind, const char *obstacle)
{
	if (context->wants_reasons)
		context->reasons = lappend(context->reasons,
								   psprintf("%s: %s", kind, obstacle));
}

void
note_scan_reason(PlanContext *context, const Scan *scan, const char *obstacle)
{
	if (!context->wants_reasons)
		return;
	note_reason(context, psprintf("scan of \"%s\"", scan_label(context, scan)), obstacle);
	context->scan_reasons = lappend(context->scan_reasons, llast(context->reasons));
}

/* The other way to read the table is not to be forced, so this is no error under require. */
void
note_bitmap_scan_reason(PlanContext *context, const BitmapHeapScan *scan, const char *obstacle)
{
	if (context->wants_reasons)
		note_reason(context, psprintf("bitmap scan of \"%s\"", scan_label(context, &scan->scan)),
					obstacle);
}

/* Then what is wrong with it has been said already. */
static bool
append_is_of_scans(const Append *append)
{
	ListCell   *cell;

	foreach(cell, append->appendplans)
		if (!plan_is_table_scan(lfirst(cell)) && !plan_is_batched_scan(lfirst(cell)))
			return false;
	return true;
}

/* A node that batches are not made of, as EXPLAIN names it; NULL: its own reason says enough. */
static const char *
input_label(const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_NestLoop:
			return "a Nested Loop";
		case T_Agg:
		case T_Group:
			return "another aggregate";
		case T_SubqueryScan:
			return "a Subquery Scan";
		case T_CteScan:
		case T_WorkTableScan:
			return "a WITH query";
		case T_FunctionScan:
		case T_TableFuncScan:
			return "a function";
		case T_ValuesScan:
			return "VALUES";
		case T_ForeignScan:
			return plan_is_table_scan(plan) ? NULL : "a Foreign Scan of several tables";
		case T_SampleScan:
			return "a Sample Scan";
		case T_WindowAgg:
			return "a window function";
		case T_SetOp:
			return "a Set Operation";
		case T_ProjectSet:
			return "a set-returning function";
		case T_Append:
			return append_is_of_scans((const Append *) plan) ? NULL :
				"an Append of other than sequential scans";
		case T_MergeAppend:
			return "a Merge Append";
		case T_Unique:
			return "a Unique";
		case T_Limit:
			return "a Limit";
		case T_Gather:
		case T_GatherMerge:
			return "a Gather";
		default:
			return NULL;
	}
}

/* The same of a batched node. */
static const char *
custom_label(const CustomScan *scan)
{
	return scan->methods == &batch_agg_methods ? "another aggregate" : NULL;
}

/* Why the input of an aggregation or a join can't be in batches; NULL: that is said elsewhere. */
static const char *
input_reason(const PlanContext *context, const Plan *input)
{
	const char *label = input_label(input);

	if (IsA(input, CustomScan))
		label = custom_label((const CustomScan *) input);
	if (IsA(input, IndexScan) || IsA(input, IndexOnlyScan) || IsA(input, BitmapHeapScan))
		return psprintf("reading \"%s\" through an index is estimated to be cheaper",
						scan_label(context, (const Scan *) input));
	return label != NULL ? psprintf("its input is %s", label) : NULL;
}

/* Note why an aggregation, or a join, that was reached from below stays as it is. */
void
note_input(PlanContext *context, const Plan *plan)
{
	const char *kind = NULL;
	const char *reason = NULL;
	const Plan *input = NULL;

	if (!context->wants_reasons || context->obstacle != NULL)
		return;
	if (IsA(plan, MergeJoin))
	{
		kind = "join";
		reason = "a merge join is estimated to be cheaper";
	}
	else if (IsA(plan, HashJoin))
	{
		kind = "join";
		input = plan->lefttree;
	}
	else if (IsA(plan, Agg) && !DO_AGGSPLIT_COMBINE(((const Agg *) plan)->aggsplit))
	{
		kind = "aggregate";
		input = agg_below((const Agg *) plan);
	}
	if (input != NULL)
		reason = input_reason(context, input);
	if (reason != NULL)
		note_reason(context, kind, reason);
	if (reason != NULL && IsA(plan, HashJoin))
		context->join_reasons = lappend(context->join_reasons, list_make2(unconstify(Plan *, plan), llast(context->reasons)));
}

/* The rows of a hash join's input are gathered after all. */
void
forget_join_reason(PlanContext *context, const Plan *join)
{
	ListCell   *cell;

	foreach(cell, context->join_reasons)
		if (linitial(lfirst(cell)) == join)
			context->reasons = list_delete_ptr(context->reasons, lsecond(lfirst(cell)));
}
