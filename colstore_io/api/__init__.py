"""What may a user call? ``reading`` and ``writing``, loaded by the names of `colstore_io` when they are first used."""
