/*
 * batch_limits.h
 *	  Bounds on what a statement may make of batches.  Beyond one, stock runs.
 */
#ifndef BATCHEXEC_BATCH_LIMITS_H
#define BATCHEXEC_BATCH_LIMITS_H

/*
 * Nodes of the expressions of one scan, or of one aggregation and its scans,
 * and of all batched nodes of a statement.  A node that is computed takes up to
 * three vectors: about 9 kB.
 */
#define EXPRESSION_NODES_MAX			2000
#define STATEMENT_EXPRESSION_NODES_MAX	20000

/* Values of an IN list with a vector form.  A value takes up to 32 bytes. */
#define IN_LIST_VALUES_MAX				1000000

/* Tables that one aggregation reads.  Each takes some 60 kB. */
#define AGG_TABLES_MAX					256

/* Grouping sets of one aggregation.  Each has a hash table of its own, some 4 kB. */
#define GROUPING_SETS_MAX				64

/* Sources of batches that a session can register. */
#define SOURCES_MAX						16

/* Rows of a Sort's bound that a scan keeps the first keys of: 8 bytes each. */
#define TOP_ROWS_MAX					10000

/*
 * Rows of an INSERT, and bytes of them, that wait to be written together: as COPY does.
 * One more row may come on top of the bytes.
 */
#define INSERT_BATCH_ROWS_MAX			1000
#define INSERT_BATCH_BYTES_MAX			65535

/*
 * How closely a table's rows have to follow an index, of 1, and how many rows its scan is
 * estimated to find, at least, to be fetched a page at a time.
 */
#define INDEX_CORRELATION_MIN			0.9
#define INDEX_ROWS_TO_PAY				300

/* Rows that a sort is estimated to put in order, at least, for batches to pay. */
#define SORT_ROWS_TO_PAY				1000

/* Rows that an INSERT is estimated to write, at least, for batches to pay. */
#define INSERT_ROWS_TO_PAY				32

/* Tables of a statement of which something is remembered until its plan is made. */
#define TABLES_REMEMBERED				64

/* Tables of which a session remembers how much is in shared buffers, and for how long it believes it. */
#define BUFFERED_SAMPLES_KEPT			64
#define BUFFERED_SAMPLE_AGE_MAX_US		1000000

#endif
