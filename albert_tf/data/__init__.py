"""Files, records, tables and processes, independent of models and tasks."""
