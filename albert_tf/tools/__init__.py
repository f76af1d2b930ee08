"""Programs that use jobs: ablations, tables of results, inspection, exports and `pretrain`."""
