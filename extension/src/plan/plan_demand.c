/*
 * plan_demand.c
 *	  Which nodes of a plan may stop a scan below them before its end.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"

#include "demand.h"
#include "walk.h"

static const RowDemand all_rows = {RUN_TAKES_ALL, RUN_TAKES_ALL, false, NIL};

/* Of the node that returns a statement's rows. */
RowDemand
demand_of_result(void)
{
	RowDemand	demand = all_rows;

	demand.run = RUN_TAKES_EACH;
	return demand;
}

/* Of a subplan whose use is not known. */
RowDemand
demand_of_subplan(void)
{
	RowDemand	demand = all_rows;

	demand.may_stop = true;
	return demand;
}

static bool
takes_all(const RowDemand *demand)
{
	return demand->run == RUN_TAKES_ALL &&
		demand->worker_run == RUN_TAKES_ALL &&
		!demand->may_stop && demand->limits == NIL;
}

/* Below a node that makes many rows of one: any row may be the last. */
static RowDemand
demand_below_multiplier(RowDemand demand)
{
	if (demand.run != RUN_TAKES_ALL)
		demand.run = RUN_TAKES_SOME;
	if (demand.worker_run != RUN_TAKES_ALL)
		demand.worker_run = RUN_TAKES_SOME;
	demand.may_stop |= (demand.limits != NIL);
	demand.limits = NIL;
	return demand;
}

/* Does an outer row find one inner row at most, and then look no further? */
static bool
stops_at_first_match(const Join *join)
{
	return join->jointype == JOIN_SEMI || join->jointype == JOIN_ANTI ||
		(join->inner_unique &&
		 (join->jointype == JOIN_INNER || join->jointype == JOIN_LEFT));
}

static RowDemand
demand_below_join(const Join *join, RowDemand demand, bool is_inner)
{
	if (!is_inner && stops_at_first_match(join))
		return demand;
	demand = demand_below_multiplier(demand);
	if (IsA(join, MergeJoin) || (is_inner && stops_at_first_match(join)))
		demand.may_stop = true;
	return demand;
}

/* What a node asks of its outer or inner child, if this is asked of itself. */
RowDemand
demand_below(const Plan *plan, RowDemand demand, bool is_inner)
{
	switch (nodeTag(plan))
	{
		case T_Sort:
		case T_Hash:
		case T_ModifyTable:
			return all_rows;
		case T_Agg:
			return ((const Agg *) plan)->aggstrategy == AGG_SORTED ? demand : all_rows;
		case T_SetOp:
			return ((const SetOp *) plan)->strategy == SETOP_SORTED ? demand : all_rows;
		case T_Limit:
			demand.limits = lappend_int(list_copy(demand.limits), plan->plan_node_id);
			return demand;
		case T_Gather:
		case T_GatherMerge:
			demand.worker_run = RUN_TAKES_EACH;
			return demand;
		case T_Memoize:
			demand.may_stop |= ((const Memoize *) plan)->singlerow;
			return demand;
		case T_Group:
		case T_IncrementalSort:
		case T_LockRows:
		case T_Material:
		case T_Result:
		case T_Unique:
		case T_WindowAgg:
			return demand;
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			return demand_below_join((const Join *) plan, demand, is_inner);
		default:
			return demand_below_multiplier(demand);
	}
}

/* Note what a SubPlan expression asks of its plan; a WITH query's readers do. */
static void
note_subplan(const SubPlan *subplan, RowDemand *subplans)
{
	RowDemand  *demand = &subplans[subplan->plan_id - 1];

	switch (subplan->subLinkType)
	{
		case ARRAY_SUBLINK:
		case EXPR_SUBLINK:
		case ROWCOMPARE_SUBLINK:
		case MULTIEXPR_SUBLINK:
			/* All but the first read on, if only to see that no row follows. */
			*demand = all_rows;
			break;
		case ANY_SUBLINK:
			if (subplan->useHashTable)
				*demand = all_rows;
			break;
		default:
			break;
	}
}

static bool
note_subplans(Node *node, void *subplans)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubPlan))
		note_subplan((SubPlan *) node, subplans);
	return walk_below(node, note_subplans, subplans);
}

/*
 * Note what the expressions of a node, and the node itself if it reads a WITH
 * query, ask of subplans, in the order of their plan ids.
 */
void
demand_note_subplans(const Plan *plan, RowDemand demand, RowDemand *subplans)
{
	note_subplans((Node *) plan->initPlan, subplans);
	note_subplans((Node *) plan->targetlist, subplans);
	note_subplans((Node *) plan->qual, subplans);
	if (IsA(plan, NestLoop) || IsA(plan, HashJoin) || IsA(plan, MergeJoin))
		note_subplans((Node *) ((const Join *) plan)->joinqual, subplans);
	/* One reader that takes all is enough. */
	if (IsA(plan, CteScan) && takes_all(&demand))
		subplans[((const CteScan *) plan)->ctePlanId - 1] = all_rows;
}

List *
demand_to_list(const RowDemand *demand)
{
	return list_concat(list_make3_int(demand->run, demand->worker_run,
									  demand->may_stop),
					   demand->limits);
}

RowDemand
demand_from_list(const List *list)
{
	return (RowDemand) {
		.run = list_nth_int(list, 0),
		.worker_run = list_nth_int(list, 1),
		.may_stop = list_nth_int(list, 2) != 0,
		.limits = list_copy_tail(list, 3),
	};
}
