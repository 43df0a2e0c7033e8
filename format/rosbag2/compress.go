package rosbag2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/scratch"
	"github.com/goatnote-inc/robocache/internal/unzstd"
)

const (
	maxRatio = 1000 // maximum ratio of decompressed to compressed size above freeBytes
	// Images of a dark camera may compress ten thousand times.
	freeBytes  = 64 << 20
	maxMessage = 1 << 30
)

// grown describes the allowed size in errors.
var grown = fmt.Sprintf("at most %d bytes of one, above %d MiB", maxRatio, freeBytes>>20)

const grownHint = "where it is not damaged, decompress it first: zstd -d of a file, ros2 bag " +
	"convert of messages"

// zstdMessages is a recording whose payloads are compressed separately.
type zstdMessages struct {
	bag.Storage
	decoders sync.Pool
}

func (z *zstdMessages) Messages(
	ctx context.Context,
	topic, from, to int,
	fn func(i int, m *bag.Message) error,
) error {
	return z.Storage.Messages(ctx, topic, from, to, z.decompressed(topic, fn))
}

func (z *zstdMessages) Walk(
	ctx context.Context,
	topics []int,
	fn func(topic, i int, m *bag.Message) error,
) (map[int]error, error) {
	return z.Storage.Walk(ctx, topics, func(topic, i int, m *bag.Message) error {
		return z.decompressed(
			topic,
			func(i int, m *bag.Message) error { return fn(topic, i, m) },
		)(
			i,
			m,
		)
	})
}

// decompressed returns a function that calls fn with decompressed messages of a topic.
func (z *zstdMessages) decompressed(
	topic int,
	fn func(i int, m *bag.Message) error,
) func(i int, m *bag.Message) error {
	return func(i int, m *bag.Message) error {
		d := z.acquireDecoder()
		defer z.decoders.Put(d)
		out := *m
		var err error
		if out.Data, err = d.decompress(m.Data); err != nil {
			return robocache.At(err, robocache.Where{"topic": z.Topics()[topic].Name, "index": i})
		}
		return fn(i, &out)
	}
}

// Bytes returns an estimate, because the decompressed size of the payloads is unknown.
func (z *zstdMessages) Bytes() int64 { return 4 * z.Storage.Bytes() }

// messageDecoder decompresses payloads into one buffer.
type messageDecoder struct{ buf []byte }

// plainWindow is the largest window that every message may request.
const plainWindow = 8 << 20

func (z *zstdMessages) acquireDecoder() *messageDecoder {
	if d, ok := z.decoders.Get().(*messageDecoder); ok {
		return d
	}
	return &messageDecoder{}
}

func (d *messageDecoder) decompress(data []byte) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(data); err != nil {
		return nil, robocache.Malformed("zstd", nil, "the message is no zstd frame").WithCause(err)
	}
	limit := min(max(maxRatio*len(data), freeBytes), maxMessage)
	if h.FrameContentSize > uint64(limit) || h.WindowSize > uint64(max(limit, plainWindow)) {
		return nil, robocache.ResourceLimit("zstd", nil, "").
			Expected(
				grown,
				strconv.FormatUint(h.FrameContentSize, 10)+" of "+strconv.Itoa(len(data)),
			).
			WithHint("%s", grownHint)
	}
	// If a frame does not declare its size, or there are several frames, the buffer grows up to the
	// limit.
	room := min(int(h.FrameContentSize), max(maxRatio*len(data), 64<<10))
	if room == 0 {
		room = min(max(64<<10, 4*len(data)), limit)
	}
	for ; ; room = min(4*room, limit) {
		if cap(d.buf) < room {
			d.buf = make([]byte, room)
		}
		n, err := unzstd.Decode(d.buf[:room], data, unzstd.Verify)
		switch {
		case err == nil:
			return d.buf[:n], nil
		case !errors.Is(err, unzstd.ErrRoom):
			return nil, robocache.Malformed("zstd", nil, "the message does not decompress").
				WithCause(err)
		case room == limit:
			return nil, robocache.ResourceLimit("zstd", nil, "").
				Expected(grown, "a message of "+strconv.Itoa(len(data))+" bytes that grows beyond").
				WithHint("%s", grownHint)
		}
	}
}

// unpackedFile is a decompressed file.
type unpackedFile struct {
	*scratch.Part
	file *scratch.File
}

func (u *unpackedFile) Close() error { return u.file.Close() }

// unpackFile decompresses a whole .zstd file.
func unpackFile(ctx context.Context, f robocache.Ranged, name string) (_ *unpackedFile, err error) {
	full := robocache.ResourceLimit(
		"zstd",
		nil,
		"the file decompresses to more than %d times its size",
		maxRatio,
	).
		WithHint("%s", grownHint)
	u := &unpackedFile{
		file: scratch.New(
			max(maxRatio*f.Size(), freeBytes),
			full,
			"set TMPDIR to a folder with more room, or decompress the files: zstd -d",
		),
	}
	u.Part = u.file.Part(f.Version() + "+zstd")
	defer func() {
		if err != nil {
			u.Close()
			err = robocache.At(err, robocache.Where{"file": name})
		}
	}()
	src := &scratch.Reader{Ctx: ctx, R: f}
	d, err := zstd.NewReader(
		src,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(128<<20),
	)
	if err != nil {
		return nil, robocache.Malformed("zstd", nil, "").WithCause(err)
	}
	defer d.Close()
	size, err := io.CopyBuffer(u, struct{ io.Reader }{d}, make([]byte, 256<<10))
	u.Holds(size)
	if err == nil {
		return u, nil
	}
	var own *robocache.Error
	if ctx.Err() != nil || errors.As(err, &own) {
		return nil, cmp.Or(ctx.Err(), err)
	}
	return nil, robocache.Malformed("zstd", nil, "the file does not decompress").WithCause(err)
}
