//go:build !linux

package ops

import "time"

// threadTime is the wall's where a thread cannot be asked.
func threadTime() time.Duration { return wallTime() }
