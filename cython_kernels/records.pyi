import numpy as np
from numpy.typing import NDArray

def walk_records(
    buffer: NDArray[np.uint8],
    first_offset: int,
    row_bytes: int,
    end: int,
    rows: NDArray[np.int64],
    body_start: NDArray[np.int64],
) -> tuple[int, int]: ...
def walk_records_fd(
    fd: int,
    first_offset: int,
    row_bytes: int,
    end: int,
    rows: NDArray[np.int64],
    body_start: NDArray[np.int64],
) -> tuple[int, int]: ...
