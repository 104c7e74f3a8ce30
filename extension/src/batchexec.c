/*
 * batchexec.c
 *	  pg_batchexec: settings and hooks.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/planner.h"
#include "utils/guc.h"
#include "utils/plancache.h"

#include "batch.h"
#include "batchexec.h"
#include "cost.h"
#include "explain.h"
#include "insert.h"
#include "into.h"
#include "join.h"
#include "plan.h"
#include "rows.h"
#include "server.h"
#include "source.h"
#include "sort.h"
#include "statistics.h"

PG_MODULE_MAGIC;

bool		batchexec_enabled = true;
int			batchexec_batch_rows = BATCH_ROWS_MAX;
int			batchexec_mode = BATCH_MODE_ALLOW;
bool		batchexec_explain = true;
bool		batchexec_join_paths = true;

/*
 * Costs, calibrated on tables in shared buffers: a row that the stock server
 * reads and counts, at cpu_tuple_cost, takes some 30 ns.
 */
double		batchexec_cost_startup = 2.0;
double		batchexec_cost_row = 0.002;
double		batchexec_cost_operator = 0.0002;
double		batchexec_cost_result_row = 0.008;
double		batchexec_cost_page = 0.05;
double		batchexec_cost_fetch = 0.2;

/* Of a cost setting. */
#define COST_MAX	1e6

static const struct config_enum_entry mode_options[] = {
	{"allow", BATCH_MODE_ALLOW, false},
	{"prefer", BATCH_MODE_PREFER, false},
	{"require", BATCH_MODE_REQUIRE, false},
	{"forbid", BATCH_MODE_FORBID, false},
	{NULL, 0, false}
};

static planner_hook_type previous_planner_hook = NULL;

void		_PG_init(void);

/* Were plans made while batching was off? */
static bool plans_lack_batches = false;

/* The statement that switched it off, by its start. */
static TimestampTz switched_off_at = 0;

/*
 * A cached plan that was made without batches is made anew once batching is on.  Where one
 * statement switches it off and on again, as a hint or a function's own setting does, what it has planned stays as it is.
 */
static void
note_switch(bool was_on, bool is_on)
{
	if (was_on && !is_on)
		switched_off_at = GetCurrentStatementStartTimestamp();
	else if (!was_on && is_on && plans_lack_batches &&
			 switched_off_at != GetCurrentStatementStartTimestamp())
	{
		plans_lack_batches = false;
		ResetPlanCache();
	}
}

static void
assign_enabled(bool enabled, void *extra)
{
	(void) extra;
	note_switch(batching_is_on(), enabled && batchexec_mode != BATCH_MODE_FORBID);
}

static void
assign_mode(int mode, void *extra)
{
	(void) extra;
	note_switch(batching_is_on(), batchexec_enabled && mode != BATCH_MODE_FORBID);
}

static void
define_cost(const char *name, const char *description, double *setting)
{
	DefineCustomRealVariable(name, description, NULL, setting, *setting,
							 0, COST_MAX, PGC_USERSET, 0, NULL, NULL, NULL);
}

static void
define_settings(void)
{
	DefineCustomBoolVariable("batchexec.enabled",
							 "Executes sequential scans, hash joins and aggregates over them in batches.",
							 NULL, &batchexec_enabled, true, PGC_USERSET, 0,
							 NULL, assign_enabled, NULL);
	DefineCustomIntVariable("batchexec.batch_rows",
							"Rows a batch at most.",
							"A batch never spans two pages, so larger values than a page's rows have no effect.",
							&batchexec_batch_rows, BATCH_ROWS_MAX, 1,
							BATCH_ROWS_MAX, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("batchexec.mode",
							 "Whether batching is allowed, preferred, required or forbidden.",
							 "With \"allow\", what is estimated to run faster by row does so; "
							 "with \"prefer\" and \"require\" all that can be batched is. "
							 "With \"require\", a plan with a sequential scan that can't be batched raises an error with the reason. "
							 "For tests.",
							 &batchexec_mode, BATCH_MODE_ALLOW, mode_options,
							 PGC_USERSET, 0, NULL, assign_mode, NULL);
	DefineCustomBoolVariable("batchexec.explain",
							 "Shows batch figures, and why a plan was not batched, in EXPLAIN.",
							 NULL, &batchexec_explain, true, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("batchexec.join_paths",
							 "Proposes batched hash joins to the planner at the cost of batches.",
							 "Off: a join is batched only where the planner has chosen a hash join at the stock cost.",
							 &batchexec_join_paths, true, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	define_cost("batchexec.cost_startup",
				"Sets the planner's estimate of the cost of starting a batched node.",
				&batchexec_cost_startup);
	define_cost("batchexec.cost_row",
				"Sets the planner's estimate of the cost of reading a row as part of a batch.",
				&batchexec_cost_row);
	define_cost("batchexec.cost_operator",
				"Sets the planner's estimate of the cost of an operator or column, for each row of a batch.",
				&batchexec_cost_operator);
	define_cost("batchexec.cost_result_row",
				"Sets the planner's estimate of the cost of a row that a batched scan hands on.",
				&batchexec_cost_result_row);
	define_cost("batchexec.cost_page",
				"Sets the planner's estimate of the cost of a page in shared buffers, as a share of seq_page_cost.",
				&batchexec_cost_page);
	define_cost("batchexec.cost_fetch",
				"Sets the planner's estimate of the cost of a row that an index scan fetches from a page in shared buffers.",
				&batchexec_cost_fetch);
	MarkGUCPrefixReserved("batchexec");
}

/* Plan a query as the stock server does; *plans_batches says whether it may be batched, and is false if a hook has switched that off. */
static PlannedStmt *
plan_in_state(PLANNER_PARAMETERS, bool *plans_batches)
{
	PlannedStmt *volatile statement = NULL;
	volatile PlanningState before = path_set_planning((PlanningState) {.plans_batches = *plans_batches});

	PG_TRY();
	{
		statement = previous_planner_hook != NULL ? previous_planner_hook(PLANNER_ARGUMENTS) :
			standard_planner(PLANNER_ARGUMENTS);
	}
	PG_FINALLY();
	{
		*plans_batches = path_set_planning(before).plans_batches;
	}
	PG_END_TRY();
	return statement;
}

static PlannedStmt *
plan_with_batches(PLANNER_PARAMETERS)
{
	const bool	is_on = batching_is_on();
	const bool	may_batch = is_on && query_obstacle(parse, cursor_options) == NULL;
	const char *insert_obstacle = is_on ? insert_query_obstacle(parse) : NULL;
	const bool	is_for_table = into_awaits_plan();
	const bool	rows_may_wait = is_for_table && !query_looks_at_tables(parse);
	bool		plans_batches = may_batch;
	PlannedStmt *statement;

	plans_lack_batches |= !is_on;
	cost_forget_facts();
	statement = plan_in_state(PLANNER_ARGUMENTS, &plans_batches);
	if (!batching_is_on() || plans_batches != may_batch)
		return statement;
	if (is_for_table)
		into_note_plan(statement, rows_may_wait);
	return plan_batch(statement, cursor_options, insert_obstacle);
}

/* Called once, when the library is loaded. */
void
_PG_init(void)
{
	/* They see plans before they are batched, and switch settings where that is too late. */
	if (process_shared_preload_libraries_in_progress && planner_hook != NULL)
		ereport(LOG,
				(errmsg("pg_batchexec is loaded after other libraries that plan queries"),
				 errhint("Name pg_batchexec first in shared_preload_libraries, so that these see its plans.")));
	define_settings();
	server_install_hooks();
	RegisterCustomScanMethods(&batch_scan_methods);
	RegisterCustomScanMethods(&batch_agg_methods);
	RegisterCustomScanMethods(&batch_join_methods);
	RegisterCustomScanMethods(&batch_rows_methods);
	RegisterCustomScanMethods(&batch_sort_methods);
	RegisterCustomScanMethods(&batch_insert_methods);
	previous_planner_hook = planner_hook;
	planner_hook = plan_with_batches;
	path_install_hooks();
	demand_install_hook();
	into_install_hooks();
	explain_install_hook();
	statistics_install_hooks();
	*find_rendezvous_variable(BATCHEXEC_REGISTER_SOURCE) = (void *) batchexec_register_source;
}
