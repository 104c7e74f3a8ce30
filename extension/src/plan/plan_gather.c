/*
 * plan_gather.c
 *	  Where the rows of a plan that has no batches are gathered into some: right below an
 *	  aggregation, or below the hash joins that it reads.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"

#include "cost.h"
#include "join.h"
#include "plan.h"
#include "rows.h"

/* What it costs to take a row into a batch, and to copy a value there, next to one that is passed by value. */
#define COST_ROW_FACTOR		1.1
#define COST_COPY_FACTOR	2

/* Where rows are gathered, and what that costs, less what batches then save below the aggregation. */
typedef struct Gathering
{
	Plan	  **place;
	Bitmapset  *columns;		/* of the plan there that are read, from 0 */
	Cost		cost;
} Gathering;

/* Add the columns of a node's input that an expression of it reads. */
static Bitmapset *
add_columns(Bitmapset *columns, Node *expression)
{
	Bitmapset  *attributes = NULL;
	int			attribute = -1;

	pull_varattnos(expression, OUTER_VAR, &attributes);
	while ((attribute = bms_next_member(attributes, attribute)) >= 0)
		columns = bms_add_member(columns, attribute + FirstLowInvalidHeapAttributeNumber - 1);
	return columns;
}

/* Add the columns that a node of an aggregation groups by. */
static Bitmapset *
add_keys(Bitmapset *columns, const Agg *agg)
{
	for (int i = 0; i < agg->numCols; i++)
		columns = bms_add_member(columns, agg->grpColIdx[i] - 1);
	return columns;
}

static Bitmapset *
columns_of_agg(const Agg *agg)
{
	Bitmapset  *columns = add_keys(NULL, agg);
	ListCell   *cell;

	columns = add_columns(columns, (Node *) agg->plan.targetlist);
	columns = add_columns(columns, (Node *) agg->plan.qual);
	foreach(cell, agg->chain)
		columns = add_keys(columns, lfirst(cell));
	return columns;
}

static Bitmapset *
columns_of_join(const HashJoin *join)
{
	return add_columns(NULL, (Node *) list_make4(join->join.plan.targetlist, join->join.plan.qual,
												 join->join.joinqual, join->hashclauses));
}

/* What gathering the rows of a plan costs. */
static Cost
cost_of_gathering(const Bitmapset *columns, const Plan *input)
{
	double		values = COST_ROW_FACTOR;
	ListCell   *cell;

	foreach(cell, input->targetlist)
		if (bms_is_member(foreach_current_index(cell), columns))
			values += get_typbyval(exprType((Node *) lfirst_node(TargetEntry, cell)->expr)) ? 1 : COST_COPY_FACTOR;
	return batchexec_cost_startup + input->plan_rows * values * batchexec_cost_row;
}

/* What an aggregation costs without its input, and without the subqueries that are charged to it. */
static Cost
cost_of_agg(const Agg *agg)
{
	Cost		cost = agg->plan.total_cost - agg->plan.lefttree->total_cost;
	ListCell   *cell;

	foreach(cell, agg->plan.initPlan)
	{
		const SubPlan *subquery = lfirst_node(SubPlan, cell);

		cost -= subquery->startup_cost + subquery->per_call_cost;
	}
	return cost;
}

/* What a hash join costs without its sides, next to that of a batched one. */
static Cost
join_saving(const HashJoin *join)
{
	const Plan *plan = &join->join.plan;
	const Plan *hash = plan->righttree;
	const int	key_count = list_length(join->hashclauses);
	/* Of a unique inner side, the stock server charges the rows of the join by a guess of how many find theirs. */
	const Cost	by_row = Max(plan->total_cost - plan->lefttree->total_cost - hash->total_cost,
							 plan->plan_rows * cpu_tuple_cost);

	/* With files, that of either is for the most part what these cost. */
	if (cost_group_memories(hash->plan_rows, hash->plan_width, list_length(hash->targetlist)) >= 1)
		return 0;
	return by_row - cost_hash_rows(hash->plan_rows, key_count, JOIN_KEEPS_ONE(join->join.jointype)) -
		cost_probe(plan->lefttree->plan_rows, key_count, plan->plan_rows);
}

/* May a hash join take batches of its outer side's rows? */
static bool
may_take_batches(const Plan *plan)
{
	return IsA(plan, HashJoin) && join_obstacle((const HashJoin *) plan) == NULL;
}

static Gathering
gathering_at_input(const Agg *agg, Plan **input)
{
	Bitmapset  *columns = columns_of_agg(agg);

	return (Gathering) {input, columns, cost_of_gathering(columns, *input)};
}

/*
 * The cheapest place for an aggregation over this input, which is below its Sort, if it has one.  All joins that
 * rows go through are batched; by choice it is the lowest such place.
 */
static Gathering
cheapest_gathering(const Agg *agg, Plan **input)
{
	Gathering	best = gathering_at_input(agg, input);
	Cost		saved = 0;

	for (Plan **place = input; may_take_batches(*place);)
	{
		HashJoin   *join = (HashJoin *) *place;
		Bitmapset  *columns;
		Cost		cost;

		saved += join_saving(join);
		place = &join->join.plan.lefttree;
		if (plan_is_batched(*place))
			break;
		columns = columns_of_join(join);
		cost = cost_of_gathering(columns, *place) - saved;
		if (batchexec_mode != BATCH_MODE_ALLOW || cost < best.cost)
			best = (Gathering) {place, columns, cost};
		if (join_outer_obstacle(join) != NULL)
			break;
	}
	return best;
}

static bool
gathering_pays(const Agg *agg, const Gathering *gathering)
{
	const Cost	agg_cost = cost_of_agg(agg);

	if (batchexec_mode != BATCH_MODE_ALLOW)
		return true;
	return agg_cost > batchexec_cost_startup &&
		cost_agg_saving(agg_cost, agg->plan.plan_rows, 0, 1) > gathering->cost;
}

/* The place of the plan that an aggregation reads. */
static Plan **
input_of_agg(Agg *agg)
{
	return agg_is_over_sort(agg) ? &agg->plan.lefttree->lefttree : &agg->plan.lefttree;
}

/* May the rows of an aggregation be gathered? */
bool
agg_may_gather(Agg *agg)
{
	const Gathering gathering = cheapest_gathering(agg, input_of_agg(agg));

	return gathering_pays(agg, &gathering);
}

/* The plans from an aggregation's input down to that whose rows are gathered. */
static List *
plans_down_to(Plan **input, Plan **place)
{
	List	   *plans = list_make1(*input);

	while (input != place)
	{
		input = &(*input)->lefttree;
		plans = lappend(plans, *input);
	}
	return plans;
}

/* Have these plans be below each other again. */
static void
put_back(Plan **input, const List *plans)
{
	ListCell   *cell;

	foreach(cell, plans)
	{
		*input = lfirst(cell);
		input = &(*input)->lefttree;
	}
}

/* Replace the joins above the rows that have been gathered; false where one can't be. */
static bool
batch_joins(PlanContext *context, Plan **plan)
{
	HashJoin   *join = (HashJoin *) *plan;

	check_stack_depth();
	if (plan_is_batched(*plan))
		return true;
	if (!batch_joins(context, &join->join.plan.lefttree) || size_obstacle(context, join_expression_size(join)) != NULL)
		return false;
	*plan = (Plan *) join_to_batch(join, &context->next_node_id);
	return true;
}

/* Note what is known of the joins that have been replaced. */
static void
note_joins(PlanContext *context, const List *plans)
{
	ListCell   *cell;

	foreach(cell, plans)
	{
		const Plan *plan = lfirst(cell);

		forget_join_reason(context, plan);
		if (lnext(plans, cell) != NULL)
			context->batched_cost += Max(plan->total_cost - plan->lefttree->total_cost - plan->righttree->total_cost, 0);
	}
}

/* Gather rows at this place, and batch the joins above; false, and nothing done, where the aggregation then can't be batched. */
static bool
gather_at(PlanContext *context, Agg *agg, Plan **input, const Gathering *gathering)
{
	const int	size_before = context->expression_nodes;
	const List *plans = plans_down_to(input, gathering->place);
	int			size_of_joins;

	*gathering->place = (Plan *) rows_to_batch(gathering->columns, *gathering->place, &context->next_node_id);
	if (batch_joins(context, input))
	{
		size_of_joins = context->expression_nodes;
		if (agg_of_batches_obstacle(context, agg) == NULL)
		{
			context->expression_nodes = size_of_joins;
			note_joins(context, plans);
			return true;
		}
	}
	context->expression_nodes = size_before;
	put_back(input, plans);
	return false;
}

/* Have the rows of an aggregation gathered into batches, where it then can be batched, and that pays. */
void
gather_rows(PlanContext *context, Agg *agg)
{
	Plan	  **input = input_of_agg(agg);
	Gathering	gathering;

	if (context->obstacle != NULL || plan_is_batched(*input) || DO_AGGSPLIT_COMBINE(agg->aggsplit))
		return;
	gathering = cheapest_gathering(agg, input);
	if (!gathering_pays(agg, &gathering) || gather_at(context, agg, input, &gathering) || gathering.place == input)
		return;
	gathering = gathering_at_input(agg, input);
	if (gathering_pays(agg, &gathering))
		(void) gather_at(context, agg, input, &gathering);
}
