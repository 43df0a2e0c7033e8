package reader

import "testing"

// Tables of metrics are no recordings that were forgotten, and other tables are.
func TestLooseLeavesOutMetrics(t *testing.T) {
	var l Loose
	for _, name := range []string{"meta/quality.parquet", "a.hdf5.quality.parquet", "meta/embeddings.parquet"} {
		l.Add(name)
	}
	if found := l.Findings(); len(found) > 0 {
		t.Errorf("%v", found)
	}
	l.Add("inequality.parquet")
	if found := l.Findings(); len(found) != 1 {
		t.Errorf("%d findings, want 1", len(found))
	}
}
