package edit

import (
	"context"
	"encoding/binary"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
)

func (v *planDataset) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	f := v.info.Feature(key)
	if f == nil {
		return misuse(
			robocache.Where{"stream": key},
			"no such feature",
			robocache.Nearest(key, v.info.Keys()),
		)
	}
	if c := v.addedColumns[key]; c != nil {
		if err := c.gatherRows(v, rows, dst); err != nil {
			return err
		}
		return nil
	}
	size := f.RowBytes()
	readRun := func(source int, name string, rows []robocache.Row, at int) error {
		part := dst[at*size : (at+len(rows))*size]
		if name == "" {
			clear(part)
			if v.plan.Keys[v.keyIndexes[key]].Ones {
				v.fillPresence(strings.TrimSuffix(key, robocache.ValidSuffix), source, part)
			}
			return nil
		}
		if err := v.srcs[source].Gather(ctx, name, rows, part); err != nil {
			return err
		}
		if i, ok := v.keyIndexes[key]; ok && len(v.plan.Keys[i].Order) > source {
			permuteChannels(part, size, f.DType.Size(), v.plan.Keys[i].Order[source])
		}
		return nil
	}
	if err := v.eachSourceRun(ctx, key, rows, readRun); err != nil {
		return err
	}
	switch {
	case v.isRecordings && key == write.RowClock:
		for i, r := range rows { // rows are numbered from 0
			entry, err := v.planEpisode(r.Episode)
			if err != nil {
				return err
			}
			n := binary.LittleEndian.Uint64(dst[8*i:]) - uint64(entry.From)
			binary.LittleEndian.PutUint64(dst[8*i:], n)
		}
	case f.Default && key == "timestamp":
		if err := v.restartTimestamps(ctx, f, rows, dst); err != nil {
			return err
		}
	case strings.HasPrefix(key, "annotation.") && f.DType == robocache.Int64 && f.Scalar():
		if err := v.renumberTasks(rows, dst); err != nil {
			return err
		}
	}
	return nil
}

// fillPresence fills a mask that a source lacks: with ones if the source has the stream.
func (v *planDataset) fillPresence(key string, source int, dst []byte) {
	if i, ok := v.keyIndexes[key]; ok && v.plan.Keys[i].From[source] != "" {
		for k := range dst {
			dst[k] = 1
		}
	}
}

// permuteChannels puts the channels of rows into another order.
func permuteChannels(rows []byte, size, element int, order []int) {
	if order == nil {
		return
	}
	old := make([]byte, size)
	for ; len(rows) >= size; rows = rows[size:] {
		copy(old, rows)
		for to, from := range order {
			copy(rows[to*element:(to+1)*element], old[from*element:])
		}
	}
}

// restartTimestamps shifts the timestamps of trimmed episodes so that they start at the same time
// as before.
func (v *planDataset) restartTimestamps(
	ctx context.Context,
	f *robocache.Feature,
	rows []robocache.Row,
	dst []byte,
) error {
	size := f.DType.Size()
	for i, r := range rows {
		p, err := v.planEpisode(r.Episode)
		if err != nil {
			return err
		}
		if p.From == 0 || f.DType != robocache.Float32 && f.DType != robocache.Float64 {
			continue
		}
		raw := make([]byte, 2*size)
		err = v.srcs[p.Source].Gather(ctx, f.Key,
			[]robocache.Row{{Episode: p.Episode, Index: 0}, {Episode: p.Episode, Index: p.From}},
			raw)
		if err != nil {
			return err
		}
		first := robocache.Float64s(nil, f.DType, raw)
		was := robocache.Float64s(nil, f.DType, dst[i*size:(i+1)*size])[0]
		if now := was - first[1] + first[0]; f.DType == robocache.Float32 {
			binary.LittleEndian.PutUint32(dst[i*size:], math.Float32bits(float32(now)))
		} else {
			binary.LittleEndian.PutUint64(dst[i*size:], math.Float64bits(now))
		}
	}
	return nil
}

// GatherRagged reads from the sources.
func (v *planDataset) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (data []byte, counts []int, err error) {
	readRun := func(source int, name string, rows []robocache.Row, _ int) error {
		if name == "" {
			counts = append(counts, make([]int, len(rows))...)
			return nil
		}
		b, n, err := robocache.GatherRagged(ctx, v.srcs[source], name, rows)
		if err != nil {
			return err
		}
		data, counts = append(data, b...), append(counts, n...)
		return nil
	}
	if err := v.eachSourceRun(ctx, key, rows, readRun); err != nil {
		return data, counts, err
	}
	return data, counts, nil
}

// Valid reads from the sources. If a source lacks the stream, no row is valid.
func (v *planDataset) Valid(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	valid []uint8,
) (err error) {
	readRun := func(source int, name string, rows []robocache.Row, at int) error {
		part := valid[at : at+len(rows)]
		if name == "" {
			clear(part)
			return nil
		}
		return robocache.Valid(ctx, v.srcs[source], name, rows, part)
	}
	if err := v.eachSourceRun(ctx, key, rows, readRun); err != nil {
		return err
	}
	return nil
}
