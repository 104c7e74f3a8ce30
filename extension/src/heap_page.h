#ifndef BATCHEXEC_HEAP_PAGE_H
#define BATCHEXEC_HEAP_PAGE_H

#include "heap_source.h"

/* Collect the visible tuples of a pinned page, and prefetch them. */
extern void heap_page_load(HeapSource *source, HeapPage *page);

#endif
