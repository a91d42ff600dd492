from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

def encode(text: Buffer) -> tuple[bytes, bool] | None:
    """Pack text into five-bit units (colbin.md 9.2).

    Parameters
    ----------
    text : buffer of bytes
        Any bytes; UTF-8 text of few capitals packs best.

    Returns
    -------
    payload : bytes
        Owned by the caller.
    upper : bool
        Opening case, which the reader must be told.

    None when the payload would not be shorter than the text: then the string is written raw.
    """

def decode(payload: Buffer, upper: bool, max_bytes: int = -1) -> bytes:
    """Return the text of a payload (colbin.md 9.1).

    Parameters
    ----------
    payload : buffer of bytes
    upper : bool
        Opening case.
    max_bytes : int, optional
        Longest text that is accepted. Default: what the payload can hold at most, 2.4 bytes for each of its own.

    Raises
    ------
    ValueError
        For a payload that ends inside a code or has a reserved one, or whose text is too long.
    """

def encode_frame(text: Buffer) -> bytes:
    """Return text in the stand-alone frame, which tells packed from raw; no message uses it (colbin.md 9.2)."""

def decode_frame(frame: Buffer) -> bytes:
    """Return the text of a stand-alone frame; `ValueError` when it is malformed or bytes are left over."""
