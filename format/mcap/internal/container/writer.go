package container

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	foxglove "github.com/foxglove/mcap/go/mcap"
	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
)

// WriterOptions configures a Writer.
type WriterOptions struct {
	Profile, Library string
	Chunk            int         // bytes of records per chunk; 0 means 1 MiB
	Compression      Compression // None or Zstd
}

// Writer writes one file: chunks with their message indexes, then the summary. A schema must be
// added before its channels, and a channel before its messages.
type Writer struct {
	file       *foxglove.Writer
	records    *foxglove.Writer // writes the records of the chunk into body
	body       bytes.Buffer
	compressed []byte
	options    WriterOptions
	encoder    *zstd.Encoder
	index      map[uint16]*foxglove.MessageIndex
	from, to   uint64 // first and last time of the chunk
	start      uint64 // first time of the file
	schemas    int
	channels   int
}

// NewWriter begins a file.
func NewWriter(out io.Writer, opt WriterOptions) (w *Writer, err error) {
	opt.Chunk = cmp.Or(max(opt.Chunk, 0), 1<<20)
	w = &Writer{options: opt, index: map[uint16]*foxglove.MessageIndex{}}
	switch opt.Compression {
	case None:
	case Zstd:
		w.encoder, err = zstd.NewWriter(
			nil,
			zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false),
			zstd.WithEncoderLevel(zstd.SpeedDefault),
		)
	default:
		err = robocache.Unsupported("mcap write", nil, "compression %s", opt.Compression.String())
	}
	if err != nil {
		return nil, err
	}
	if w.records,
		err = foxglove.NewWriter(&w.body, &foxglove.WriterOptions{SkipMagic: true}); err != nil {
		return nil, err
	}
	if w.file, err = foxglove.NewWriter(out,
		&foxglove.WriterOptions{IncludeCRC: true, OverrideLibrary: true}); err != nil {
		return nil, err
	}
	return w, w.file.WriteHeader(&foxglove.Header{Profile: opt.Profile, Library: opt.Library})
}

// nextID returns the next number of a schema or channel. Numbers have 16 bits and begin at 1,
// because rosbags treats channel 0 as none and omits its messages.
func nextID(n *int, what string) (uint16, error) {
	if *n >= 65535 {
		return 0, robocache.ResourceLimit("mcap write", nil, "").
			Expected("at most 65,535 "+what, "more")
	}
	*n++
	return uint16(*n), nil
}

// Schema adds a schema and returns its number.
func (w *Writer) Schema(name, encoding, text string) (uint16, error) {
	id, err := nextID(&w.schemas, "schemas")
	if err != nil {
		return 0, err
	}
	s := &foxglove.Schema{ID: id, Name: name, Encoding: encoding, Data: []byte(text)}
	w.file.AddSchema(s)
	return id, w.records.WriteSchema(s)
}

// Channel adds a channel and returns its number.
func (w *Writer) Channel(
	schema uint16,
	topic, encoding string,
	metadata map[string]string,
) (uint16, error) {
	id, err := nextID(&w.channels, "channels")
	if err != nil {
		return 0, err
	}
	c := &foxglove.Channel{
		ID:              id,
		SchemaID:        schema,
		Topic:           topic,
		MessageEncoding: encoding,
		Metadata:        metadata,
	}
	w.file.AddChannel(c)
	return id, w.records.WriteChannel(c)
}

// Message adds a message. Its data is copied.
func (w *Writer) Message(m *Message) error {
	if m.Log < 0 || m.Publish < 0 {
		return robocache.Unsupported("mcap write", nil, "a time before the epoch").
			Expected("0 or more", fmt.Sprint(min(m.Log, m.Publish)))
	}
	log := uint64(m.Log)
	if len(w.index) == 0 {
		w.from, w.to = log, log
	}
	w.from, w.to = min(w.from, log), max(w.to, log)
	if stats := w.file.Statistics; stats.MessageCount == 0 {
		w.start = log
	}
	w.start = min(w.start, log)
	ix := w.index[m.Channel]
	if ix == nil {
		ix = &foxglove.MessageIndex{ChannelID: m.Channel}
		w.index[m.Channel] = ix
	}
	ix.Add(log, uint64(w.body.Len()))
	w.file.Statistics.MessageCount++
	w.file.Statistics.ChannelMessageCounts[m.Channel]++
	err := w.records.WriteMessage(
		&foxglove.Message{
			ChannelID:   m.Channel,
			Sequence:    m.Sequence,
			LogTime:     log,
			PublishTime: uint64(m.Publish),
			Data:        m.Data,
		},
	)
	if err == nil && w.body.Len() >= w.options.Chunk {
		err = w.Flush()
	}
	return err
}

// Flush writes the messages so far as a chunk with its message indexes.
func (w *Writer) Flush() error {
	body := w.body.Bytes()
	k := foxglove.Chunk{
		MessageStartTime: w.from,
		MessageEndTime:   w.to,
		UncompressedSize: uint64(len(body)),
		UncompressedCRC:  crc32.ChecksumIEEE(body),
		Compression:      w.options.Compression.String(),
		Records:          body,
	}
	if w.encoder != nil {
		w.compressed = w.encoder.EncodeAll(body, w.compressed[:0])
		k.Records = w.compressed
	}
	var list []*foxglove.MessageIndex
	for _, id := range slices.Sorted(maps.Keys(w.index)) {
		slices.SortStableFunc(
			w.index[id].Entries(),
			func(a, b foxglove.MessageIndexEntry) int {
				return cmp.Compare(a.Timestamp, b.Timestamp)
			},
		)
		list = append(list, w.index[id])
	}
	err := w.file.WriteChunkWithIndexes(&k, list)
	w.body.Reset()
	clear(w.index)
	w.from, w.to = 0, 0
	return err
}

// Metadata writes a metadata record.
func (w *Writer) Metadata(name string, values map[string]string) error {
	if err := w.Flush(); err != nil {
		return err
	}
	return w.file.WriteMetadata(&foxglove.Metadata{Name: name, Metadata: values})
}

// Close writes the last chunk, the summary and the footer. It does not close the underlying writer.
func (w *Writer) Close() error {
	if err := w.Flush(); err != nil {
		return err
	}
	if w.encoder != nil {
		defer w.encoder.Close()
	}
	w.file.Statistics.MessageStartTime = w.start // WriteChunkWithIndexes treats time 0 as none
	return w.file.Close()
}

// Bytes returns the number of written bytes.
func (w *Writer) Bytes() int64 { return int64(w.file.Offset()) }
