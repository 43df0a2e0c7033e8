package rlds

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
	"google.golang.org/protobuf/encoding/protowire"
)

// appendRecord appends a record with its check sums.
func appendRecord(dst, data []byte) []byte {
	le := binary.LittleEndian
	at := len(dst)
	dst = le.AppendUint64(dst, uint64(len(data)))
	dst = le.AppendUint32(dst, maskedCRC(dst[at:]))
	dst = append(dst, data...)
	return le.AppendUint32(dst, maskedCRC(data))
}

// exampleWriter collects the features of one tf.train.Example.
type exampleWriter struct {
	features map[string][]byte // name → Feature
}

func newExample() *exampleWriter { return &exampleWriter{features: map[string][]byte{}} }

// put sets a feature: kind is the kind of its list, and body the message of the list.
func (w *exampleWriter) put(name string, kind listKind, body []byte) {
	w.features[name] = appendBytes(make([]byte, 0, len(body)+12), int(kind), body)
}

// appendBytes appends a field that is a byte string.
func appendBytes(b []byte, num int, v []byte) []byte {
	return protowire.AppendBytes(
		protowire.AppendTag(b, protowire.Number(num), protowire.BytesType),
		v,
	)
}

// floats sets a feature of little-endian float32 values.
func (w *exampleWriter) floats(name string, values []byte) {
	w.put(name, floatList, packedField(values))
}

// packedField returns the packed field value(1), or nil for an empty list.
func packedField(run []byte) []byte {
	if len(run) == 0 {
		return nil
	}
	return appendBytes(make([]byte, 0, len(run)+12), 1, run)
}

// ints sets a feature of integers.
func (w *exampleWriter) ints(name string, values []int64) {
	run := make([]byte, 0, len(values)*2)
	for _, v := range values {
		run = binary.AppendUvarint(run, uint64(v))
	}
	w.put(name, intList, packedField(run))
}

// strings sets a feature of byte strings.
func (w *exampleWriter) strings(name string, values [][]byte) {
	n := 0
	for _, v := range values {
		n += len(v) + 11
	}
	body := make([]byte, 0, n)
	for _, v := range values {
		body = appendBytes(body, 1, v)
	}
	w.put(name, bytesList, body)
}

// maxMessage is the limit of protobuf: 2 GiB less one byte.
const maxMessage = 1<<31 - 1

// bytes returns the example with its features sorted by name, so that the same episode gives the
// same bytes.
func (w *exampleWriter) bytes() ([]byte, error) {
	names := slices.Sorted(maps.Keys(w.features))
	total := 0
	entry := func(name string) int { // the tags below have one byte each
		return 2 + protowire.SizeBytes(len(name)) + protowire.SizeBytes(len(w.features[name]))
	}
	for _, n := range names {
		total += 1 + protowire.SizeBytes(entry(n))
	}
	if total > maxMessage-16 {
		return nil, robocache.ResourceLimit("write rlds", nil, "").
			Expected(
				"an episode of less than 2 GiB, the limit of a protobuf message",
				fmt.Sprintf("%d bytes", total),
			)
	}
	head := func(b []byte, size int) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(size))
	}
	b := head(make([]byte, 0, total+12), total)
	for _, n := range names {
		b = appendBytes(appendBytes(head(b, entry(n)), 1, []byte(n)), 2, w.features[n])
	}
	return b, nil
}
