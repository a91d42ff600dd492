/* What shortcuts.pyx needs of NumPy and of the clock. */
#ifndef COLSTORE_ARRAY_SHORTCUTS_H
#define COLSTORE_ARRAY_SHORTCUTS_H

#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds of a clock that never goes back. */
static inline int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int is_plain_array(PyObject *key) { return PyArray_CheckExact(key); }

/* A new array of `n` items; `dtype` is borrowed. NULL with an error set when there is no memory. */
static inline PyObject *new_array(PyObject *dtype, int64_t n) {
  npy_intp shape = (npy_intp)n;
  Py_INCREF(dtype);
  return PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)dtype, 1, &shape, NULL, NULL, 0, NULL);
}

static inline char *data_of(PyObject *array) { return PyArray_BYTES((PyArrayObject *)array); }

/* The items of a 1-D, aligned, contiguous array of int64 in native order and their number; NULL for any other. */
static inline const int64_t *int64_items(PyObject *key, int64_t *n) {
  PyArrayObject *array = (PyArrayObject *)key;
  if (PyArray_NDIM(array) != 1 || PyArray_DESCR(array)->kind != 'i' || PyArray_ITEMSIZE(array) != 8) return NULL;
  if (!PyArray_ISCARRAY_RO(array)) return NULL;
  *n = PyArray_DIM(array, 0);
  return (const int64_t *)PyArray_DATA(array);
}

#endif
