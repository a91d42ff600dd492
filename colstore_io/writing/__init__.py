"""How is a commit made? Writers, one-shot stores, shards and generation manifests of local disks and object stores.

``writer`` streams records into one file, ``storing`` writes whole tables, ``shards`` and ``appender`` add files to a
directory, ``compaction`` merges records and files, ``manifest`` publishes generations. Under them: ``publish`` (how new
bytes appear), ``recordlog`` (the commit order), ``output`` (aligned writes), ``locks``.
"""
