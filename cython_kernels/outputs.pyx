# cython: language_level=3
"""Large output arrays whose memory is used again; see ``outputs.pyi`` for the contract."""

from libc.stdint cimport uint64_t

import numpy as _numpy

cdef extern from "output_pool.h":
    int pool_available()
    int pool_init()
    void pool_set_limit(size_t limit)
    void pool_state(uint64_t *state)
    object output_handler_capsule()
    int _import_array() except -1
    object PyDataMem_SetHandler(object handler)

_import_array()

# Lives as long as the process: every array made with it holds on to it.
cdef object handler = output_handler_capsule()

if pool_init():
    raise MemoryError("no handler of forks could be registered")


def empty(count, dtype):
    if handler is None:
        return _numpy.empty(count, dtype)
    before = PyDataMem_SetHandler(handler)  # of this thread's context alone
    try:
        return _numpy.empty(count, dtype)
    finally:
        PyDataMem_SetHandler(before)


def set_limit(limit):
    cdef size_t nbytes = limit
    pool_set_limit(nbytes)


def state():
    cdef uint64_t found[4]
    pool_state(found)
    return {"limit": found[0], "bytes": found[1], "reused": found[2], "made": found[3]}


def available():
    return bool(pool_available())
