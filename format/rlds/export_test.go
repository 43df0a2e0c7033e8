package rlds

import (
	"path/filepath"
	"testing"
)

// JudgeReads compares the dataset in a folder with what tensorflow-datasets reads from it, opened
// without code. It skips the test if tensorflow-datasets is missing.
func JudgeReads(t *testing.T, dir string) {
	t.Helper()
	judgeReads(t, dir)
}

// TFDSKinds returns a folder with every kind of feature that tensorflow-datasets writes, or "" if
// it is missing.
func TFDSKinds(t *testing.T) string {
	if testing.Short() || tfdsPython(t) == "" {
		return ""
	}
	return filepath.Join(tfdsSets(t), "kinds")
}
