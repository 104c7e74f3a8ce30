/*
 * demand.h
 *	  How many rows the nodes above a scan may still ask for.
 *
 * A scan whose rows are all read for certain works in whole pages.  One that
 * may be stopped begins with as many rows as are needed to satisfy whoever may
 * stop it, and ROWS_PAST_DEMAND more.  Where that was not enough, as a filter removes rows,
 * it reads twice as many each time, up to a page: so it never reads more than about
 * twice the rows that the stock server reads, nor a page that this does not read.
 */
#ifndef BATCHEXEC_DEMAND_H
#define BATCHEXEC_DEMAND_H

#include "nodes/execnodes.h"
#include "nodes/plannodes.h"

/* What a scan may read beyond the row that its consumer stops at. */
#define ROWS_PAST_DEMAND	4

/* The executor is told how many rows to fetch (FETCH 10): what of it holds here? */
typedef enum RunDemand
{
	RUN_TAKES_ALL,				/* something above reads all rows in any case */
	RUN_TAKES_EACH,				/* a row gives one row of the result at most */
	RUN_TAKES_SOME				/* a row may give many, so any may be the last */
} RunDemand;

/* Known at plan time. */
typedef struct RowDemand
{
	RunDemand	run;
	RunDemand	worker_run;		/* in a parallel worker, whose run ends at the Gather */
	bool		may_stop;		/* something above may stop at any row */
	List	   *limits;			/* plan_node_ids of Limit nodes that a row gives
								 * one row for at most */
} RowDemand;

/* Looked up when the scan runs. */
typedef struct DemandState
{
	RowDemand	demand;
	EState	   *estate;
	int			rows_before;	/* that were read together last, since the scan began; 0: none */
	LimitState **limits;		/* NULL: not in this process */
	bool		limits_are_found;
} DemandState;

/* plan_demand.c */
extern RowDemand demand_of_result(void);
extern RowDemand demand_of_subplan(void);
extern RowDemand demand_below(const Plan *plan, RowDemand demand, bool is_inner);
extern void demand_note_subplans(const Plan *plan, RowDemand demand,
								 RowDemand *subplans);
extern List *demand_to_list(const RowDemand *demand);
extern RowDemand demand_from_list(const List *list);

/* demand.c */
extern void demand_install_hook(void);
extern void demand_begin(DemandState *state, const RowDemand *demand,
						 EState *estate);
extern int	demand_rows(DemandState *state);
extern int	demand_rows_to_read(DemandState *state, int wanted);
extern void demand_restart(DemandState *state);
extern PlanState *demand_find_node(const EState *estate, NodeTag tag, int plan_node_id);

#endif
