package convert

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

// Options are the choices of a conversion. The zero value converts everything.
type Options struct {
	robocache.WriteOptions
	// Align brings all streams onto one grid first (align.View). A source whose streams have clocks of their own is aligned at FPS, or at its own
	// rate, where this is nil.
	Align *align.Config
	// DropInvalid leaves out rows at which some stream has no value, in place of writing "<key>.valid".
	DropInvalid bool
}
