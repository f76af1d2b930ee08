"""Files, records, tables and processes. Knows no model and no task."""
