/*
 * plan.c
 *	  Walk a finished plan and put batched nodes in place of scans of tables, of
 *	  hash joins over them, and of aggregates over either.
 *
 * The planner has chosen among paths that carry the costs of batches already
 * (plan_path.c).  A replaced subtree is kept below its batched node, which can
 * still run it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "optimizer/cost.h"
#include "jit/jit.h"
#include "parser/parsetree.h"
#include "utils/snapmgr.h"

#include "cost.h"
#include "explain.h"
#include "insert.h"
#include "join.h"
#include "batch_limits.h"
#include "plan.h"
#include "server.h"
#include "sort.h"

static void batch_subtree(PlanContext *context, Plan **plan, RowDemand demand, SortPlace place);

/* Are the settings such that plans may be batched? */
bool
batching_is_on(void)
{
	return batchexec_enabled && batchexec_mode != BATCH_MODE_FORBID;
}

/* Why a batched plan must run its original here and now, or NULL. */
const char *
batching_runtime_obstacle(EState *estate)
{
	if (!batching_is_on())
		return "batching is switched off";
	if (IsolationIsSerializable())
		return "the transaction is serializable";
	if (estate->es_epq_active != NULL)
		return "a concurrently updated row is being rechecked";
	if (estate->es_snapshot == NULL ||
		estate->es_snapshot->snapshot_type != SNAPSHOT_MVCC)
		return "the snapshot is not an MVCC snapshot";
	return NULL;
}

/* Is it an UPDATE or a DELETE? */
bool
query_changes_rows(CmdType command)
{
	return command == CMD_UPDATE || command == CMD_DELETE;
}

/*
 * Does an UPDATE or DELETE read its table alone?  Rows of others, and of subqueries that
 * become joins, are rechecked along with a row that was updated concurrently.
 */
static bool
changes_one_table(const Query *query)
{
	return query->hasSubLinks == false && query->jointree != NULL &&
		list_length(query->jointree->fromlist) == 1 &&
		IsA(linitial(query->jointree->fromlist), RangeTblRef);
}

/* Why nothing of a query may be batched, as far as is known before it is planned. */
const char *
query_obstacle(const Query *query, int cursor_options)
{
	if (query->commandType == CMD_MERGE ||
		(query_changes_rows(query->commandType) && !changes_one_table(query)))
		return "the statement modifies rows that it reads, and reads others";
	if (query->hasModifyingCTE)
		return "a WITH query modifies rows";
	if (query->rowMarks != NIL)
		return "rows are locked";
	if (IsolationIsSerializable())
		return "the transaction is serializable";
	if ((cursor_options & CURSOR_OPT_SCROLL) ||
		((cursor_options & CURSOR_OPT_FAST_PLAN) &&
		 !(cursor_options & CURSOR_OPT_NO_SCROLL)))
		return "the cursor may scroll backward";
	return NULL;
}

/* Why nothing of a statement may be batched, or NULL. */
static const char *
statement_obstacle(PlannedStmt *statement, int cursor_options)
{
	if (statement->commandType == CMD_MERGE ||
		(query_changes_rows(statement->commandType) &&
		 (statement->rowMarks != NIL || statement->subplans != NIL)))
		return "the statement modifies rows that it reads, and reads others";
	if (statement->hasModifyingCTE)
		return "a WITH query modifies rows";
	if (statement->rowMarks != NIL)
		return "rows are locked";
	if (IsolationIsSerializable())
		return "the transaction is serializable";
	if (cursor_options & CURSOR_OPT_SCROLL)
		return "the cursor may scroll backward";
	/* Of a cursor that says neither, core asks the plan. */
	if ((cursor_options & CURSOR_OPT_FAST_PLAN) &&
		!(cursor_options & CURSOR_OPT_NO_SCROLL) &&
		statement->planTree != NULL &&
		ExecSupportsBackwardScan(statement->planTree))
		return "the cursor may scroll backward; declare it NO SCROLL";
	return NULL;
}

/* The children of a plan node beside its left and right tree. */
static List *
plan_children(Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_Append:
			return ((Append *) plan)->appendplans;
		case T_MergeAppend:
			return ((MergeAppend *) plan)->mergeplans;
		case T_SubqueryScan:
			return list_make1(((SubqueryScan *) plan)->subplan);
		case T_CustomScan:
			return ((CustomScan *) plan)->custom_plans;
		case T_BitmapAnd:
			return ((BitmapAnd *) plan)->bitmapplans;
		case T_BitmapOr:
			return ((BitmapOr *) plan)->bitmapplans;
		default:
			return NIL;
	}
}

/* Facts about a whole plan, gathered before the first node is replaced. */
typedef struct PlanOverview
{
	int			largest_node_id;
	bool		holds_scan;		/* or an INSERT or an aggregation of many rows */
} PlanOverview;

/*
 * Does an index scan find so many rows that it pays to fetch them a page at a time?  Of one
 * that runs for each row of another table, only the rows that it returns are known.
 */
static bool
index_scan_pays(const IndexScan *scan)
{
	return scan->scan.plan.plan_rows >= INDEX_ROWS_TO_PAY ||
		(bms_is_empty(scan->scan.plan.extParam) &&
		 cost_rows_indexed(scan->indexid) >= INDEX_ROWS_TO_PAY);
}

static void
look_over_plan(Plan *plan, PlanOverview *overview)
{
	ListCell   *cell;

	check_stack_depth();
	for (; plan != NULL; plan = plan->lefttree)
	{
		overview->largest_node_id = Max(overview->largest_node_id, plan->plan_node_id);
		overview->holds_scan = overview->holds_scan || plan_is_table_scan(plan) || IsA(plan, BitmapHeapScan) ||
			(IsA(plan, Agg) && agg_may_gather((Agg *) plan)) ||
			(IsA(plan, Sort) && sort_pays((const Sort *) plan)) ||
			(IsA(plan, IndexScan) && index_scan_pays((const IndexScan *) plan));
		if (plan->righttree != NULL)
			look_over_plan(plan->righttree, overview);
		foreach(cell, plan_children(plan))
			look_over_plan(lfirst(cell), overview);
	}
}

/* Does a statement insert the rows of a query? */
static bool
holds_insert(const PlannedStmt *statement)
{
	const Plan *plan = statement->planTree;

	return statement->commandType == CMD_INSERT && IsA(plan, ModifyTable) &&
		((const ModifyTable *) plan)->operation == CMD_INSERT && !IsA(plan->lefttree, Result);
}

static PlanOverview
look_over_statement(const PlannedStmt *statement)
{
	PlanOverview overview = {0, false};
	ListCell   *cell;

	look_over_plan(statement->planTree, &overview);
	overview.holds_scan |= holds_insert(statement) &&
		insert_pays((const ModifyTable *) statement->planTree);
	foreach(cell, statement->subplans)
		look_over_plan(lfirst(cell), &overview);
	return overview;
}

/* Count expressions of a node; why they are too many for it, or NULL. */
const char *
size_obstacle(PlanContext *context, int nodes)
{
	if (nodes > EXPRESSION_NODES_MAX)
		return psprintf("its expressions have more than %d parts",
						EXPRESSION_NODES_MAX);
	if (context->expression_nodes + nodes > STATEMENT_EXPRESSION_NODES_MAX)
		return psprintf("the statement's batched expressions have more than %d parts",
						STATEMENT_EXPRESSION_NODES_MAX);
	context->expression_nodes += nodes;
	return NULL;
}

/* Do batches pay for a scan, and others that are read with it?  Adds its table's rows to theirs. */
static bool
scan_pays(const PlanContext *context, const Scan *scan, double *rows)
{
	return batchexec_mode != BATCH_MODE_ALLOW ||
		cost_table_pays(rt_fetch(scan->scanrelid, context->statement->rtable)->relid, rows);
}

/* Do they pay for scans that are read together? */
static bool
scans_pay(const PlanContext *context, const List *scans)
{
	double		rows = 0;
	ListCell   *cell;

	foreach(cell, scans)
		if (scan_pays(context, lfirst(cell), &rows))
			return true;
	return false;
}

/* As size_obstacle, of an aggregation over these scans. */
static const char *
agg_size_obstacle(PlanContext *context, Agg *agg, List *scans)
{
	const int	before = context->expression_nodes;
	ListCell   *cell;

	foreach(cell, scans)
	{
		const char *obstacle = size_obstacle(context,
											 agg_expression_size(agg, lfirst(cell)));

		if (obstacle != NULL)
		{
			context->expression_nodes = before;
			return obstacle;
		}
	}
	return NULL;
}

static bool
batch_aggregate(PlanContext *context, Plan **plan)
{
	Agg		   *agg = (Agg *) *plan;
	const char *obstacle;
	List	   *scans = context->obstacle == NULL ? agg_scans(agg) : NIL;
	ListCell   *cell;

	if (scans == NIL)
		return false;
	/* The reason of a scan says it all where the scan can't be batched. */
	foreach(cell, scans)
		if (scan_obstacle(context->statement, lfirst(cell)) != NULL)
			return false;
	if (!scans_pay(context, scans))
		return false;
	obstacle = agg_obstacle(agg, scans);
	if (obstacle == NULL)
		obstacle = agg_size_obstacle(context, agg, scans);
	if (obstacle != NULL)
	{
		note_reason(context, "aggregate", obstacle);
		return false;
	}
	context->batched_cost += agg->plan.total_cost;
	*plan = (Plan *) agg_to_batch(agg, scans, &context->next_node_id);
	return true;
}

/* Why a hash join over a batched node stays the stock server's, or NULL. */
static const char *
hash_join_obstacle(PlanContext *context, const HashJoin *join, const RowDemand *demand)
{
	const char *obstacle = join_obstacle(join);

	if (obstacle == NULL)
		obstacle = join_outer_obstacle(join);
	if (obstacle == NULL && (demand->may_stop || demand->limits != NIL))
		return "it may be stopped before its end";
	return obstacle != NULL ? obstacle :
		size_obstacle(context, join_expression_size(join));
}

/* Replace a hash join whose outer side has become a batched node. */
static void
batch_join(PlanContext *context, Plan **plan, const RowDemand *demand)
{
	HashJoin   *join = (HashJoin *) *plan;
	const Plan *outer = join->join.plan.lefttree;
	const Plan *inner = join->join.plan.righttree->lefttree;
	const char *obstacle;

	if (context->obstacle != NULL || !plan_is_batched(outer))
		return;
	obstacle = hash_join_obstacle(context, join, demand);
	if (obstacle != NULL)
	{
		note_reason(context, "join", obstacle);
		return;
	}
	context->batched_cost += Max(join->join.plan.total_cost - inner->total_cost -
								 outer->total_cost, 0);
	*plan = (Plan *) join_to_batch(join, &context->next_node_id);
}

/* The obstacle to an aggregation over this batched input, or NULL. */
const char *
agg_of_batches_obstacle(PlanContext *context, Agg *agg)
{
	const char *obstacle = agg_obstacle(agg, list_make1(agg_below(agg)));

	return obstacle != NULL ? obstacle : size_obstacle(context, agg_expression_size(agg, agg_below(agg)));
}

/* Replace an aggregation over what has become a batched join, the scan of a bitmap's rows, or rows that are gathered. */
static void
batch_aggregate_of_batches(PlanContext *context, Plan **plan)
{
	Agg		   *agg = (Agg *) *plan;
	const char *obstacle;

	gather_rows(context, agg);
	if (!agg_is_over_batches(agg))
		return;
	obstacle = agg_of_batches_obstacle(context, agg);
	if (obstacle != NULL)
	{
		note_reason(context, "aggregate", obstacle);
		return;
	}
	context->batched_cost += agg->plan.total_cost - agg->plan.lefttree->total_cost;
	*plan = (Plan *) agg_to_batch(agg, list_make1(agg_below(agg)), &context->next_node_id);
}

static void
batch_scan(PlanContext *context, Plan **plan, const RowDemand *demand)
{
	Scan	   *scan = (Scan *) *plan;
	const char *obstacle = context->obstacle;
	double		rows = 0;

	if (obstacle == NULL)
		obstacle = scan_obstacle(context->statement, scan);
	if (obstacle == NULL && !scan_pays(context, scan, &rows))
		obstacle = "too few rows for batches to pay";
	if (obstacle == NULL)
		obstacle = size_obstacle(context, expression_size((Node *) (*plan)->qual, NIL));
	if (obstacle != NULL)
	{
		note_scan_reason(context, scan, obstacle);
		return;
	}
	*plan = (Plan *) scan_to_batch(scan, demand, context->next_node_id++);
}

/* Why batches don't pay for a scan of a bitmap's rows, or NULL. */
static const char *
bitmap_cost_obstacle(const BitmapHeapScan *scan)
{
	const Plan *plan = &scan->scan.plan;

	if (batchexec_mode != BATCH_MODE_ALLOW ||
		cost_rows_pay(plan->lefttree->plan_rows, plan->plan_rows))
		return NULL;
	return "too few rows, or too few that its filter removes, for batches to pay";
}

static void
batch_bitmap_scan(PlanContext *context, Plan **plan, const RowDemand *demand)
{
	BitmapHeapScan *scan = (BitmapHeapScan *) *plan;
	const char *obstacle = context->obstacle;

	if (obstacle == NULL)
		obstacle = bitmap_scan_obstacle(context->statement, scan);
	if (obstacle == NULL)
		obstacle = bitmap_cost_obstacle(scan);
	if (obstacle == NULL)
		obstacle = size_obstacle(context, expression_size((Node *) scan->scan.plan.qual, NIL) +
								 expression_size((Node *) scan->bitmapqualorig, NIL));
	if (obstacle != NULL)
		note_bitmap_scan_reason(context, scan, obstacle);
	else
		*plan = (Plan *) bitmap_scan_to_batch(scan, demand, context->next_node_id++);
}

static void
batch_index_scan(PlanContext *context, Plan **plan, const RowDemand *demand)
{
	IndexScan  *scan = (IndexScan *) *plan;
	const char *obstacle = context->obstacle;

	if (obstacle == NULL && batchexec_mode == BATCH_MODE_ALLOW &&
		!index_scan_pays(scan))
		obstacle = "too few rows for batches to pay";
	if (obstacle == NULL)
		obstacle = index_scan_obstacle(context->statement, scan, demand);
	if (obstacle == NULL)
		obstacle = size_obstacle(context, expression_size((Node *) scan->scan.plan.qual, NIL));
	if (obstacle == NULL)
		*plan = (Plan *) index_scan_to_batch(scan, demand, &context->next_node_id);
}

/* Is there a scan that might be batched at or below one of these nodes? */
static bool
holds_table_scan(List *plans)
{
	ListCell   *cell;

	check_stack_depth();
	foreach(cell, plans)
	{
		Plan	   *plan = lfirst(cell);

		if (plan != NULL && (plan_is_table_scan(plan) || holds_table_scan(plan_children(plan)) ||
							 holds_table_scan(list_make2(plan->lefttree, plan->righttree))))
			return true;
	}
	return false;
}

/* The nodes below one of another library are its own matter: it may look for those of the stock server. */
static void
note_custom_scan(PlanContext *context, const CustomScan *scan)
{
	if (context->wants_reasons && holds_table_scan(scan->custom_plans))
		note_reason(context, psprintf("scans below %s", scan->methods->CustomName),
					"the node of another library reads their rows");
}

static void
batch_list(PlanContext *context, List *plans, RowDemand demand, SortPlace place)
{
	ListCell   *cell;

	foreach(cell, plans)
		batch_subtree(context, (Plan **) &lfirst(cell), demand, place);
}

/* Replace a Sort, or tell the scan below of it. */
static void
batch_sort(PlanContext *context, Plan **plan, SortPlace place)
{
	Sort	   *sort = (Sort *) *plan;
	const char *obstacle = context->obstacle;

	if (obstacle == NULL && !sort_pays(sort))
		return;
	if (obstacle == NULL)
		obstacle = sort_obstacle(sort, place);
	if (obstacle == NULL)
	{
		*plan = (Plan *) sort_to_batch(sort, &context->next_node_id);
		return;
	}
	if (plan_is_batched_scan(sort->plan.lefttree))
		scan_note_sort((CustomScan *) sort->plan.lefttree, sort);
	if (context->obstacle == NULL && place != SORT_IS_LIMITED)
		note_reason(context, "sort", obstacle);
}

/* Replace the Sort below an aggregation that goes by row, unless rows in another order, but for their keys, show in its results. */
static void
batch_sort_of_groups(PlanContext *context, Plan *plan)
{
	if (IsA(plan, Agg) && plan->lefttree != NULL && IsA(plan->lefttree, Sort) &&
		sort_is_free_below((const Agg *) plan))
		batch_sort(context, &plan->lefttree, SORT_IS_FREE);
}

/* Replace what can be batched at and below *plan, of which demand is asked. */
static void
batch_subtree(PlanContext *context, Plan **plan, RowDemand demand, SortPlace place)
{
	const SortPlace place_below = *plan == NULL ? SORT_IS_FREE : sort_place_below(*plan, place, false);

	check_stack_depth();
	if (*plan == NULL)
		return;
	if (context->statement->subplans != NIL)
		demand_note_subplans(*plan, demand, context->subplan_demands);
	switch (nodeTag(*plan))
	{
		case T_Agg:
			if (batch_aggregate(context, plan))
				return;
			break;
		case T_SeqScan:
		case T_ForeignScan:
			if (plan_is_table_scan(*plan))
				batch_scan(context, plan, &demand);
			else
				note_reason(context, "foreign scan", "its foreign data wrapper reads several tables, or aggregates");
			return;
		case T_BitmapHeapScan:
			batch_bitmap_scan(context, plan, &demand);
			return;
		case T_IndexScan:
			batch_index_scan(context, plan, &demand);
			return;
		case T_Append:
			batch_list(context, ((Append *) *plan)->appendplans, demand, place_below);
			break;
		case T_MergeAppend:
			batch_list(context, ((MergeAppend *) *plan)->mergeplans, demand, place_below);
			break;
		case T_SubqueryScan:
			batch_subtree(context, &((SubqueryScan *) *plan)->subplan, demand, place_below);
			break;
		case T_CustomScan:
			note_custom_scan(context, (const CustomScan *) *plan);
			break;
		default:
			break;
	}
	batch_subtree(context, &(*plan)->lefttree,
				  demand_below(*plan, demand, false), place_below);
	batch_subtree(context, &(*plan)->righttree,
				  demand_below(*plan, demand, true), sort_place_below(*plan, place, true));
	if (IsA(*plan, HashJoin))
		batch_join(context, plan, &demand);
	else if (IsA(*plan, Agg))
		batch_aggregate_of_batches(context, plan);
	else if (IsA(*plan, Sort) && place != SORT_IS_GROUPED)
		batch_sort(context, plan, place);
	batch_sort_of_groups(context, *plan);
	note_input(context, *plan);
}

/* Replace an INSERT at the top of a plan. */
static void
batch_insert(PlanContext *context)
{
	ModifyTable *insert = (ModifyTable *) context->statement->planTree;
	const char *obstacle = context->obstacle;

	if (!holds_insert(context->statement))
		return;
	if (obstacle == NULL)
		obstacle = context->insert_obstacle;
	if (obstacle == NULL)
		obstacle = insert_obstacle(context->statement, insert);
	if (obstacle == NULL && !insert_pays(insert))
		obstacle = "too few rows for batches to pay";
	if (obstacle != NULL)
		note_reason(context, "insert", obstacle);
	else
		context->statement->planTree = (Plan *) insert_to_batch(insert,
																context->next_node_id++);
}

static void
batch_statement(PlanContext *context)
{
	PlannedStmt *statement = context->statement;
	int			subplan_count = list_length(statement->subplans);

	context->subplan_demands = palloc(sizeof(RowDemand) * (subplan_count + 1));
	for (int i = 0; i < subplan_count; i++)
		context->subplan_demands[i] = demand_of_subplan();
	batch_subtree(context, &statement->planTree, demand_of_result(), SORT_IS_FREE);
	/* A subplan is used by the main plan or by those after it, so go backward. */
	for (int i = subplan_count - 1; i >= 0; i--)
		batch_subtree(context,
					  (Plan **) &lfirst(list_nth_cell(statement->subplans, i)),
					  context->subplan_demands[i], SORT_IS_FREE);
	batch_insert(context);
}

/*
 * The planner asked for JIT by the cost of the whole plan.  Batched nodes have
 * nothing to compile, so count the cost of the others alone.
 */
static void
reconsider_jit(PlannedStmt *statement, Cost batched_cost)
{
	Cost		rest = statement->planTree->total_cost - batched_cost;

	if (statement->jitFlags != PGJIT_NONE && batched_cost > 0 &&
		(jit_above_cost < 0 || rest <= jit_above_cost))
		statement->jitFlags = PGJIT_NONE;
}

/*
 * Put batched nodes in a plan that the planner has just made.  The statement
 * is changed only in the links to the replaced nodes.  query_insert_obstacle says why
 * its query can't insert rows in batches, or is NULL.
 */
PlannedStmt *
plan_batch(PlannedStmt *statement, int cursor_options, const char *query_insert_obstacle)
{
	PlanContext context;
	PlanOverview overview;

	if (statement->commandType == CMD_UTILITY || statement->planTree == NULL)
		return statement;
	/* Most statements of a transaction cost less than the start of a batched node. */
	if (statement->planTree->total_cost < batchexec_cost_startup &&
		batchexec_mode == BATCH_MODE_ALLOW && !explain_awaits_reasons())
		return statement;
	overview = look_over_statement(statement);
	if (!overview.holds_scan && !explain_awaits_reasons())
		return statement;
	memset(&context, 0, sizeof(context));
	context.statement = statement;
	context.wants_reasons = explain_awaits_reasons() ||
		batchexec_mode == BATCH_MODE_REQUIRE;
	context.obstacle = statement_obstacle(statement, cursor_options);
	context.insert_obstacle = query_insert_obstacle;
	context.next_node_id = overview.largest_node_id + 1;
	batch_statement(&context);
	if (batchexec_mode == BATCH_MODE_REQUIRE && context.scan_reasons != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("plan cannot be batched: %s",
						(char *) linitial(context.scan_reasons)),
				 errhint("Set batchexec.mode to \"allow\" to run it without batches.")));
	explain_note_reasons(context.reasons);
	reconsider_jit(statement, context.batched_cost);
	return statement;
}
