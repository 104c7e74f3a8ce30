/*
 * rows.h
 *	  BatchRows: the rows of any plan, gathered into batches.
 */
#ifndef BATCHEXEC_ROWS_H
#define BATCHEXEC_ROWS_H

#include "batchexec.h"

#define BATCH_ROWS_NAME	"BatchRows"

extern const CustomScanMethods batch_rows_methods;

/* rows_plan.c */
extern bool plan_is_batch_rows(const Plan *plan);
extern void plan_hand_on_columns(CustomScan *batch, const Plan *input, const List *targets);
extern CustomScan *rows_to_batch(const Bitmapset *columns, Plan *input, int *next_node_id);

#endif
