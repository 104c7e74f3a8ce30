/*
 * sort_plan.c
 *	  Which Sort nodes run in batches, and their nodes.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

#include "aggregate.h"
#include "batch_limits.h"
#include "join.h"
#include "plan.h"
#include "rows.h"
#include "sort.h"
#include "sort_key.h"

/* The number of rows of a LIMIT or an OFFSET; -1: it is not known. */
static int64
constant_count(const Node *expression, int64 if_absent)
{
	const Const *constant = (const Const *) expression;

	if (expression == NULL)
		return if_absent;
	if (!IsA(expression, Const))
		return -1;
	return constant->constisnull ? if_absent : DatumGetInt64(constant->constvalue);
}

/* Does a Limit take so few rows that a scan below the stock Sort leaves out the others? */
static bool
limit_is_small(const Limit *limit)
{
	const int64 count = constant_count(limit->limitCount, PG_INT64_MAX);
	const int64 offset = constant_count(limit->limitOffset, 0);

	return count < TOP_ROWS_MAX && offset < TOP_ROWS_MAX && count + offset <= TOP_ROWS_MAX;
}

/* The place of a node below another, as far as it matters to a Sort. */
SortPlace
sort_place_below(const Plan *plan, SortPlace place, bool is_inner)
{
	switch (nodeTag(plan))
	{
		case T_Limit:
			return limit_is_small((const Limit *) plan) ? SORT_IS_LIMITED : SORT_IS_FREE;
		case T_Result:
		case T_SubqueryScan:
		case T_Append:
		case T_MergeAppend:
		case T_Gather:
		case T_GatherMerge:
			return place == SORT_IS_LIMITED && plan->qual == NIL ? SORT_IS_LIMITED : SORT_IS_FREE;
		case T_Agg:
			return SORT_IS_GROUPED;
		case T_Unique:
			return SORT_IS_UNIQUE;
		case T_MergeJoin:
			return is_inner && !((const MergeJoin *) plan)->skip_mark_restore ?
				SORT_IS_MARKED : SORT_IS_FREE;
		default:
			return SORT_IS_FREE;
	}
}

/* Does an expression hold an aggregate whose result depends on the order of rows? */
static bool
holds_ordered_aggregate(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
		return !aggregate_takes_any_order((const Aggref *) node);
	return expression_tree_walker(node, holds_ordered_aggregate, context);
}

/* Does it hold one with an order of its own, which the planner may have sorted the rows for? */
static bool
holds_sorting_aggregate(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
		return ((const Aggref *) node)->aggorder != NIL || ((const Aggref *) node)->aggdistinct != NIL;
	return expression_tree_walker(node, holds_sorting_aggregate, context);
}

/* May equal values of one of these columns of a node differ? */
static bool
columns_are_ambiguous(const Plan *plan, const AttrNumber *columns, int count)
{
	for (int i = 0; i < count; i++)
		if (key_is_ambiguous((Node *) list_nth_node(TargetEntry, plan->targetlist, columns[i] - 1)->expr))
			return true;
	return false;
}

/*
 * Are the results of an aggregation the same, whatever the order of rows that are equal by the keys of the Sort below?  Where the
 * query itself sorts rows for all of them, that order is by chance.
 */
bool
sort_is_free_below(const Agg *agg)
{
	Node	   *expressions = (Node *) list_make2(agg->plan.targetlist, agg->plan.qual);

	if (!holds_ordered_aggregate(expressions, NULL))
		return !columns_are_ambiguous(agg->plan.lefttree, agg->grpColIdx, agg->numCols);
	return agg->aggstrategy == AGG_PLAIN && !holds_sorting_aggregate(expressions, NULL);
}

static const Expr *
sorted_expression(const Sort *sort, int key)
{
	return list_nth_node(TargetEntry, sort->plan.lefttree->targetlist, sort->sortColIdx[key] - 1)->expr;
}

/* Why a Sort stays the stock server's, or NULL. */
const char *
sort_obstacle(const Sort *sort, SortPlace place)
{
	const Oid	collation = sort->collations[0];
	const Expr *first = sorted_expression(sort, 0);
	const Oid	type = getBaseType(exprType((const Node *) first));
	ListCell   *cell;

	if (place == SORT_IS_MARKED)
		return "a merge join goes back to its rows";
	if (place == SORT_IS_LIMITED)
		return "a LIMIT takes few of its rows";
	if (place == SORT_IS_UNIQUE && columns_are_ambiguous(sort->plan.lefttree, sort->sortColIdx, sort->numCols))
		return "equal values of a key may differ";
	foreach(cell, sort->plan.lefttree->targetlist)
		if (exprType((Node *) lfirst_node(TargetEntry, cell)->expr) == RECORDOID)
			return "a column is a record";
	if (sort_words_of_operator(type, sort->sortOperators[0], collation) != WORDS_NONE)
		return NULL;
	return OidIsValid(collation) ? "texts are sorted in batches by the C collation only" :
		"there is no batched form of its first key";
}

/* Are there enough rows? */
bool
sort_pays(const Sort *sort)
{
	return batchexec_mode != BATCH_MODE_ALLOW ||
		sort->plan.lefttree->plan_rows >= SORT_ROWS_TO_PAY;
}

/* The attributes of a batched node's batches that its rows consist of; NIL: these are computed. */
static List *
batch_attributes(const Plan *input)
{
	List	   *attributes = NIL;
	ListCell   *cell;

	if (!plan_is_batched(input) || input->targetlist == NIL)
		return NIL;
	foreach(cell, input->targetlist)
	{
		const Var  *var = (const Var *) lfirst_node(TargetEntry, cell)->expr;

		if (!IsA(var, Var) || var->varattno <= 0 || var->varno != batch_relid(input))
			return NIL;
		attributes = lappend_int(attributes, var->varattno);
	}
	return attributes;
}

static List *
private_lists(const Sort *sort)
{
	List	   *columns = NIL;
	List	   *operators = NIL;
	List	   *collations = NIL;
	List	   *nulls_first = NIL;

	for (int i = 0; i < sort->numCols; i++)
	{
		columns = lappend_int(columns, sort->sortColIdx[i] - 1);
		operators = lappend_oid(operators, sort->sortOperators[i]);
		collations = lappend_oid(collations, sort->collations[i]);
		nulls_first = lappend_int(nulls_first, sort->nullsFirst[i]);
	}
	return list_make5(batch_attributes(sort->plan.lefttree), columns, operators, collations, nulls_first);
}

/* The BatchSort in place of a Sort. */
CustomScan *
sort_to_batch(Sort *sort, int *next_node_id)
{
	CustomScan *batch = makeNode(CustomScan);
	Sort	   *original = makeNode(Sort);

	memcpy(original, sort, sizeof(Sort));
	original->plan.plan_node_id = (*next_node_id)++;
	original->plan.initPlan = NIL;
	original->plan.lefttree = NULL;
	batch->scan.plan = sort->plan;
	NodeSetTag(batch, T_CustomScan);
	plan_hand_on_columns(batch, sort->plan.lefttree, sort->plan.targetlist);
	batch->custom_private = private_lists(sort);
	batch->custom_plans = list_make1(original);
	batch->methods = &batch_sort_methods;
	batch->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	return batch;
}
