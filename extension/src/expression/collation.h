/*
 * collation.h
 *	  What a collation allows to do with bytes.
 */
#ifndef BATCHEXEC_COLLATION_H
#define BATCHEXEC_COLLATION_H

/* Is text equal if and only if its bytes are? */
extern bool collation_is_deterministic(Oid collation);

/* Is text ordered as its bytes are? */
extern bool collation_is_c(Oid collation);

#endif
