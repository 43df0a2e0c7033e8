package rlds

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
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

// put sets a feature: kind is the list, body the list's message.
func (w *exampleWriter) put(name string, kind listKind, body []byte) {
	b := make([]byte, 0, len(body)+12)
	b = append(b, byte(kind)<<3|wireLen)
	b = binary.AppendUvarint(b, uint64(len(body)))
	w.features[name] = append(b, body...)
}

// floats sets little-endian float32 values.
func (w *exampleWriter) floats(name string, values []byte) {
	w.put(name, floatList, packed(values))
}

// packed is the field value(1), packed; an empty list has none.
func packed(run []byte) []byte {
	if len(run) == 0 {
		return nil
	}
	b := make([]byte, 0, len(run)+12)
	b = append(b, 1<<3|wireLen)
	b = binary.AppendUvarint(b, uint64(len(run)))
	return append(b, run...)
}

func (w *exampleWriter) ints(name string, values []int64) {
	run := make([]byte, 0, len(values)*2)
	for _, v := range values {
		run = binary.AppendUvarint(run, uint64(v))
	}
	w.put(name, intList, packed(run))
}

// strings sets byte strings.
func (w *exampleWriter) strings(name string, values [][]byte) {
	n := 0
	for _, v := range values {
		n += len(v) + 11
	}
	body := make([]byte, 0, n)
	for _, v := range values {
		body = append(body, 1<<3|wireLen)
		body = binary.AppendUvarint(body, uint64(len(v)))
		body = append(body, v...)
	}
	w.put(name, bytesList, body)
}

// maxMessage is what protobuf takes: 2 GiB less one byte.
const maxMessage = 1<<31 - 1

// bytes is the example, features by name: the same episode gives the same bytes.
func (w *exampleWriter) bytes() ([]byte, error) {
	names := slices.Sorted(maps.Keys(w.features))
	total := 0
	size := func(n int) int { return len(binary.AppendUvarint(nil, uint64(n))) }
	entry := func(name string) int {
		f := w.features[name]
		return 1 + size(len(name)) + len(name) + 1 + size(len(f)) + len(f)
	}
	for _, n := range names {
		e := entry(n)
		total += 1 + size(e) + e
	}
	if total > maxMessage-16 {
		return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "write rlds", Want: "an episode of less than 2 GiB, the most that a protobuf message holds", Got: fmt.Sprintf("%d bytes", total)}
	}
	field := func(b []byte, number, size int) []byte {
		return binary.AppendUvarint(append(b, byte(number)<<3|wireLen), uint64(size))
	}
	b := field(make([]byte, 0, total+12), 1, total)
	for _, n := range names {
		f := w.features[n]
		b = field(b, 1, entry(n))
		b = append(field(b, 1, len(n)), n...)
		b = append(field(b, 2, len(f)), f...)
	}
	return b, nil
}
