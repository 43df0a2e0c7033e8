package main

import (
	"encoding/binary"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// textWriter encodes the text columns of a batch as described in robocache.h. Each distinct text is
// written once, because rows of one episode share their task. Its memory is reused for the next
// batch.
type textWriter struct {
	out      []byte
	codes    []int32
	distinct []string
	known    map[string]int32
}

func (w *textWriter) write(b *loader.Batch) (err error) {
	w.out = w.out[:0]
	for i := range b.Texts {
		if err := w.writeColumn(b.Texts[i].Values); err != nil {
			return err
		}
	}
	return nil
}

func (w *textWriter) writeColumn(values []string) error {
	w.codes, w.distinct = w.codes[:0], w.distinct[:0]
	if w.known == nil {
		w.known = map[string]int32{}
	}
	clear(w.known)
	size, last := 0, int32(-1)
	for _, v := range values {
		if last < 0 || w.distinct[last] != v {
			code, ok := w.known[v]
			if !ok {
				code = int32(len(w.distinct))
				w.known[v] = code
				w.distinct = append(w.distinct, v)
				size += len(v)
			}
			last = code
		}
		w.codes = append(w.codes, last)
	}
	if size > 1<<30 {
		return robocache.ResourceLimit("loader", nil, "the texts of a batch take %d bytes", size).
			Expected("at most 1 GiB", "").WithHint("a smaller batch_size")
	}
	w.writeInt32(int32(len(w.distinct)))
	w.writeInt32(int32(size))
	for _, v := range w.distinct {
		w.writeInt32(int32(len(v)))
	}
	if len(w.distinct) > 1 {
		for _, c := range w.codes {
			w.writeInt32(c)
		}
	}
	for _, v := range w.distinct {
		w.out = append(w.out, v...)
	}
	for len(w.out)%4 != 0 {
		w.out = append(w.out, 0)
	}
	return nil
}

func (w *textWriter) writeInt32(
	v int32,
) {
	w.out = binary.LittleEndian.AppendUint32(w.out, uint32(v))
}
