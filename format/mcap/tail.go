package mcap

import (
	"io"

	"github.com/goatnote-inc/robocache/format/internal/natural"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
)

// Types of a file that is being written, or read while it is being written.
type (
	// Tail decodes the messages of a file that is being written.
	Tail = container.Tail
	// Writer writes a file message by message.
	Writer = container.Writer
	// WriterOptions configures a Writer.
	WriterOptions = container.WriterOptions
	// Message is one message with its log time.
	Message = container.Message
	// MessageChannel is a topic of one publisher.
	MessageChannel = container.Channel
	// Limits limits the memory that a file may require.
	Limits = container.Limits
)

// Compressions of chunks that a Writer supports.
const (
	NoCompression = container.None
	Zstd          = container.Zstd
)

var (
	// TailLimits are the default limits of a Tail.
	TailLimits = container.TailLimits
	// ErrRewritten reports that the bytes of a file that were read before have changed.
	ErrRewritten = container.ErrRewritten
)

// CompareNames compares the names of the files of a recording, by the numbers in them.
func CompareNames(a, b string) int { return natural.Compare(a, b) }

// NewTail returns a Tail that begins at the start of source.
func NewTail(source io.ReaderAt, limits Limits) *Tail { return container.NewTail(source, limits) }

// NewWriter begins a file. The caller must close the writer, and then out.
func NewWriter(out io.Writer, opt WriterOptions) (*Writer, error) {
	return container.NewWriter(out, opt)
}
