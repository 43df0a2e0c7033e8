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
	ratio = 1000 // decompressed to compressed, …
	// … above this: images of a camera that sees nothing compress ten thousandfold
	free       = 64 << 20
	maxMessage = 1 << 30
)

// What is said of what grows beyond.
var grown = fmt.Sprintf("at most %d bytes of one, above %d MiB", ratio, free>>20)

const grownHint = "where it is not damaged, decompress it first: zstd -d of a file, ros2 bag convert of messages"

// zstdMessages is a recording whose payloads are compressed one by one.
type zstdMessages struct {
	bag.Storage
	decoders sync.Pool
}

func (z *zstdMessages) Messages(
	ctx context.Context,
	topic, from, to int,
	fn func(i int, m *bag.Message) error,
) error {
	return z.Storage.Messages(ctx, topic, from, to, z.plain(topic, fn))
}

func (z *zstdMessages) Walk(
	ctx context.Context,
	topics []int,
	fn func(topic, i int, m *bag.Message) error,
) (map[int]error, error) {
	return z.Storage.Walk(ctx, topics, func(topic, i int, m *bag.Message) error {
		return z.plain(topic, func(i int, m *bag.Message) error { return fn(topic, i, m) })(i, m)
	})
}

// plain gives fn the messages of a topic as they were recorded.
func (z *zstdMessages) plain(
	topic int,
	fn func(i int, m *bag.Message) error,
) func(i int, m *bag.Message) error {
	return func(i int, m *bag.Message) error {
		d := z.decoder()
		defer z.decoders.Put(d)
		out := *m
		var err error
		if out.Data, err = d.message(m.Data); err != nil {
			return robocache.At(err, robocache.Where{"topic": z.Topics()[topic].Name, "index": i})
		}
		return fn(i, &out)
	}
}

func (z *zstdMessages) Bytes() int64 { return 4 * z.Storage.Bytes() } // what the payloads are decompressed, nothing says

// messageDecoder decompresses payloads into one buffer.
type messageDecoder struct{ buf []byte }

// plainWindow is the largest window that any message may ask for.
const plainWindow = 8 << 20

func (z *zstdMessages) decoder() *messageDecoder {
	if d, ok := z.decoders.Get().(*messageDecoder); ok {
		return d
	}
	return &messageDecoder{}
}

func (d *messageDecoder) message(data []byte) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(data); err != nil {
		return nil, robocache.Malformed("zstd", nil, "the message is no zstd frame").WithCause(err)
	}
	limit := min(max(ratio*len(data), free), maxMessage)
	if h.FrameContentSize > uint64(limit) || h.WindowSize > uint64(max(limit, plainWindow)) {
		return nil, robocache.ResourceLimit("zstd", nil, "").
			Expected(grown, strconv.FormatUint(h.FrameContentSize, 10)+" of "+strconv.Itoa(len(data))).
			WithHint("%s", grownHint)
	}
	// Frames that do not say how large they are, and several, get more room as long as they need
	// it.
	// the rest when that much came
	room := min(int(h.FrameContentSize), max(ratio*len(data), 64<<10))
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

// unpacked is a file that was decompressed.
type unpacked struct {
	*scratch.Part
	file *scratch.File
}

func (u *unpacked) Close() error { return u.file.Close() }

// unpack decompresses a whole .zstd file.
func unpack(ctx context.Context, f robocache.Ranged, name string) (_ *unpacked, err error) {
	full := robocache.ResourceLimit("zstd", nil, "the file decompresses to more than %d times its size", ratio).
		WithHint("%s", grownHint)
	u := &unpacked{
		file: scratch.New(
			max(ratio*f.Size(), free),
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
