/*
 * collation.c
 *	  What a collation allows to do with bytes.
 *
 * Read from the catalogs, as core's pg_locale.h needs the headers of ICU.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "collation.h"
#include "server.h"

/* 18 has dropped the symbol, not the collation. */
#ifndef POSIX_COLLATION_OID
#define POSIX_COLLATION_OID 951
#endif

bool
collation_is_deterministic(Oid collation)
{
	return OidIsValid(collation) &&
		(collation == DEFAULT_COLLATION_OID || collation == C_COLLATION_OID ||
		 get_collation_isdeterministic(collation));
}

/* Does a catalog row's locale order strings by their bytes: one of the builtin provider, or C or POSIX of libc? */
static bool
row_is_c(int cache, HeapTuple tuple, AttrNumber attno, char provider)
{
	bool		is_null;
	Datum		locale;
	const char *name;

	if (PROVIDER_ORDERS_BY_BYTES(provider))
		return true;
	if (provider != COLLPROVIDER_LIBC)
		return false;
	locale = SysCacheGetAttr(cache, tuple, attno, &is_null);
	if (is_null)
		return false;
	name = LOCALE_NAME(locale);
	return strcmp(name, "C") == 0 || strcmp(name, "POSIX") == 0;
}

static bool
database_is_c(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = row_is_c(DATABASEOID, tuple, Anum_pg_database_datcollate, DATABASE_PROVIDER(tuple));
	ReleaseSysCache(tuple);
	return result;
}

bool
collation_is_c(Oid collation)
{
	HeapTuple	tuple;
	bool		result;

	if (collation == C_COLLATION_OID || collation == POSIX_COLLATION_OID)
		return true;
	if (collation == DEFAULT_COLLATION_OID)
		return database_is_c();
	tuple = SearchSysCache1(COLLOID, ObjectIdGetDatum(collation));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = row_is_c(COLLOID, tuple, Anum_pg_collation_collcollate,
					  ((Form_pg_collation) GETSTRUCT(tuple))->collprovider);
	ReleaseSysCache(tuple);
	return result;
}
