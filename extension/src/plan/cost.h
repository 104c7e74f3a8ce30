/*
 * cost.h
 *	  What batched scans and aggregations cost, next to the stock server's.
 */
#ifndef BATCHEXEC_COST_H
#define BATCHEXEC_COST_H

#include "nodes/pathnodes.h"
#include "utils/relcache.h"

/* Settings (batchexec.c), in the planner's units */
extern double batchexec_cost_startup;
extern double batchexec_cost_row;
extern double batchexec_cost_operator;
extern double batchexec_cost_result_row;
extern double batchexec_cost_page;
extern double batchexec_cost_fetch;

/* The number of the planning that memos are of */
extern uint64 cost_planning;

/* Of a table, or of a process's share of it. */
typedef struct ScanSaving
{
	Cost		as_scan;		/* of a BatchScan, next to a sequential scan */
	Cost		as_input;		/* of a BatchAgg's input, next to the same */
} ScanSaving;

extern ScanSaving cost_scan_saving(PlannerInfo *root, RelOptInfo *rel, double share);
extern double cost_buffered_share(PlannerInfo *root, RelOptInfo *rel);
extern double cost_page(const RelOptInfo *rel);
extern void cost_forget_memos(void);
extern void cost_forget_facts(void);
extern void cost_remember_rows(Oid relid, const RelOptInfo *rel);
extern Cost cost_agg_saving(Cost agg_cost, double group_count,
							int row_aggregates, int aggregates);
extern Cost cost_hash_rows(double rows, int key_count, bool keeps_one);
extern Cost cost_probe(double rows, int key_count, double matches);
extern bool cost_rows_pay(double rows_read, double rows_returned);
extern Cost cost_saved_by_reading(double rows);
extern double cost_group_memories(double group_count, int width, int aggregates);
extern Cost cost_files(double rows, int width);
extern bool cost_table_pays(Oid relid, double *rows);
extern double cost_rows_indexed(Oid index);
extern const char *cost_table_obstacle(Oid relid);
extern Cost cost_input_least(const RelOptInfo *rel);
extern Cost cost_scan_least(const RelOptInfo *rel);

/* index_order.c */
extern double cost_order_correlation(Oid relid, AttrNumber column);
extern double cost_index_correlation(PlannerInfo *root, const IndexOptInfo *index);

/* path_cost.c */
extern Cost cost_scan_buffered(PlannerInfo *root, RelOptInfo *rel);
extern Cost cost_fetch(PlannerInfo *root, const IndexPath *path);
extern void cost_path_buffered(PlannerInfo *root, Path *path);
extern void cost_paths_buffered(PlannerInfo *root, RelOptInfo *rel);
extern Cost cost_cheapest(const List *paths);

#endif
