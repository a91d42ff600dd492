/* A function of our own in front of a method that Cython made.
 *
 * Cython's own entry collects the arguments into an array, counts references to each and to every default, and calls on:
 * a third of what decoding a record of three numbers takes. The function in front looks at the usual call, one argument
 * and no keywords, and hands everything else to what Cython made. */
#ifndef COLSTORE_METHOD_ENTRY_H
#define COLSTORE_METHOD_ENTRY_H

#include <Python.h>

typedef PyObject *(*method_entry)(PyObject *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names);

/* Puts `entry` in front of the method `name` of an extension type, before anybody has called it. Returns the function
 * that was there; NULL when the method is called in another way in this build, and then nothing was changed. */
static method_entry method_entry_put(PyTypeObject *type, const char *name, method_entry entry) {
  method_entry behind = NULL;
  PyObject *method = PyObject_GetAttrString((PyObject *)type, name);
  if (!method) {
    PyErr_Clear();
    return NULL;
  }
  if (Py_IS_TYPE(method, &PyMethodDescr_Type)) {
    PyMethodDef *definition = ((PyMethodDescrObject *)method)->d_method;
    if (definition->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
      behind = (method_entry)(void (*)(void))definition->ml_meth;
      definition->ml_meth = (PyCFunction)(void (*)(void))entry;
    }
  }
  Py_DECREF(method);
  return behind;
}

#endif
