package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
)

// ReadRun reads whole passes as a reader of a dataset goes: every row in order, in batches, from a dataset that was opened anew; or Count windows of half a
// second at random, over and over.
func ReadRun(ctx context.Context, w Workload, marks io.Writer) (o Outcome, err error) {
	pass := func(ds robocache.Dataset) (n int64, err error) {
		if w.Count == 0 {
			return readRows(ctx, ds, w.BatchSize)
		}
		rng := rand.New(rand.NewPCG(2, 0))
		for range w.Count {
			times, err := ds.Times(ctx, 0, w.Key)
			if err != nil {
				return n, err
			}
			from := times[0] + rng.Int64N(times[len(times)-1]-times[0]-5e8)
			lo, _ := slices.BinarySearch(times, from)
			var rows []robocache.Row
			for i := lo; i < len(times) && times[i] < from+5e8; i++ {
				rows = append(rows, robocache.Row{Index: i})
			}
			if err := ds.Gather(ctx, w.Key, rows, make([]byte, len(rows)*ds.Info().Feature(w.Key).RowBytes())); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	held := make([]byte, 128<<20) // a training process holds batches: with an empty heap the collector would run every few frames
	ds, err := w.open(ctx)
	if err == nil {
		_, err = pass(ds)
	}
	fmt.Fprintln(marks, lineOpen)
	for begin := time.Now(); err == nil && (o.Samples == 0 || time.Since(begin).Seconds() < w.Seconds); {
		if w.Count == 0 {
			ds.Close()
			if ds, err = w.open(ctx); err != nil {
				break
			}
		}
		cpu, start := selfCPU(), time.Now()
		var n int64
		n, err = pass(ds)
		o.Samples, o.Seconds, o.CPUSeconds = o.Samples+n, o.Seconds+time.Since(start).Seconds(), o.CPUSeconds+selfCPU()-cpu
	}
	fmt.Fprintln(marks, lineClose)
	if ds != nil {
		ds.Close()
	}
	_ = held[len(held)-1]
	return o, err
}

// readRows reads every stream of every row once.
func readRows(ctx context.Context, ds robocache.Dataset, batch int) (int64, error) {
	var rows []robocache.Row
	for e := range ds.Info().Episodes {
		for i := range ds.Len(e) {
			rows = append(rows, robocache.Row{Episode: e, Index: i})
		}
	}
	leaser, _ := ds.(robocache.FrameLeaser)
	refs, n := make([]robocache.FrameRef, batch), int64(0)
	for lo := 0; lo+batch <= len(rows) || lo == 0; lo += batch {
		part := rows[lo:min(lo+batch, len(rows))]
		for i := range ds.Info().Features {
			f := &ds.Info().Features[i]
			switch {
			case f.Kind == robocache.KindImage && leaser != nil:
				done, err := leaser.LeaseFrames(ctx, f.Key, part, refs[:len(part)])
				if err != nil {
					return n, err
				}
				if done != nil {
					done()
				}
			case f.Kind == robocache.KindImage:
				if err := ds.Frames(ctx, f.Key, part, refs[:len(part)]); err != nil {
					return n, err
				}
			case f.Kind == robocache.KindNumeric && !f.Default:
				if err := ds.Gather(ctx, f.Key, part, make([]byte, len(part)*f.RowBytes())); err != nil {
					return n, err
				}
			}
		}
		n += int64(len(part))
	}
	return n, nil
}

// MessagesRun decodes ROS 2 payloads of a file, which lie in memory, to columns. Key is their type.
func MessagesRun(_ context.Context, w Workload, marks io.Writer) (o Outcome, err error) {
	data, err := os.ReadFile(w.URI)
	if err != nil {
		return o, robocache.At(err, robocache.Where{"file": w.URI})
	}
	var messages [][]byte
	for len(data) > 4 {
		n := binary.LittleEndian.Uint32(data)
		messages, data = append(messages, data[4:4+n]), data[4+n:]
	}
	schema, _ := ros2.KnownSchema(w.Key)
	topic, err := ros2.NewTopic("/t", schema, messages[:1])
	if err != nil {
		return o, err
	}
	var fields []int
	var columns [][]byte
	var valid [][]uint8
	for k, f := range topic.Fields() {
		if b := f.Feature.RowBytes(); b > 0 {
			fields, columns, valid = append(fields, k), append(columns, make([]byte, len(messages)*b)), append(valid, make([]uint8, len(messages)))
		}
	}
	timestamps := make([]int64, len(messages))
	once := func() (err error) {
		for k, m := range messages {
			if timestamps[k], _, err = topic.Timestamp(m); err != nil {
				return err
			}
		}
		_, err = topic.Columns(messages, nil, fields, columns, valid)
		return err
	}
	if err := once(); err != nil {
		return o, err
	}
	values := sha256.New()
	_ = binary.Write(values, binary.LittleEndian, timestamps)
	values.Write(bytes.Join(columns, nil))
	o.Values = hex.EncodeToString(values.Sum(nil))
	err = o.window(marks, func() error {
		for start := time.Now(); o.Samples == 0 || time.Since(start).Seconds() < w.Seconds; o.Samples += int64(len(messages)) {
			if err := once(); err != nil {
				return err
			}
		}
		return nil
	})
	return o, err
}
