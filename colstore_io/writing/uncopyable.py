"""What owns a descriptor or a lock exists once: it cannot be pickled or copied."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

__all__ = ["Uncopyable"]


class Uncopyable:
    """Base of everything that owns an open descriptor or a lock.

    A copy would carry the bare descriptor number. In another process, or after the original was closed, that number
    is somebody else's file, and the finaliser of the copy would commit into it.

    Raises
    ------
    TypeError
        From `pickle`, `copy.copy` and `copy.deepcopy`.
    """

    __slots__ = ()

    def _refuse_copy(self) -> NoReturn:
        raise TypeError(
            f"a writer cannot be pickled or copied (this is a {type(self).__name__}): it owns an open file and its "
            "lock. Pass the path, and open a writer where it is used."
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        self._refuse_copy()

    def __reduce__(self) -> NoReturn:
        self._refuse_copy()

    def __getstate__(self) -> NoReturn:
        self._refuse_copy()
