/* OpenMP behind one door, so that the same sources build and run without it (serially). */
#ifndef COLSTORE_OMP_SHIM_H
#define COLSTORE_OMP_SHIM_H

static inline int openmp_compiled(void) {
#ifdef _OPENMP
  return 1;
#else
  return 0;
#endif
}

#endif
