//go:build toy

package cli

// a format with faults, for tests of them
import _ "github.com/goatnote-inc/robocache/internal/e2e/tests/toy"
