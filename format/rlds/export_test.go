package rlds

import (
	"path/filepath"
	"testing"
)

// JudgeReads holds the data set in a folder to what tensorflow-datasets reads of it, opened without
// code; it skips without it.
func JudgeReads(t *testing.T, dir string) {
	t.Helper()
	judgeReads(t, dir)
}

// TFDSKinds is a folder of every kind of feature that tensorflow-datasets writes; "" without it.
func TFDSKinds(t *testing.T) string {
	if testing.Short() || tfdsPython(t) == "" {
		return ""
	}
	return filepath.Join(tfdsSets(t), "kinds")
}
