/*
 * batchexec.h
 *	  Settings, planning and custom scan nodes of pg_batchexec.
 */
#ifndef BATCHEXEC_H
#define BATCHEXEC_H

#include "nodes/extensible.h"
#include "nodes/plannodes.h"
#include "utils/relcache.h"

#include "demand.h"
#include "server.h"

typedef enum BatchMode
{
	BATCH_MODE_ALLOW,			/* batch where it pays */
	BATCH_MODE_PREFER,			/* batch where it can be done, for tests */
	BATCH_MODE_REQUIRE,			/* raise an error where it can't, for tests */
	BATCH_MODE_FORBID			/* never batch, for tests */
} BatchMode;

/* Settings (batchexec.c) */
extern bool batchexec_enabled;
extern bool batchexec_join_paths;
extern int	batchexec_batch_rows;
extern int	batchexec_mode;
extern bool batchexec_explain;

#define BATCH_SCAN_NAME "BatchScan"
#define BATCH_AGG_NAME	"BatchAgg"

/*
 * custom_private of a BatchAgg.  custom_exprs has a list for each scanned table:
 * of the list of its filters, and of the list of what custom_scan_tlist is over
 * this table: the keys, the GROUPING() calls, the aggregates.  Over a batched join there is one
 * such list, of references to its pairs.
 */
enum BatchAggPrivate
{
	BATCH_AGG_SCANRELIDS,		/* list of range table indexes of the scanned tables;
								 * INDEX_VAR: of a join below */
	BATCH_AGG_KEY_COUNT,		/* integer: leading entries of custom_scan_tlist */
	BATCH_AGG_SETS,				/* list of the grouping sets, as bits of the keys that
								 * are not in it; NIL: one result row */
	BATCH_AGG_READS_A_SHARE,	/* integer, of the rows: another process reads the rest */
	BATCH_AGG_GROUPINGS,		/* list of the values of each GROUPING() in each set */
	BATCH_AGG_ORDER				/* NIL, or the order of the groups: lists of keys, of sort
								 * operators, of collations, and of NULLS FIRST */
};

/* plan.c */
extern PlannedStmt *plan_batch(PlannedStmt *statement, int cursor_options,
							   const char *query_insert_obstacle);
extern bool batching_is_on(void);
extern bool query_changes_rows(CmdType command);
extern const char *query_obstacle(const Query *query, int cursor_options);
extern const char *batching_runtime_obstacle(EState *estate);

/* plan_scan.c */
extern const char *scan_obstacle(PlannedStmt *statement, Scan *scan);
extern const char *bitmap_scan_obstacle(PlannedStmt *statement, BitmapHeapScan *scan);
extern const char *index_scan_obstacle(PlannedStmt *statement, IndexScan *scan,
									   const RowDemand *demand);
extern CustomScan *index_scan_to_batch(IndexScan *scan, const RowDemand *demand,
									   int *next_node_id);
extern CustomScan *bitmap_scan_to_batch(BitmapHeapScan *scan, const RowDemand *demand,
										int child_node_id);
extern CustomScan *scan_to_batch(const Scan *scan, const RowDemand *demand,
								 int child_node_id);
extern bool plan_is_table_scan(const Plan *plan);
extern Plan *copy_table_scan(const Plan *scan);

/* plan_agg.c */
extern List *agg_scans(const Agg *agg);
extern const char *agg_obstacle(Agg *agg, const List *inputs);
extern bool agg_is_over_batches(const Agg *agg);
extern int	agg_expression_size(const Agg *agg, const Plan *input);
extern CustomScan *agg_to_batch(Agg *agg, const List *inputs, int *next_node_id);

/* agg_explain.c */
extern void agg_explain(CustomScanState *css, List *ancestors, ExplainState *es);

/* scan.c, agg.c */
extern const CustomScanMethods batch_scan_methods;
extern const CustomScanMethods batch_agg_methods;

#endif
