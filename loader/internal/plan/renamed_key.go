package plan

// DatasetKey returns the dataset's own name of a key of the batch (column.DataSource.DatasetKey).
func (r *renamed) DatasetKey(key string) string { return r.oldKey(key) }
