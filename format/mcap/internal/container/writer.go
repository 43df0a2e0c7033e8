package container

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
)

// WriterOptions are the choices of a writer.
type WriterOptions struct {
	Profile, Library string
	Chunk            int         // bytes of records in a chunk; 0 = 1 MiB
	Compression      Compression // None or Zstd
}

// Writer writes one file: chunks with their message indexes, then the summary. Schemas, channels and messages come in any order that has
// schemas before their channels and channels before their messages.
type Writer struct {
	out  io.Writer
	at   int64
	crc  uint32 // of everything up to the end of the data section
	opt  WriterOptions
	enc  *zstd.Encoder
	head []byte // scratch

	schemas  [][]byte // their records
	channels [][]byte
	chunk    []byte
	index    map[uint16][]spot
	from, to int64 // times of the chunk
	packed   []byte

	chunks   []byte // chunk index records
	metadata []byte
	counts   map[uint16]uint64
	stats    Statistics
}

// NewWriter begins a file.
func NewWriter(out io.Writer, opt WriterOptions) (*Writer, error) {
	if opt.Chunk <= 0 {
		opt.Chunk = 1 << 20
	}
	w := &Writer{out: out, opt: opt, index: map[uint16][]spot{}, counts: map[uint16]uint64{}}
	if opt.Compression == Zstd {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithEncoderLevel(zstd.SpeedDefault))
		if err != nil {
			return nil, err
		}
		w.enc = enc
	} else if opt.Compression != None {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "mcap write", Msg: "compression " + opt.Compression.String()}
	}
	if err := w.put([]byte(magic)); err != nil {
		return nil, err
	}
	return w, w.record(OpHeader, appendString(appendString(nil, opt.Profile), opt.Library))
}

func (w *Writer) put(b []byte) error {
	w.crc = crc32.Update(w.crc, crc32.IEEETable, b)
	w.at += int64(len(b))
	_, err := w.out.Write(b)
	return err
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendRecord(b []byte, op Op, content []byte) []byte {
	b = append(b, byte(op))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(content)))
	return append(b, content...)
}

func (w *Writer) record(op Op, content []byte) error {
	w.head = append(w.head[:0], byte(op))
	w.head = binary.LittleEndian.AppendUint64(w.head, uint64(len(content)))
	if err := w.put(w.head); err != nil {
		return err
	}
	return w.put(content)
}

// Schema adds a schema and gives its number.
func (w *Writer) Schema(name, encoding, text string) (uint16, error) {
	if len(w.schemas) >= 65535 {
		return 0, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "mcap write", Want: "at most 65,535 schemas", Got: "more"}
	}
	id := uint16(len(w.schemas) + 1)
	b := binary.LittleEndian.AppendUint16(nil, id)
	b = appendString(appendString(appendString(b, name), encoding), text)
	w.schemas = append(w.schemas, appendRecord(nil, OpSchema, b))
	w.chunk = append(w.chunk, w.schemas[len(w.schemas)-1]...)
	return id, nil
}

// Channel adds a channel and gives its number.
func (w *Writer) Channel(schema uint16, topic, encoding string, metadata map[string]string) (uint16, error) {
	if len(w.channels) >= 65535 {
		return 0, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "mcap write", Want: "at most 65,535 channels", Got: "more"}
	}
	id := uint16(len(w.channels) + 1) // from 1: rosbags takes channel 0 for none, and leaves its messages out
	b := binary.LittleEndian.AppendUint16(nil, id)
	b = binary.LittleEndian.AppendUint16(b, schema)
	b = appendStrings(appendString(appendString(b, topic), encoding), metadata)
	w.channels = append(w.channels, appendRecord(nil, OpChannel, b))
	w.chunk = append(w.chunk, w.channels[id-1]...)
	return id, nil
}

func appendStrings(b []byte, m map[string]string) []byte {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var in []byte
	for _, k := range keys {
		in = appendString(appendString(in, k), m[k])
	}
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(in))), in...)
}

// Message adds a message; its data is copied.
func (w *Writer) Message(m *Message) error {
	if m.Log < 0 || m.Publish < 0 {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "mcap write", Msg: "a time before the epoch", Want: "0 or more", Got: fmt.Sprint(min(m.Log, m.Publish))}
	}
	if len(w.index) == 0 {
		w.from, w.to = m.Log, m.Log
	}
	w.from, w.to = min(w.from, m.Log), max(w.to, m.Log)
	w.index[m.Channel] = append(w.index[m.Channel], spot{log: m.Log, at: uint32(len(w.chunk))})
	w.chunk = append(w.chunk, byte(OpMessage))
	w.chunk = binary.LittleEndian.AppendUint64(w.chunk, uint64(messageFix+len(m.Data)))
	w.chunk = binary.LittleEndian.AppendUint16(w.chunk, m.Channel)
	w.chunk = binary.LittleEndian.AppendUint32(w.chunk, m.Sequence)
	w.chunk = binary.LittleEndian.AppendUint64(w.chunk, uint64(m.Log))
	w.chunk = binary.LittleEndian.AppendUint64(w.chunk, uint64(m.Publish))
	w.chunk = append(w.chunk, m.Data...)
	if w.stats.Messages == 0 {
		w.stats.Start, w.stats.End = uint64(m.Log), uint64(m.Log)
	}
	w.stats.Start, w.stats.End = min(w.stats.Start, uint64(m.Log)), max(w.stats.End, uint64(m.Log))
	w.stats.Messages++
	w.counts[m.Channel]++
	if len(w.chunk) >= w.opt.Chunk {
		return w.flush()
	}
	return nil
}

// flush writes the chunk and the indexes of its messages.
func (w *Writer) flush() error {
	if len(w.chunk) == 0 {
		return nil
	}
	body := w.chunk
	if w.enc != nil {
		w.packed = w.enc.EncodeAll(w.chunk, w.packed[:0])
		body = w.packed
	}
	start := w.at
	comp := w.opt.Compression.String()
	head := binary.LittleEndian.AppendUint64(nil, uint64(w.from))
	head = binary.LittleEndian.AppendUint64(head, uint64(w.to))
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.chunk)))
	head = binary.LittleEndian.AppendUint32(head, crc32.ChecksumIEEE(w.chunk))
	head = appendString(head, comp)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(body)))
	rec := append([]byte{byte(OpChunk)}, binary.LittleEndian.AppendUint64(nil, uint64(len(head)+len(body)))...)
	if err := w.put(append(rec, head...)); err != nil {
		return err
	}
	if err := w.put(body); err != nil {
		return err
	}
	length := w.at - start
	ids := make([]uint16, 0, len(w.index))
	for id := range w.index {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var offsets []byte
	for _, id := range ids {
		spots := w.index[id]
		slices.SortStableFunc(spots, func(a, b spot) int { return int(max(-1, min(1, a.log-b.log))) })
		offsets = binary.LittleEndian.AppendUint16(offsets, id)
		offsets = binary.LittleEndian.AppendUint64(offsets, uint64(w.at))
		b := binary.LittleEndian.AppendUint16(nil, id)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(spots)*16))
		for _, s := range spots {
			b = binary.LittleEndian.AppendUint64(b, uint64(s.log))
			b = binary.LittleEndian.AppendUint64(b, uint64(s.at))
		}
		if err := w.record(OpMessageIndex, b); err != nil {
			return err
		}
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(w.from))
	b = binary.LittleEndian.AppendUint64(b, uint64(w.to))
	b = binary.LittleEndian.AppendUint64(b, uint64(start))
	b = binary.LittleEndian.AppendUint64(b, uint64(length))
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(offsets))), offsets...)
	b = binary.LittleEndian.AppendUint64(b, uint64(w.at-start-length))
	b = appendString(b, comp)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(body)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.chunk)))
	w.chunks = appendRecord(w.chunks, OpChunkIndex, b)
	w.stats.Chunks++
	w.chunk = w.chunk[:0]
	clear(w.index)
	w.from, w.to = 0, 0
	return nil
}

// Metadata writes a metadata record.
func (w *Writer) Metadata(name string, values map[string]string) error {
	if err := w.flush(); err != nil {
		return err
	}
	start := w.at
	if err := w.record(OpMetadata, appendStrings(appendString(nil, name), values)); err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(start))
	b = binary.LittleEndian.AppendUint64(b, uint64(w.at-start))
	w.metadata = appendRecord(w.metadata, OpMetadataIndex, appendString(b, name))
	w.stats.Metadata++
	return nil
}

// Close writes the rest, the summary and the footer. It does not close what it writes to.
func (w *Writer) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	if w.enc != nil {
		defer w.enc.Close()
	}
	if err := w.record(OpDataEnd, binary.LittleEndian.AppendUint32(nil, w.crc)); err != nil {
		return err
	}
	start := w.at
	var sum, offsets []byte
	group := func(op Op, b []byte) {
		if len(b) == 0 {
			return
		}
		o := append([]byte{byte(op)}, binary.LittleEndian.AppendUint64(nil, uint64(start)+uint64(len(sum)))...)
		offsets = appendRecord(offsets, OpSummaryOffset, binary.LittleEndian.AppendUint64(o, uint64(len(b))))
		sum = append(sum, b...)
	}
	group(OpSchema, slices.Concat(w.schemas...))
	group(OpChannel, slices.Concat(w.channels...))
	group(OpStatistics, appendRecord(nil, OpStatistics, w.statistics()))
	group(OpChunkIndex, w.chunks)
	group(OpMetadataIndex, w.metadata)
	offsetsAt := start + int64(len(sum))
	sum = append(sum, offsets...)
	sum = append(sum, byte(OpFooter))
	sum = binary.LittleEndian.AppendUint64(sum, footerSize)
	sum = binary.LittleEndian.AppendUint64(sum, uint64(start))
	sum = binary.LittleEndian.AppendUint64(sum, uint64(offsetsAt))
	sum = binary.LittleEndian.AppendUint32(sum, crc32.ChecksumIEEE(sum))
	return w.put(append(sum, magic...))
}

func (w *Writer) statistics() []byte {
	b := binary.LittleEndian.AppendUint64(nil, w.stats.Messages)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(w.schemas)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(w.channels)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint32(b, w.stats.Metadata)
	b = binary.LittleEndian.AppendUint32(b, w.stats.Chunks)
	b = binary.LittleEndian.AppendUint64(b, w.stats.Start)
	b = binary.LittleEndian.AppendUint64(b, w.stats.End)
	var per []byte
	for k := range w.channels {
		id := uint16(k + 1)
		per = binary.LittleEndian.AppendUint16(per, id)
		per = binary.LittleEndian.AppendUint64(per, w.counts[id])
	}
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(per))), per...)
}

// Bytes is how much was written.
func (w *Writer) Bytes() int64 { return w.at }
