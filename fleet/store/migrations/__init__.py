"""Schema changes, run from code by `fleet.store.upgrade`: forward only, one transaction for all that are due.

A change of `fleet/store/tables.py` comes with a new file in `versions/`, numbered on. The tests compare the head with the
tables on both databases, and upgrade a database of the previous revision with rows in it. SQLite cannot alter a column:
use `op.batch_alter_table`, which copies the table (foreign keys are off meanwhile and checked before the commit).
Rows of open runs are data too: who renames a phase renames it here.
"""
