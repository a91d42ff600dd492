/* Memory for large outputs: anonymous mappings that start at a huge page, and a bounded list of freed ones.
 *
 * Fresh memory costs a page fault and zeroing a page: reading 80 MB into fresh memory took 14.3 ms, into memory used
 * before 7.7 ms (2 threads). NumPy calls these functions for the arrays that outputs.pyx makes, so such arrays own
 * their data like any other, and their memory comes back here when the last view of them is gone. */
#ifndef COLSTORE_OUTPUT_POOL_H
#define COLSTORE_OUTPUT_POOL_H

#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(MAP_ANONYMOUS)
#define HAVE_OUTPUT_POOL 1
#endif
#endif

#ifdef HAVE_OUTPUT_POOL

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define HEADER_BYTES ((size_t)64)
/* A freed region serves a request that leaves at most this share of it unused. */
#define SLACK_SHARE 8

/* The 64 bytes before the data. Of a mapping they are the end of a page of their own, so that the data start at a
 * huge page. */
typedef struct region {
  size_t bytes;  /* of data, whole pages; as asked for when not mapped */
  size_t mapped; /* bytes of the mapping with its header page; 0: from malloc, for arrays that NumPy makes aside */
  struct region *next;
} region;

typedef struct {
  pthread_mutex_t lock; /* no other lock is taken under it, no system call made */
  region *freed;        /* the last freed first */
  size_t bytes, limit;  /* of the freed regions */
  uint64_t reused, made;
} output_pool;

static output_pool the_pool = {PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0, 0, 0};

static inline char *region_data(region *r) { return (char *)r + HEADER_BYTES; }
static inline region *region_of(void *data) { return (region *)((char *)data - HEADER_BYTES); }

static void region_release(region *r) {
  if (!r->mapped)
    free(r);
  else
    munmap(region_data(r) + r->bytes - r->mapped, r->mapped);
}

static void regions_release(region *r) {
  while (r) {
    region *next = r->next;
    region_release(r);
    r = next;
  }
}

static region *region_map(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes > SIZE_MAX / 2) return NULL;
  bytes = (bytes + page - 1) / page * page;
  size_t whole = bytes + page + HUGE_PAGE_BYTES;
  char *start = (char *)mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == (char *)MAP_FAILED) return NULL;
  char *data = (char *)(((uintptr_t)start + page + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
  char *first = data - page, *stop = data + bytes;
  if (first > start) munmap(start, (size_t)(first - start));
  if (start + whole > stop) munmap(stop, (size_t)(start + whole - stop));
#ifdef MADV_HUGEPAGE
  if (bytes >= HUGE_PAGE_BYTES) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  region *r = region_of(data);
  r->bytes = bytes;
  r->mapped = bytes + page;
  r->next = NULL;
  return r;
}

/* Takes the smallest freed region that fits, or NULL. */
static region *pool_take(size_t bytes) {
  region **best = NULL, *found = NULL;
  pthread_mutex_lock(&the_pool.lock);
  for (region **at = &the_pool.freed; *at; at = &(*at)->next) {
    size_t have = (*at)->bytes;
    if (have >= bytes && have - bytes <= have / SLACK_SHARE && (!best || have < (*best)->bytes)) best = at;
  }
  if (best) {
    found = *best;
    *best = found->next;
    the_pool.bytes -= found->bytes;
    the_pool.reused++;
  } else
    the_pool.made++;
  pthread_mutex_unlock(&the_pool.lock);
  return found;
}

/* Cuts off what lies over the limit, the longest unused; returns it. The lock must be held. */
static region *pool_trim(void) {
  size_t bytes = 0;
  region **at = &the_pool.freed;
  while (*at && bytes + (*at)->bytes <= the_pool.limit) {
    bytes += (*at)->bytes;
    at = &(*at)->next;
  }
  region *rest = *at;
  *at = NULL;
  the_pool.bytes = bytes;
  return rest;
}

static void pool_set_limit(size_t limit) {
  pthread_mutex_lock(&the_pool.lock);
  the_pool.limit = limit;
  region *rest = pool_trim();
  pthread_mutex_unlock(&the_pool.lock);
  regions_release(rest);
}

/* ---- what NumPy calls ----------------------------------------------------------------------------------- */

static void *output_malloc(void *ctx, size_t bytes) {
  (void)ctx;
  region *r;
  if (bytes >= (size_t)1 << 20) {
    r = pool_take(bytes);
    if (!r) r = region_map(bytes);
  } else {
    r = (region *)malloc(bytes + HEADER_BYTES);
    if (r) {
      r->bytes = bytes;
      r->mapped = 0;
      r->next = NULL;
    }
  }
  return r ? region_data(r) : NULL;
}

static void *output_calloc(void *ctx, size_t n, size_t size) {
  if (size && n > SIZE_MAX / size) return NULL;
  void *data = output_malloc(ctx, n * size);
  if (data) memset(data, 0, n * size);
  return data;
}

static void output_free(void *ctx, void *data, size_t bytes) {
  (void)ctx;
  (void)bytes;
  if (!data) return;
  region *r = region_of(data), *rest = r;
  if (r->mapped) {
    pthread_mutex_lock(&the_pool.lock);
    if (r->bytes <= the_pool.limit) { /* a region over the limit would only drive out the others */
      r->next = the_pool.freed;
      the_pool.freed = r;
      rest = pool_trim();
    }
    pthread_mutex_unlock(&the_pool.lock);
  }
  if (rest == r) r->next = NULL;
  regions_release(rest);
}

static void *output_realloc(void *ctx, void *data, size_t bytes) {
  void *moved = output_malloc(ctx, bytes);
  if (moved && data) {
    size_t had = region_of(data)->bytes;
    memcpy(moved, data, had < bytes ? had : bytes);
    output_free(ctx, data, had);
  }
  return moved;
}

/* ---- set-up ----------------------------------------------------------------------------------------------- */

static PyDataMem_Handler output_handler = {
    "colstore_io outputs", 1, {NULL, output_malloc, output_calloc, output_realloc, output_free}};

static void pool_lock(void) { pthread_mutex_lock(&the_pool.lock); }
static void pool_unlock(void) { pthread_mutex_unlock(&the_pool.lock); }

/* A child keeps none of its parent's freed memory: it would be copied page by page when written to. */
static void pool_after_fork_in_child(void) {
  region *freed = the_pool.freed;
  the_pool.freed = NULL;
  the_pool.bytes = 0;
  pthread_mutex_unlock(&the_pool.lock);
  regions_release(freed);
}

static int pool_available(void) { return 1; }

static int pool_init(void) {
  return pthread_atfork(pool_lock, pool_unlock, pool_after_fork_in_child);
}

static PyObject *output_handler_capsule(void) { return PyCapsule_New(&output_handler, "mem_handler", NULL); }

static void pool_state(uint64_t state[4]) {
  pthread_mutex_lock(&the_pool.lock);
  state[0] = the_pool.limit;
  state[1] = the_pool.bytes;
  state[2] = the_pool.reused;
  state[3] = the_pool.made;
  pthread_mutex_unlock(&the_pool.lock);
}

#else

static int pool_available(void) { return 0; }
static int pool_init(void) { return 0; }
static void pool_set_limit(size_t limit) { (void)limit; }
static PyObject *output_handler_capsule(void) { Py_RETURN_NONE; }
static void pool_state(uint64_t state[4]) { memset(state, 0, 4 * sizeof *state); }

#endif
#endif
