/*
 * batchexec.c
 *	  pg_batchexec: settings and hooks.
 */
#include "postgres.h"

#include "fmgr.h"
#include "optimizer/planner.h"
#include "utils/guc.h"

#include "batch.h"
#include "batchexec.h"
#include "explain.h"

PG_MODULE_MAGIC;

bool		batchexec_enabled = true;
int			batchexec_batch_rows = BATCH_ROWS_MAX;
int			batchexec_mode = BATCH_MODE_ALLOW;
bool		batchexec_explain = true;

static const struct config_enum_entry mode_options[] = {
	{"allow", BATCH_MODE_ALLOW, false},
	{"require", BATCH_MODE_REQUIRE, false},
	{"forbid", BATCH_MODE_FORBID, false},
	{NULL, 0, false}
};

static planner_hook_type previous_planner_hook = NULL;

void		_PG_init(void);

static void
define_settings(void)
{
	DefineCustomBoolVariable("batchexec.enabled",
							 "Executes sequential scans and aggregates over them in batches.",
							 NULL, &batchexec_enabled, true, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("batchexec.batch_rows",
							"Rows a batch at most.",
							"A batch never spans two pages, so larger values than a page's rows have no effect.",
							&batchexec_batch_rows, BATCH_ROWS_MAX, 1,
							BATCH_ROWS_MAX, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("batchexec.mode",
							 "Whether batching is allowed, required or forbidden.",
							 "With \"require\", a plan with a sequential scan that can't be batched raises an error with the reason. For tests.",
							 &batchexec_mode, BATCH_MODE_ALLOW, mode_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("batchexec.explain",
							 "Shows batch figures, and why a plan was not batched, in EXPLAIN.",
							 NULL, &batchexec_explain, true, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	MarkGUCPrefixReserved("batchexec");
}

static PlannedStmt *
plan_with_batches(Query *parse, const char *query_string, int cursor_options,
				  ParamListInfo parameters)
{
	PlannedStmt *statement;

	if (previous_planner_hook != NULL)
		statement = previous_planner_hook(parse, query_string, cursor_options,
										  parameters);
	else
		statement = standard_planner(parse, query_string, cursor_options,
									 parameters);
	if (!batching_is_on())
		return statement;
	return plan_batch(statement, cursor_options);
}

/* Called once, when the library is loaded. */
void
_PG_init(void)
{
	define_settings();
	RegisterCustomScanMethods(&batch_scan_methods);
	RegisterCustomScanMethods(&batch_agg_methods);
	previous_planner_hook = planner_hook;
	planner_hook = plan_with_batches;
	demand_install_hook();
	explain_install_hook();
}
