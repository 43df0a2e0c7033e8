package loader

import (
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// Options that name keys.
type (
	Delta       = options.Delta
	Deltas      = options.Deltas
	Index       = options.Index
	Indices     = options.Indices
	Bytes       = options.Bytes
	Window      = options.Window
	Windows     = options.Windows
	Normalize   = options.Normalize
	Norm        = options.Norm
	Augment     = options.Augment
	RandomCrop  = options.RandomCrop
	ColorJitter = options.ColorJitter
	HFlip       = options.HFlip
	Noise       = options.Noise
	Spread      = options.Spread
	Amounts     = options.Amounts
)

// Allocator is where the memory of batches comes from: page-locked, say, so that a GPU copies from it.
type Allocator = buffers.Allocator
