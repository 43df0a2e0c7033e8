//go:build toy

package cli

import _ "github.com/goatnote-inc/robocache/internal/e2e/tests/toy" // a format with faults, for tests of them
