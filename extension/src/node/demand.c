/*
 * demand.c
 *	  How many rows a running scan may still be asked for.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"

#include "batch.h"
#include "demand.h"
#include "server.h"

/* The innermost query that is running, and the rows it is to return; 0: all. */
typedef struct QueryRun
{
	QueryDesc  *query;
	uint64		row_count;
} QueryRun;

static QueryRun running = {NULL, 0};
static ExecutorRun_hook_type previous_run_hook = NULL;

/* Keep in mind how many rows are asked for: only this call knows it. */
static void
run_with_demand(RUN_PARAMETERS)
{
	const QueryRun outer = running;

	running = (QueryRun) {.query = query, .row_count = count};
	PG_TRY();
	{
		if (previous_run_hook != NULL)
			previous_run_hook(RUN_ARGUMENTS);
		else
			standard_ExecutorRun(RUN_ARGUMENTS);
	}
	PG_FINALLY();
	{
		running = outer;
	}
	PG_END_TRY();
}

void
demand_install_hook(void)
{
	previous_run_hook = ExecutorRun_hook;
	ExecutorRun_hook = run_with_demand;
}

void
demand_begin(DemandState *state, const RowDemand *demand, EState *estate)
{
	state->demand = *demand;
	state->estate = estate;
	state->limits = palloc0(sizeof(LimitState *) * (list_length(demand->limits) + 1));
	state->limits_are_found = false;
	state->rows_before = 0;
}

typedef struct NodeSearch
{
	NodeTag		tag;
	int			plan_node_id;
	PlanState  *found;
} NodeSearch;

static bool
find_node(PlanState *planstate, void *search_)
{
	NodeSearch *search = search_;

	if (nodeTag(planstate) == search->tag &&
		planstate->plan->plan_node_id == search->plan_node_id)
	{
		search->found = planstate;
		return true;
	}
	return planstate_tree_walker(planstate, find_node, search);
}

/*
 * A node of the running query; NULL where it is not in this process.  Nodes don't
 * know their parents, so look from the top.
 */
PlanState *
demand_find_node(const EState *estate, NodeTag tag, int plan_node_id)
{
	NodeSearch	search = {.tag = tag, .plan_node_id = plan_node_id};

	if (running.query == NULL || running.query->estate != estate)
		return NULL;
	find_node(running.query->planstate, &search);
	return search.found;
}

/* Once. */
static void
find_limits(DemandState *state)
{
	ListCell   *cell;

	state->limits_are_found = true;
	foreach(cell, state->demand.limits)
		state->limits[foreach_current_index(cell)] = (LimitState *)
			demand_find_node(state->estate, T_LimitState, lfirst_int(cell));
}

/* Rows that a Limit node still takes from its input; at least one, as it asks. */
static uint64
rows_to_limit(const LimitState *limit)
{
	uint64		end = (uint64) limit->offset + (uint64) limit->count;
	uint64		taken = (uint64) limit->position;

	if (limit->noCount)
		return PG_UINT64_MAX;
	return end > taken ? end - taken : 1;
}

static uint64
rows_to_run_end(const DemandState *state, RunDemand demand)
{
	Assert(running.query != NULL && running.query->estate == state->estate);
	uint64		done = state->estate->es_processed;

	if (demand == RUN_TAKES_ALL || running.row_count == 0)
		return PG_UINT64_MAX;
	if (demand == RUN_TAKES_SOME || done >= running.row_count)
		return 1;
	return running.row_count - done;
}

/* How many rows may still be asked for, and ROWS_PAST_DEMAND more, up to BATCH_ROWS_MAX: all. */
int
demand_rows(DemandState *state)
{
	const RowDemand *demand = &state->demand;
	uint64		rows;

	if (running.query == NULL || running.query->estate != state->estate)
		return BATCH_ROWS_MAX;
	rows = demand->may_stop ? 1 :
		rows_to_run_end(state, IsParallelWorker() ? demand->worker_run : demand->run);
	if (!state->limits_are_found)
		find_limits(state);
	for (int i = 0; i < list_length(demand->limits); i++)
		if (state->limits[i] != NULL)
			rows = Min(rows, rows_to_limit(state->limits[i]));
	return rows >= BATCH_ROWS_MAX ? BATCH_ROWS_MAX :
		Min((int) rows + ROWS_PAST_DEMAND, BATCH_ROWS_MAX);
}

/* How many rows the next batch reads where so many are wanted; BATCH_ROWS_MAX: all will be. */
int
demand_rows_to_read(DemandState *state, int wanted)
{
	Assert(wanted > 0 && wanted <= BATCH_ROWS_MAX);
	if (wanted < BATCH_ROWS_MAX)
		wanted = Min(Max(wanted, 2 * state->rows_before), BATCH_ROWS_MAX - 1);
	state->rows_before = wanted;
	return wanted;
}

/* The scan begins anew, and its first row may be the last that is asked for. */
void
demand_restart(DemandState *state)
{
	state->rows_before = 0;
}
