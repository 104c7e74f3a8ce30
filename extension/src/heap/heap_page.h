#ifndef BATCHEXEC_HEAP_PAGE_H
#define BATCHEXEC_HEAP_PAGE_H

#include "heap_source.h"

/* Collect the visible tuples of a pinned page. */
extern void heap_page_load(HeapSource *source, HeapPage *page);
extern void heap_page_prefetch(Buffer buffer, int lines, bool counts_only);

#endif
