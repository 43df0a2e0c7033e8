package rosbag2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/internal/unzstd"
)

const (
	ratio      = 1000     // decompressed to compressed, …
	free       = 64 << 20 // … above this: images of a camera that sees nothing compress ten thousandfold
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

func (z *zstdMessages) Messages(ctx context.Context, topic, from, to int, fn func(i int, m *bag.Message) error) error {
	return z.Storage.Messages(ctx, topic, from, to, z.plain(topic, fn))
}

func (z *zstdMessages) Walk(ctx context.Context, topics []int, fn func(topic, i int, m *bag.Message) error) (map[int]error, error) {
	return z.Storage.Walk(ctx, topics, func(topic, i int, m *bag.Message) error {
		return z.plain(topic, func(i int, m *bag.Message) error { return fn(topic, i, m) })(i, m)
	})
}

// plain gives fn the messages of a topic as they were recorded.
func (z *zstdMessages) plain(topic int, fn func(i int, m *bag.Message) error) func(i int, m *bag.Message) error {
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
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "zstd", Msg: "the message is no zstd frame", Err: err}
	}
	limit := min(max(ratio*len(data), free), maxMessage)
	if h.FrameContentSize > uint64(limit) || h.WindowSize > uint64(max(limit, plainWindow)) {
		return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zstd", Want: grown, Got: strconv.FormatUint(h.FrameContentSize, 10) + " of " + strconv.Itoa(len(data)), Hint: grownHint}
	}
	// Frames that do not say how large they are, and several, get more room as long as they need it.
	room := min(int(h.FrameContentSize), max(ratio*len(data), 64<<10)) // the rest when that much came
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
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "zstd", Msg: "the message does not decompress", Err: err}
		case room == limit:
			return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zstd", Want: grown, Got: "a message of " + strconv.Itoa(len(data)) + " bytes that grows beyond", Hint: grownHint}
		}
	}
}

// unpacked is a file that was decompressed: in memory where it is small, else in a file without a name.
type unpacked struct {
	data    []byte
	file    *os.File
	size    int64
	version string
}

// smallFile is what is kept in memory of a decompressed file.
const smallFile = 4 << 20

// unpack decompresses a whole .zstd file.
func unpack(ctx context.Context, f robocache.Ranged, name string) (_ *unpacked, err error) {
	u := &unpacked{version: f.Version() + "+zstd"}
	defer func() {
		if err != nil {
			u.Close()
		}
	}()
	d, err := zstd.NewReader(&rangedReader{ctx: ctx, f: f}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(128<<20))
	if err != nil {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "zstd", Where: robocache.Where{"file": name}, Err: err}
	}
	defer d.Close()
	limit := max(ratio*f.Size(), free)
	buf := make([]byte, 256<<10)
	for {
		n, err := d.Read(buf)
		if u.size += int64(n); u.size > limit {
			return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zstd", Where: robocache.Where{"file": name}, Msg: "the file decompresses to more than " + strconv.Itoa(ratio) + " times its size", Hint: grownHint}
		}
		if werr := u.write(buf[:n]); werr != nil {
			return nil, robocache.At(werr, robocache.Where{"file": name})
		}
		if err == io.EOF {
			return u, nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "zstd", Where: robocache.Where{"file": name}, Msg: "the file does not decompress", Err: err}
		}
	}
}

func (u *unpacked) write(p []byte) error {
	if u.file == nil && len(u.data)+len(p) <= smallFile {
		u.data = append(u.data, p...)
		return nil
	}
	if u.file == nil {
		f, err := os.CreateTemp("", "robocache-*.bag")
		if err != nil {
			return err
		}
		u.file = f
		// Without a name it goes with the process, however that ends.
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
		if _, err := f.Write(u.data); err != nil {
			return err
		}
		u.data = nil
	}
	_, err := u.file.Write(p)
	return err
}

func (u *unpacked) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if off < 0 || off > u.size-int64(len(p)) {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "read", Where: robocache.Where{"offset": off}, Msg: "a range outside the file", Err: io.ErrUnexpectedEOF}
	}
	if u.file == nil {
		copy(p, u.data[off:])
		return nil
	}
	_, err := u.file.ReadAt(p, off)
	return err
}

func (u *unpacked) Size() int64     { return u.size }
func (u *unpacked) Version() string { return u.version }
func (u *unpacked) Close() error {
	if u.file == nil {
		return nil
	}
	return u.file.Close()
}

// rangedReader reads a file from its start.
type rangedReader struct {
	ctx context.Context
	f   robocache.Ranged
	at  int64
}

func (r *rangedReader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.f.Size()-r.at)
	if n == 0 {
		return 0, io.EOF
	}
	if err := r.f.ReadAt(r.ctx, p[:n], r.at); err != nil {
		return 0, err
	}
	r.at += n
	return int(n), nil
}
