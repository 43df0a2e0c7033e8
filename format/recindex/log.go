package recindex

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Name is the name of the index at the root of a dataset.
const Name = store.RecordingIndex

// A log begins with magic and a random identity. Each record is its length (uint32), the checksum
// of length and body (CRC-32C, uint32), and the body, whose first byte is the kind.
const (
	magic        = "RCRECS1\n"
	identitySize = 16
	headerSize   = len(magic) + identitySize
	recordHead   = 8

	sharedKind  = 1 // number of the block, bytes
	entryKind   = 2 // sequence, part, name, size, version, shared blocks, payload
	removedKind = 3 // sequence, part, name

	maxRecord = 64 << 20
	maxLog    = 4 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordKey identifies what a record describes: a part of the format, such as the head of a
// recording, and the name of the recording.
type recordKey struct{ part, name string }

// record is the newest record of a key.
type record struct {
	sequence  int64
	size      int64
	version   string
	isRemoved bool
	bytes     int64  // of the record in the log
	body      []byte // shared blocks and payload, as encoded; aliases the file
}

// Payload is the content of a record.
type Payload struct {
	// Shared lists blocks that many records have in common.
	Shared [][]byte
	// IDs are the numbers of the shared blocks in the log. Equal numbers mean equal blocks. It is
	// nil in a payload that was not read from a log.
	IDs []int64
	Own []byte
}

// Log is the content of an index. It does not change after it was loaded.
type Log struct {
	// Path is the file that was loaded.
	Path     string
	identity string
	shared   [][]byte
	records  map[recordKey]record
	sequence int64 // number of the last record
	end      int64 // bytes that count
	dead     int64 // bytes of records that newer ones override
}

// Position is a place in a log. The zero Position is the beginning.
type Position struct {
	Log      string `json:"log"`      // identity of the log
	Sequence int64  `json:"sequence"` // number of the last record that was seen
}

// Change is the newest record of a recording.
type Change struct {
	Sequence int64  `json:"sequence"`
	Name     string `json:"name"` // of the recording, relative to the dataset
	Size     int64  `json:"size"`
	Version  string `json:"version"` // size and modification time, ETag or generation
	Removed  bool   `json:"removed,omitempty"`
}

// newLog returns an empty log.
func newLog() *Log {
	id := make([]byte, identitySize)
	_, _ = rand.Read(id) // never fails
	return &Log{
		identity: hex.EncodeToString(id),
		records:  map[recordKey]record{},
		end:      int64(headerSize),
	}
}

// header returns the first bytes of the file.
func (l *Log) header() []byte {
	id, _ := hex.DecodeString(l.identity)
	return append([]byte(magic), id...)
}

// parseLog parses a log. It returns an error only if the file does not begin as a log does.
func parseLog(b []byte) (*Log, error) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return nil, robocache.Malformed("index", nil, "the file is not an index of recordings").
			WithHint("Delete the file, and run %s.", robocache.Command("index URI"))
	}
	l := &Log{
		identity: hex.EncodeToString(b[len(magic):headerSize]),
		records:  make(map[recordKey]record, len(b)/200),
		end:      int64(headerSize),
	}
	for l.parseRecord(b[l.end:]) {
	}
	return l, nil
}

// parseRecord applies the record at the beginning of b. It returns false if there is none.
func (l *Log) parseRecord(b []byte) bool {
	if len(b) < recordHead {
		return false
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > maxRecord || int64(n) > int64(len(b)-recordHead) {
		return false
	}
	body := b[recordHead : recordHead+int(n)]
	if recordSum(b[:4], body) != binary.LittleEndian.Uint32(b[4:]) {
		return false
	}
	size := int64(recordHead) + int64(n)
	if !l.applyBody(body, size) {
		return false
	}
	l.end += size
	return true
}

// recordSum returns the checksum of a record.
func recordSum(length, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, body)
}

// applyBody applies a record of size bytes. It returns false if the record breaks the format.
func (l *Log) applyBody(body []byte, size int64) bool {
	kind, c := body[0], NewCursor(body[1:])
	if kind == sharedKind {
		if c.Number() != int64(len(l.shared)) || c.Err() != nil {
			return false
		}
		l.shared = append(l.shared, c.Rest())
		return true
	}
	r := record{sequence: c.Number(), isRemoved: kind == removedKind, bytes: size}
	key := recordKey{part: c.Text(), name: c.Text()}
	if kind == entryKind {
		r.size, r.version = c.Number(), c.Text()
		r.body = c.Rest()
		for range c.Count() {
			if c.Number() >= int64(len(l.shared)) {
				return false
			}
		}
	} else if kind != removedKind {
		return false
	}
	if c.Err() != nil || r.sequence <= l.sequence || key.name == "" {
		return false
	}
	l.dead += l.records[key].bytes
	l.sequence, l.records[key] = r.sequence, r
	return true
}

// payload decodes the payload of a record.
func (l *Log) payload(r *record) Payload {
	c := NewCursor(r.body)
	var p Payload
	for range c.Count() {
		id := c.Number()
		if id >= int64(len(l.shared)) {
			return Payload{} // applyBody has checked it
		}
		p.IDs = append(p.IDs, id)
		p.Shared = append(p.Shared, l.shared[id])
	}
	p.Own = c.Rest()
	return p
}

// appendRecord appends a record to a log.
func appendRecord(b, body []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	sum := recordSum(b[len(b)-4:], body)
	return append(binary.LittleEndian.AppendUint32(b, sum), body...)
}

// logEncoder encodes records that follow a log.
type logEncoder struct {
	out      []byte
	blocks   map[string]int64 // shared blocks by content
	sequence int64
}

// newEncoder returns an encoder that continues after l.
func newEncoder(l *Log) *logEncoder {
	e := &logEncoder{blocks: make(map[string]int64, len(l.shared)), sequence: l.sequence}
	for id, b := range l.shared {
		e.blocks[string(b)] = int64(id)
	}
	return e
}

// addEntry encodes a record with a payload. It returns false if the payload is too large.
func (e *logEncoder) addEntry(key recordKey, size int64, version string, p *Payload) bool {
	total := len(p.Own) + len(key.name) + len(version)
	for _, block := range p.Shared {
		total += len(block)
	}
	if total > maxRecord/2 {
		return false
	}
	ids := binary.AppendUvarint(nil, uint64(len(p.Shared)))
	for _, block := range p.Shared {
		id, ok := e.blocks[string(block)]
		if !ok {
			id = int64(len(e.blocks))
			e.blocks[string(block)] = id
			body := binary.AppendUvarint([]byte{sharedKind}, uint64(id))
			e.out = appendRecord(e.out, append(body, block...))
		}
		ids = binary.AppendUvarint(ids, uint64(id))
	}
	e.sequence++
	e.putEntry(e.sequence, key, size, version, append(ids, p.Own...))
	return true
}

// putEntry encodes a record whose shared blocks are numbered already.
func (e *logEncoder) putEntry(
	sequence int64, key recordKey, size int64, version string, content []byte,
) {
	body := AppendNumber([]byte{entryKind}, sequence)
	body = AppendText(AppendText(body, key.part), key.name)
	body = AppendText(AppendNumber(body, size), version)
	e.out = appendRecord(e.out, append(body, content...))
}

// putRemoval encodes the removal of a recording.
func (e *logEncoder) putRemoval(sequence int64, key recordKey) {
	body := AppendNumber([]byte{removedKind}, sequence)
	e.out = appendRecord(e.out, AppendText(AppendText(body, key.part), key.name))
}

// compacted returns the log without the records that newer ones override, and without the shared
// blocks that no record uses.
func (l *Log) compacted() []byte {
	e := &logEncoder{blocks: map[string]int64{}, out: l.header()}
	for _, key := range l.sortedKeys(0) {
		r := l.records[key]
		if r.isRemoved {
			e.putRemoval(r.sequence, key)
			continue
		}
		p := l.payload(&r)
		e.sequence = r.sequence - 1
		e.addEntry(key, r.size, r.version, &p)
	}
	return e.out
}

// sortedKeys returns the keys of the records after a sequence number, in the order of the log.
func (l *Log) sortedKeys(after int64) []recordKey {
	keys := slices.Collect(maps.Keys(l.records))
	keys = slices.DeleteFunc(keys, func(k recordKey) bool { return l.records[k].sequence <= after })
	slices.SortFunc(keys, func(a, b recordKey) int {
		return cmp.Compare(l.records[a].sequence, l.records[b].sequence)
	})
	return keys
}

// Position returns the end of the log.
func (l *Log) Position() Position { return Position{Log: l.identity, Sequence: l.sequence} }

// Len returns the number of records that count, without removals.
func (l *Log) Len() (n int) {
	for _, r := range l.records {
		if !r.isRemoved {
			n++
		}
	}
	return n
}

// Changes returns the newest record of each recording after a position, in the order of the log,
// and the position of the end. If the position belongs to another log, the error is ErrChanged of
// package store: the index was made again, and the caller must begin with the zero Position.
func (l *Log) Changes(from Position) (changes []Change, end Position, err error) {
	if from.Log != "" && from.Log != l.identity || from.Sequence > l.sequence {
		return nil, Position{}, robocache.Temporary("index", robocache.Where{"file": l.Path},
			"the position belongs to another index").
			WithCause(store.ErrChanged).WithHint("The index was made again: begin at its start.")
	}
	for _, key := range l.sortedKeys(from.Sequence) {
		r := l.records[key]
		changes = append(changes, Change{
			Sequence: r.sequence,
			Name:     key.name,
			Size:     r.size,
			Version:  r.version,
			Removed:  r.isRemoved,
		})
	}
	return changes, l.Position(), nil
}

// Load reads an index. path is a local path or a URI of the file. A missing file is ErrNotFound.
func Load(ctx context.Context, path string) (l *Log, err error) {
	defer robocache.LocateIn(&err, "file", robocache.Redact(path))
	folder, name := store.Above(path)
	s, err := store.OpenFor(folder, robocache.OpenOptions{FollowLinks: true})
	if err != nil {
		return nil, err
	}
	defer store.Close(s)
	return loadFrom(ctx, s, name, robocache.Redact(path))
}

// loadFrom reads the index in a store.
func loadFrom(ctx context.Context, s store.Store, name, path string) (*Log, error) {
	b, err := store.ReadFile(ctx, s, name, maxLog)
	if err != nil {
		return nil, err
	}
	l, err := parseLog(b)
	if err != nil {
		return nil, err
	}
	l.Path = path
	return l, nil
}
