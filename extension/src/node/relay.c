/*
 * relay.c
 *	  A node that hands rows of a running batched node to a stock plan.
 *
 * Where memory is exceeded, a stock plan that can spill takes over.  It reads
 * what the batched node has read already, and then the node's own input: so
 * nothing is executed twice, nor lost of a scan that parallel workers share.
 * Such a plan is only ever made, and run, within one execution.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"

#include "relay.h"

typedef struct RelayState
{
	CustomScanState css;		/* must be first */
	const RelaySource *source;
} RelayState;

/* The results of a node as columns: an Agg above makes its hash table's rows of these. */
static List *
targets_of(TupleDesc descriptor)
{
	List	   *targets = NIL;

	for (int i = 0; i < descriptor->natts; i++)
	{
		const Form_pg_attribute column = TupleDescAttr(descriptor, i);
		Expr	   *target;

		/* A dropped column has no type. */
		if (column->attisdropped)
			target = (Expr *) makeNullConst(INT4OID, -1, InvalidOid);
		else
			target = (Expr *) makeVar(INDEX_VAR, i + 1, column->atttypid, column->atttypmod,
									  column->attcollation, 0);
		targets = lappend(targets, makeTargetEntry(target, i + 1, NULL, false));
	}
	return targets;
}

/* The node in the place of a plan; the source outlives its execution. */
Plan *
relay_plan(const RelaySource *source, const Plan *in_place_of)
{
	CustomScan *relay = makeNode(CustomScan);

	relay->scan.plan.targetlist = targets_of(source->descriptor);
	relay->scan.plan.startup_cost = in_place_of->startup_cost;
	relay->scan.plan.total_cost = in_place_of->total_cost;
	relay->scan.plan.plan_rows = in_place_of->plan_rows;
	relay->scan.plan.plan_width = in_place_of->plan_width;
	relay->scan.plan.plan_node_id = in_place_of->plan_node_id;
	relay->scan.plan.extParam = in_place_of->extParam;
	relay->scan.plan.allParam = in_place_of->allParam;
	relay->custom_private = list_make1(makeConst(INT8OID, -1, InvalidOid,
												 sizeof(int64),
												 PointerGetDatum(source), false, true));
	relay->methods = &relay_methods;
	return (Plan *) relay;
}

static void
begin_relay(CustomScanState *css, EState *estate, int eflags)
{
	RelayState *state = (RelayState *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;

	state->source = (const RelaySource *)
		DatumGetPointer(linitial_node(Const, plan->custom_private)->constvalue);
	css->ss.ps.ps_ProjInfo = NULL;
	css->ss.ps.ps_ResultTupleDesc = state->source->descriptor;
	css->ss.ps.scandesc = state->source->descriptor;
	css->ss.ps.resultops = &TTSOpsVirtual;
	css->ss.ps.resultopsfixed = false;
	css->ss.ps.resultopsset = true;
}

static TupleTableSlot *
exec_relay(CustomScanState *css)
{
	RelayState *state = (RelayState *) css;

	return state->source->next(state->source->owner);
}

static void
rescan_relay(CustomScanState *css)
{
	RelayState *state = (RelayState *) css;

	state->source->rescan(state->source->owner);
}

/* The rows are another's. */
static void
end_relay(CustomScanState *css)
{
	(void) css;
}

static const CustomExecMethods relay_exec_methods = {
	.CustomName = RELAY_NAME,
	.BeginCustomScan = begin_relay,
	.ExecCustomScan = exec_relay,
	.EndCustomScan = end_relay,
	.ReScanCustomScan = rescan_relay,
};

static Node *
create_relay_state(CustomScan *plan)
{
	RelayState *state = palloc0(sizeof(RelayState));

	(void) plan;
	NodeSetTag(state, T_CustomScanState);
	state->css.methods = &relay_exec_methods;
	return (Node *) state;
}

const CustomScanMethods relay_methods = {
	.CustomName = RELAY_NAME,
	.CreateCustomScanState = create_relay_state,
};
