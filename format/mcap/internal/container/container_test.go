package container

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// blob is a file in memory.
type blob []byte

func (b blob) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > int64(len(b)) {
		return &robocache.Error{
			Class: robocache.ErrMalformed,
			Op:    "read",
			Msg:   "outside the file",
			Err:   io.ErrUnexpectedEOF,
		}
	}
	copy(p, b[off:])
	return ctx.Err()
}
func (b blob) Size() int64   { return int64(len(b)) }
func (blob) Version() string { return "1" }
func (blob) Close() error    { return nil }

// told is a message with the topic of its channel.
type told struct {
	topic string
	log   int64
	data  string
}

// everything reads all messages of a file by channel and log time.
func everything(f *File) (out []told, err error) {
	ctx := context.Background()
	ix, err := f.Index(ctx)
	if err != nil {
		return nil, err
	}
	ids := make([]uint16, 0, len(ix.Channels))
	for id := range ix.Channels {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		c := ix.Channels[id]
		for i := range c.Log {
			r, err := f.Records(ctx, int(c.Chunk[i]), 0)
			if err != nil {
				return nil, err
			}
			if r == nil {
				continue
			}
			var m Message
			if err := f.At(r.Bytes(), int(c.Chunk[i]), c.At[i], id, c.Log[i], &m); err != nil {
				return nil, err
			}
			topic := "?"
			if f.Channels[id] != nil {
				topic = f.Channels[id].Topic
			}
			out = append(out, told{topic, m.Log, string(m.Data)})
			r.Release()
		}
	}
	return out, nil
}

func open(b []byte, opt Options) (out []told, f *File, err error) {
	defer guard.Recover("mcap", &err)
	f, err = Open(context.Background(), blob(b), opt)
	if err != nil {
		return nil, f, err
	}
	out, err = everything(f)
	return out, f, err
}

// written makes a file with foxglove's writer.
func written(t testing.TB, opt foxglove.WriterOptions, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := foxglove.NewWriter(&b, &opt)
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	must(err)
	must(w.WriteHeader(&foxglove.Header{Profile: "ros2", Library: "x"}))
	must(
		w.WriteSchema(
			&foxglove.Schema{
				ID:       1,
				Name:     "std_msgs/msg/String",
				Encoding: "ros2msg",
				Data:     []byte("string data\n"),
			},
		),
	)
	for c := range uint16(3) {
		must(
			w.WriteChannel(
				&foxglove.Channel{
					ID:              c,
					SchemaID:        1,
					Topic:           fmt.Sprintf("/t%d", c),
					MessageEncoding: "cdr",
					Metadata:        map[string]string{"offered_qos_profiles": "x"},
				},
			),
		)
	}
	for i := range n {
		log := uint64(1000 + i*10)
		if i%7 == 3 {
			log -= 35 // late, so that chunks overlap
		}
		must(
			w.WriteMessage(
				&foxglove.Message{
					ChannelID:   uint16(i % 3),
					Sequence:    uint32(i),
					LogTime:     log,
					PublishTime: log - 1,
					Data:        []byte(strings.Repeat(fmt.Sprintf("message %d ", i), 1+i%5)),
				},
			),
		)
	}
	must(w.WriteMetadata(&foxglove.Metadata{Name: "note", Metadata: map[string]string{"a": "b"}}))
	must(
		w.WriteAttachment(
			&foxglove.Attachment{
				Name:      "file",
				MediaType: "text/plain",
				DataSize:  5,
				Data:      strings.NewReader("hello"),
			},
		),
	)
	must(w.Close())
	return b.Bytes()
}

var variants = map[string]foxglove.WriterOptions{
	"zstd": {
		Chunked:     true,
		ChunkSize:   512,
		Compression: foxglove.CompressionZSTD,
		IncludeCRC:  true,
	},
	"lz4": {
		Chunked:     true,
		ChunkSize:   512,
		Compression: foxglove.CompressionLZ4,
		IncludeCRC:  true,
	},
	"none":        {Chunked: true, ChunkSize: 512, IncludeCRC: true},
	"not chunked": {Chunked: false, IncludeCRC: true},
	"no index": {
		Chunked:             true,
		ChunkSize:           512,
		Compression:         foxglove.CompressionZSTD,
		IncludeCRC:          true,
		SkipMessageIndexing: true,
	},
	"no chunkindex": {Chunked: true, ChunkSize: 512, IncludeCRC: true, SkipChunkIndex: true},
	"no statistics": {Chunked: true, ChunkSize: 512, IncludeCRC: true, SkipStatistics: true},
	"no repeats": {
		Chunked:                  true,
		ChunkSize:                512,
		IncludeCRC:               true,
		SkipRepeatedChannelInfos: true,
		SkipRepeatedSchemas:      true,
	},
	"no schemas": {Chunked: true, ChunkSize: 512, IncludeCRC: true, SkipRepeatedSchemas: true},
}

// expected returns the messages that foxglove's reader returns, by channel and log time.
func expected(t testing.TB, b []byte) []told {
	t.Helper()
	r, err := foxglove.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	it, err := r.Messages(foxglove.UsingIndex(false))
	if err != nil {
		t.Fatal(err)
	}
	var out []told
	for {
		_, c, m, err := it.NextInto(nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, told{c.Topic, int64(m.LogTime), string(m.Data)})
	}
	slices.SortStableFunc(out, func(a, b told) int {
		if a.topic != b.topic {
			return strings.Compare(a.topic, b.topic)
		}
		return int(a.log - b.log)
	})
	return out
}

// TestVariants checks mcap.M1 and mcap.M2 for every layout that foxglove's writer makes, with the
// summary and by scanning.
func TestVariants(t *testing.T) {
	for name, opt := range variants {
		b := written(t, opt, 100)
		want := expected(t, b)
		for _, scan := range []bool{false, true} {
			got, f, err := open(b, Options{Scan: scan})
			if err != nil {
				t.Errorf("%s scan=%v: %v", name, scan, err)
				continue
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s scan=%v: %d messages of %d", name, scan, len(got), len(want))
			}
			if len(f.Channels) != 3 || f.Schemas[1] == nil ||
				f.Schemas[1].Name != "std_msgs/msg/String" {
				t.Errorf(
					"%s scan=%v: %d channels, schemas %v",
					name,
					scan,
					len(f.Channels),
					f.Schemas,
				)
			}
			if len(f.Metadata) != 1 || len(f.Attachments) != 1 {
				t.Errorf(
					"%s scan=%v: %d metadata, %d attachments",
					name,
					scan,
					len(f.Metadata),
					len(f.Attachments),
				)
				continue
			}
			m, err := f.ReadMetadata(context.Background(), f.Metadata[0])
			if err != nil || m["a"] != "b" {
				t.Error(m, err)
			}
			a, err := f.ReadAttachment(context.Background(), f.Attachments[0])
			if err != nil || string(a.Data) != "hello" || a.Name != "file" {
				t.Error(a, err)
			}
		}
	}
}

// subset reports whether got is want without some elements, in the same order.
func subset(got, want []told) bool {
	for _, g := range got {
		i := slices.Index(want, g)
		if i < 0 {
			return false
		}
		want = want[i+1:]
	}
	return true
}

func typed(t *testing.T, err error) {
	t.Helper()
	if hostile.Typed(t, err); err == nil {
		t.Fatal("no error")
	}
}

// stride returns 1, or with -short a larger step, so that the race detector tests fewer offsets.
func stride(t *testing.T) int {
	if testing.Short() {
		return 37
	}
	return 1
}

// TestTruncated checks that a file truncated at any offset returns only intact messages and reports
// the truncation (mcap.M3).
func TestTruncated(t *testing.T) {
	for _, name := range []string{"zstd", "lz4", "none", "not chunked", "no index"} {
		b := written(t, variants[name], 40)
		want := expected(t, b)
		most := 0
		for n := 0; n < len(b); n += stride(t) {
			got, f, err := open(b[:n], Options{})
			if err != nil {
				typed(t, err)
				continue
			}
			if !subset(got, want) {
				t.Fatalf(
					"%s cut at %d of %d: %d messages that are not of the file",
					name,
					n,
					len(b),
					len(got),
				)
			}
			if len(f.Findings()) == 0 {
				t.Fatalf("%s cut at %d: no finding", name, n)
			}
			if len(got) < most {
				t.Fatalf("%s cut at %d: %d messages, at a shorter cut %d", name, n, len(got), most)
			}
			most = len(got)
		}
		if most != len(want) && stride(t) == 1 {
			t.Errorf("%s: %d messages of %d before the summary", name, most, len(want))
		}
	}
}

// TestFlipped checks that with checksums no changed byte yields a message that is not in the file.
func TestFlipped(t *testing.T) {
	for _, name := range []string{"zstd", "none", "lz4"} {
		b := written(t, variants[name], 40)
		want := expected(t, b)
		for at := 0; at < len(b); at += stride(t) {
			for _, v := range []byte{255, b[at] + 1, b[at] ^ 0x80} {
				c := slices.Clone(b)
				if c[at] == v {
					continue
				}
				c[at] = v
				got, _, err := open(c, Options{})
				if err != nil {
					typed(t, err)
					continue
				}
				// A changed topic name is another name; no checksum of a chunk covers it.
				for i := range got {
					if j := slices.IndexFunc(
						want,
						func(w told) bool { return w.log == got[i].log && w.data == got[i].data },
					); j < 0 {
						t.Fatalf("%s byte %d = %d: message %+v", name, at, v, got[i])
					}
				}
				if len(got) > len(want) {
					t.Fatalf("%s byte %d = %d: %d messages of %d", name, at, v, len(got), len(want))
				}
			}
		}
	}
}

// build makes a file from records.
func build(recs ...[]byte) []byte {
	b := []byte(magic)
	b = appendRecord(b, OpHeader, appendString(appendString(nil, "ros2"), "x"))
	for _, r := range recs {
		b = append(b, r...)
	}
	b = appendRecord(b, OpDataEnd, make([]byte, 4))
	b = appendRecord(b, OpFooter, make([]byte, footerSize))
	return append(b, magic...)
}

func channel(id uint16, topic string) []byte {
	b := binary.LittleEndian.AppendUint16(nil, id)
	b = binary.LittleEndian.AppendUint16(b, 0)
	return appendRecord(
		nil,
		OpChannel,
		appendStrings(appendString(appendString(b, topic), "cdr"), nil),
	)
}

func message(id uint16, log uint64, data string) []byte {
	b := binary.LittleEndian.AppendUint16(nil, id)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, log)
	b = binary.LittleEndian.AppendUint64(b, log)
	return appendRecord(nil, OpMessage, append(b, data...))
}

func chunkOf(comp string, size uint64, crc uint32, records []byte) []byte {
	b := make([]byte, 16)
	b = binary.LittleEndian.AppendUint64(b, size)
	b = binary.LittleEndian.AppendUint32(b, crc)
	b = appendString(b, comp)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(records)))
	return appendRecord(nil, OpChunk, append(b, records...))
}

// TestHostile checks wrong sizes, times and numbers.
func TestHostile(t *testing.T) {
	inner := slices.Concat(channel(1, "/a"), message(1, 5, "x"))
	good := chunkOf("", uint64(len(inner)), crc32.ChecksumIEEE(inner), inner)
	for _, c := range []struct {
		name  string
		file  []byte
		n     int   // messages
		class error // or an error
		found string
	}{
		{name: "plain", file: build(good), n: 1},
		{
			name:  "chunk of 2^60 bytes",
			file:  build(good, chunkOf("zstd", 1<<60, 0, []byte("abc"))),
			n:     1,
			found: "damaged-chunk",
		},
		{
			name:  "zstd of another size",
			file:  build(good, chunkOf("zstd", 1<<20, 0, bytes.Repeat([]byte{1}, 2000))),
			n:     1,
			found: "damaged-chunk",
		},
		{
			name:  "bomb",
			file:  build(good, chunkOf("lz4", 200<<20, 0, bytes.Repeat([]byte{1}, 100))),
			n:     1,
			found: "damaged-chunk",
		},
		{
			name:  "wrong check sum",
			file:  build(good, chunkOf("", uint64(len(inner)), 7, inner)),
			n:     1,
			found: "damaged-chunk",
		},
		{
			name:  "unknown compression",
			file:  build(good, chunkOf("brotli", 10, 0, []byte("0123456789"))),
			n:     1,
			found: "damaged-chunk",
		},
		{
			name:  "chunk in a chunk",
			file:  build(good, chunkOf("", uint64(len(good)), 0, good)),
			n:     1,
			found: "damaged-chunk",
		},
		{
			name:  "record longer than its chunk",
			file:  build(good, chunkOf("", 9, 0, []byte{5, 255, 255, 255, 255, 0, 0, 0, 0})),
			n:     1,
			found: "damaged-chunk",
		},
		{
			name: "time above 2^63-1",
			file: build(
				good,
				chunkOf("", uint64(len(message(1, 1<<63, "y"))), 0, message(1, 1<<63, "y")),
			),
			n:     1,
			found: "damaged-chunk",
		},
		{
			name: "messages outside chunks",
			file: build(good, message(1, 9, "y"), message(1, 2, "z")),
			n:    3,
		},
		{
			name: "unknown opcodes",
			file: build(
				appendRecord(nil, 0x90, []byte("private")),
				good,
				appendRecord(nil, 0x30, []byte("later")),
			),
			n: 1,
		},
		{
			name:  "one id, two topics",
			file:  build(good, channel(1, "/b")),
			class: robocache.ErrMalformed,
		},
		{name: "no magic", file: []byte("hello, world"), class: robocache.ErrMalformed},
		{name: "empty", file: nil, class: robocache.ErrMalformed},
		{name: "magic alone", file: []byte(magic), n: 0, found: "recovered"},
		{
			name:  "header of 2^60 bytes",
			file:  append([]byte(magic), 1, 0, 0, 0, 0, 0, 0, 0, 16),
			class: robocache.ErrMalformed,
		},
		{name: "no messages", file: build(), n: 0},
	} {
		got, f, err := open(c.file, Options{})
		if c.class != nil {
			if !errors.Is(err, c.class) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || len(got) != c.n {
			t.Errorf("%s: %d messages of %d, %v", c.name, len(got), c.n, err)
			continue
		}
		if c.found != "" &&
			!slices.ContainsFunc(
				f.Findings(),
				func(x robocache.Finding) bool { return x.Code == c.found },
			) {
			t.Errorf("%s: found %+v", c.name, f.Findings())
		}
		if c.found == "damaged-chunk" {
			if _, _, err := open(c.file, Options{Strict: true}); err == nil {
				t.Errorf("%s: no error where damage is one", c.name)
			}
		}
	}
}

// TestManyChannels checks that 65,000 channels are read in linear time.
func TestManyChannels(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, WriterOptions{Profile: "ros2", Compression: Zstd})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 65000 {
		id, err := w.Channel(0, fmt.Sprintf("/t%d", i), "cdr", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Message(&Message{
			Channel: id, Log: int64(i), Publish: int64(i),
			Data: []byte{1},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, scan := range []bool{false, true} {
		got, _, err := open(b.Bytes(), Options{Scan: scan})
		if err != nil || len(got) != 65000 {
			t.Fatal(len(got), err)
		}
		// The summary is longer than the first read of the file's end.
		f, err := Open(t.Context(), blob(b.Bytes()), Options{Scan: scan})
		if err != nil || f.Recovered != scan || len(f.Channels) != 65000 && !scan {
			t.Fatal(err, f.Recovered, len(f.Channels))
		}
		f.Close()
	}
}

// TestDamagedChunk checks that other chunks are read and lost messages are counted, or that Strict
// returns the error (mcap.M3).
func TestDamagedChunk(t *testing.T) {
	b := written(t, variants["none"], 100)
	want := expected(t, b)
	f, err := Open(context.Background(), blob(b), Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := f.Chunks[len(f.Chunks)/2]
	c := slices.Clone(b)
	c[k.Offset+k.Length-3] ^= 1
	got, f, err := open(c, Options{})
	if err != nil || !subset(got, want) || f.Lost() == 0 || int64(len(want)-len(got)) != f.Lost() {
		t.Fatalf("%d of %d messages, %d lost, %v", len(got), len(want), f.Lost(), err)
	}
	if fs := f.Findings(); len(fs) != 1 || fs[0].Code != "damaged-chunk" ||
		fs[0].Where["offset"] != k.Offset ||
		fs[0].Count != f.Lost() {
		t.Errorf("%+v", fs)
	}
	if _, _, err := open(c, Options{Strict: true}); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
}

// TestUndefinedChannel checks that messages of an undefined channel belong to no topic and are
// counted in a finding.
func TestUndefinedChannel(t *testing.T) {
	b := build(channel(1, "/a"), message(1, 5, "x"), message(7, 6, "y"), message(7, 8, "z"))
	for _, scan := range []bool{false, true} {
		_, f, err := open(b, Options{Scan: scan})
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for _, w := range f.Findings() {
			if w.Code == "undefined-channel" {
				n += w.Count
			}
		}
		if n != 2 {
			t.Errorf("scan=%v: %d messages are said to have no channel, there are 2", scan, n)
		}
	}
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendStrings(b []byte, m map[string]string) []byte {
	var in []byte
	for _, k := range slices.Sorted(maps.Keys(m)) {
		in = appendString(appendString(in, k), m[k])
	}
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(in))), in...)
}

func appendRecord(b []byte, op Op, content []byte) []byte {
	b = append(b, byte(op))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(content)))
	return append(b, content...)
}
