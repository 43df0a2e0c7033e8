//go:build toy

package cli

// registers a format with faults, for tests
import _ "github.com/goatnote-inc/robocache/internal/e2e/tests/toy"
