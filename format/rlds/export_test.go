package rlds

import "testing"

// JudgeReads holds the data set in a folder to what tensorflow-datasets reads of it, opened without code; it skips without it.
func JudgeReads(t *testing.T, dir string) {
	t.Helper()
	judgeReads(t, dir)
}
