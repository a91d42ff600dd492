"""The columns format (magic ``ABCD``): row groups of encoded, compressed column chunks (columns.md)."""
