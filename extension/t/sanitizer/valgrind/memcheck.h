/*
 * memcheck.h
 *	  Stands in for valgrind's header of this name, where the address sanitizer
 *	  is in valgrind's place.
 *
 * A server that is built with USE_VALGRIND tells valgrind which bytes of a
 * memory context's blocks are allocated, and which buffers are pinned.  The
 * sanitizer knows of the blocks as a whole alone; told the same, it reports an
 * access behind a palloc'd chunk, to a freed one, or to a buffer that this
 * process does not pin.  Which bytes are initialised it does not know.
 */
#ifndef MEMCHECK_H
#define MEMCHECK_H

#include <sanitizer/asan_interface.h>
#include <stdlib.h>

/*
 * The sanitizer of undefined behaviour looks for its options at its first
 * report, where the process was started with them.  The server writes the
 * title of the process over that place, but has the options in a copy.
 * PostgreSQL 16 hands them over likewise.
 */
extern const char *__ubsan_default_options(void);

__attribute__((weak)) const char *
__ubsan_default_options(void)
{
	const char *options = getenv("UBSAN_OPTIONS");

	return options != NULL ? options : "";
}

#define VALGRIND_MAKE_MEM_DEFINED(start_, bytes_)	__asan_unpoison_memory_region(start_, bytes_)
#define VALGRIND_MAKE_MEM_UNDEFINED(start_, bytes_)	__asan_unpoison_memory_region(start_, bytes_)
#define VALGRIND_MAKE_MEM_NOACCESS(start_, bytes_)	__asan_poison_memory_region(start_, bytes_)
#define VALGRIND_CHECK_MEM_IS_DEFINED(start_, bytes_)	((void) 0)

/* What the contexts free they have marked themselves, by wipe_mem(). */
#define VALGRIND_CREATE_MEMPOOL(pool_, redzone_, zeroed_)	((void) 0)
#define VALGRIND_DESTROY_MEMPOOL(pool_)						((void) 0)
#define VALGRIND_MEMPOOL_ALLOC(pool_, start_, bytes_)		__asan_unpoison_memory_region(start_, bytes_)
#define VALGRIND_MEMPOOL_FREE(pool_, start_)				((void) 0)
#define VALGRIND_MEMPOOL_CHANGE(pool_, old_, new_, bytes_)	__asan_unpoison_memory_region(new_, bytes_)

#endif
