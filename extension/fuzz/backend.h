/*
 * backend.h
 *	  What stands in the place of the server around the code that is fuzzed.
 */
#ifndef BATCHEXEC_FUZZ_BACKEND_H
#define BATCHEXEC_FUZZ_BACKEND_H

/* Transactions whose tuples can be seen, and cannot. */
#define VISIBLE_XID		100
#define INVISIBLE_XID	200

/* Frees all that was allocated by palloc. */
extern void free_all(void);

#endif
