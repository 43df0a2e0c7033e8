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
		return c.gatherRows(v, rows, dst)
	}
	size := f.RowBytes()
	readRun := func(source int, name string, rows []robocache.Row, at int) error {
		part := dst[at*size : (at+len(rows))*size]
		return v.gatherSource(ctx, f, source, name, rows, part)
	}
	if err := v.eachSourceRun(ctx, key, rows, readRun); err != nil {
		return err
	}
	switch {
	case v.isRecordings && key == write.RowClock:
		return v.restartRowClock(rows, dst)
	case f.Default && key == "timestamp":
		return v.restartTimestamps(ctx, f, rows, dst)
	case holdsTaskNumbers(f):
		return v.renumberTasks(rows, dst)
	}
	return nil
}

// gatherSource reads rows of a source into dst. name is the key in the source; if it is empty, the
// source lacks the feature f.
func (v *planDataset) gatherSource(
	ctx context.Context,
	f *robocache.Feature,
	source int,
	name string,
	rows []robocache.Row,
	dst []byte,
) error {
	i, ok := v.keyIndexes[f.Key]
	if name == "" {
		clear(dst)
		if v.plan.Keys[i].Ones {
			v.fillPresence(strings.TrimSuffix(f.Key, robocache.ValidSuffix), source, dst)
		}
		return nil
	}
	if err := v.srcs[source].Gather(ctx, name, rows, dst); err != nil {
		return err
	}
	if ok && len(v.plan.Keys[i].Order) > source {
		permuteChannels(dst, f.RowBytes(), f.DType.Size(), v.plan.Keys[i].Order[source])
	}
	return nil
}

// restartRowClock makes the row numbers of a recording start at 0 in each episode.
func (v *planDataset) restartRowClock(rows []robocache.Row, dst []byte) error {
	for i, r := range rows {
		entry, err := v.planEpisode(r.Episode)
		if err != nil {
			return err
		}
		n := binary.LittleEndian.Uint64(dst[8*i:]) - uint64(entry.From)
		binary.LittleEndian.PutUint64(dst[8*i:], n)
	}
	return nil
}

// fillPresence fills the mask column of a source that does not store it. It sets ones if the source
// has the stream key, and leaves zeros otherwise.
func (v *planDataset) fillPresence(key string, source int, dst []byte) {
	if i, ok := v.keyIndexes[key]; ok && v.plan.Keys[i].From[source] != "" {
		for k := range dst {
			dst[k] = 1
		}
	}
}

// permuteChannels puts the channels of rows into the order of Key.Order. size is the number of
// bytes of a row, and element that of a channel.
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

// restartTimestamps shifts the timestamps of trimmed episodes so that their first row has the
// timestamp of the first row in the source.
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
		now := was - first[1] + first[0]
		if f.DType == robocache.Float32 {
			binary.LittleEndian.PutUint32(dst[i*size:], math.Float32bits(float32(now)))
		} else {
			binary.LittleEndian.PutUint64(dst[i*size:], math.Float64bits(now))
		}
	}
	return nil
}

// GatherRagged returns the values of rows in their sources. If a source lacks the stream, its rows
// are empty.
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
		data = append(data, b...)
		counts = append(counts, n...)
		return nil
	}
	if err := v.eachSourceRun(ctx, key, rows, readRun); err != nil {
		return data, counts, err
	}
	return data, counts, nil
}

// Valid reports which rows are valid in their sources. If a source lacks the stream, none of its
// rows is valid.
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
	return v.eachSourceRun(ctx, key, rows, readRun)
}
