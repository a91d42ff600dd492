"""colbin: records, lists of records and self-describing documents as compact messages (colbin.md)."""
