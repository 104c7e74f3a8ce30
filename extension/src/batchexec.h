/*
 * batchexec.h
 *	  Settings, planning and custom scan nodes of pg_batchexec.
 */
#ifndef BATCHEXEC_H
#define BATCHEXEC_H

#include "commands/explain.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif
#include "nodes/extensible.h"
#include "nodes/plannodes.h"
#include "utils/relcache.h"

#include "demand.h"

typedef enum BatchMode
{
	BATCH_MODE_ALLOW,			/* batch where it can be done */
	BATCH_MODE_REQUIRE,			/* raise an error where it can't, for tests */
	BATCH_MODE_FORBID			/* never batch, for tests */
} BatchMode;

/* Settings (batchexec.c) */
extern bool batchexec_enabled;
extern int	batchexec_batch_rows;
extern int	batchexec_mode;
extern bool batchexec_explain;

#define BATCH_SCAN_NAME "BatchScan"
#define BATCH_AGG_NAME	"BatchAgg"

/* custom_private of a BatchAgg, a list of integers */
enum BatchAggPrivate
{
	BATCH_AGG_SCANRELID,		/* range table index of the scanned table */
	BATCH_AGG_KEY_COUNT,		/* leading entries of custom_scan_tlist */
	BATCH_AGG_IS_GROUPED		/* GROUP BY, or one result row */
};

/* plan.c */
extern PlannedStmt *plan_batch(PlannedStmt *statement, int cursor_options);
extern bool batching_is_on(void);
extern const char *batching_runtime_obstacle(EState *estate);

/* plan_scan.c */
extern const char *scan_obstacle(PlannedStmt *statement, SeqScan *scan);
extern CustomScan *scan_to_batch(SeqScan *scan, const RowDemand *demand,
								 int child_node_id);

/* plan_agg.c */
extern const char *agg_obstacle(Agg *agg);
extern int	agg_expression_size(Agg *agg);
extern CustomScan *agg_to_batch(Agg *agg, int *next_node_id);

/* scan.c, agg.c */
extern const CustomScanMethods batch_scan_methods;
extern const CustomScanMethods batch_agg_methods;

#endif
