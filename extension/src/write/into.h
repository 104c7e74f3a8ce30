/*
 * into.h
 *	  CREATE TABLE AS, SELECT INTO, and materialized views: their rows are written a page at a time.
 */
#ifndef BATCHEXEC_INTO_H
#define BATCHEXEC_INTO_H

#include "nodes/plannodes.h"

extern void into_install_hooks(void);

/* Is a query planned within a statement that writes the rows of a query to a new table? */
extern bool into_awaits_plan(void);

/* The plan that was made last within it; may its rows wait, as nothing in its query might look at them? */
extern void into_note_plan(const PlannedStmt *statement, bool rows_may_wait);

#endif
