package lerobot

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// maxMoves bounds how often a caller asks again after proof found rows elsewhere: once a file is enough.
const maxMoves = 3

// Gather copies rows of a numeric feature into dst. Neighbouring rows are copied in one piece.
func (d *Dataset) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) (err error) {
	defer guard.Malformed("lerobot gather", &err)
	c, err := d.get(key, robocache.KindNumeric)
	if err != nil {
		return err
	}
	size := c.rowBytes
	if len(dst) != len(rows)*size {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "lerobot gather", Where: robocache.Where{"stream": key}, Want: fmt.Sprintf("%d bytes for %d rows", len(rows)*size, len(rows)), Got: fmt.Sprint(len(dst))}
	}
	d.warm(ctx, c, c.num, rows, c.decode(d.limit))
	var s span
	s.file = -1
	for i := 0; i < len(rows); {
		n, err := d.run(rows[i:])
		if err != nil {
			return err
		}
		if c.src == derived {
			if err := d.derive(c, rows[i:i+n], dst[i*size:(i+n)*size]); err != nil {
				return err
			}
			i += n
			continue
		}
		file, start := d.tab.fileOf(rows[i].Episode)
		at := start + int64(rows[i].Index)
		if s.file != file || at < s.start || at >= s.end {
			if s, start, err = d.unitOf(ctx, c, c.num, rows[i].Episode, rows[i].Index, c.decode(d.limit)); err != nil {
				return err
			}
			at = start + int64(rows[i].Index)
		}
		n = min(n, int(s.end-at))
		src := s.value.([]byte)
		from := int(at-s.start) * size
		copy(dst[i*size:(i+n)*size], src[from:from+n*size])
		i += n
	}
	return nil
}

// run says how many rows from the first on follow each other in one episode, and checks that they are there.
func (d *Dataset) run(rows []robocache.Row) (int, error) {
	r := rows[0]
	if r.Episode < 0 || r.Episode >= d.eps.n() {
		return 0, d.checkEpisode(r.Episode)
	}
	length := int(d.eps.length[r.Episode])
	if r.Index < 0 || r.Index >= length {
		return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: "lerobot", Where: robocache.Where{"episode": d.eps.id(r.Episode), "row": r.Index}, Want: fmt.Sprintf("a row from 0 to %d", length-1), Got: fmt.Sprint(r.Index)}
	}
	n := 1
	for n < len(rows) && rows[n].Episode == r.Episode && rows[n].Index == r.Index+n && rows[n].Index < length {
		n++
	}
	return n, nil
}

// unitOf locates a row and loads its unit. start is the episode's first row in the file, as it was found with: another goroutine's proof may move it.
func (d *Dataset) unitOf(ctx context.Context, c *column, num int32, episode, row int, read reader) (s span, start int64, err error) {
	return d.locate(c, episode, func(file int32, start int64) (span, error) {
		return d.tab.load(ctx, file, start+int64(row), num, read)
	})
}

// locate calls load with the file of an episode and its first row there, again where proof moved it.
func (d *Dataset) locate(c *column, episode int, load func(file int32, start int64) (span, error)) (span, int64, error) {
	for try := 0; ; try++ {
		file, start := d.tab.fileOf(episode)
		s, err := load(file, start)
		if err == nil {
			if _, again := d.tab.fileOf(episode); again == start || try == maxMoves {
				return s, start, nil
			}
			continue
		}
		if err == error(errMoved) && try < maxMoves {
			continue
		}
		return span{}, 0, robocache.At(err, robocache.Where{"episode": d.eps.id(episode), "stream": c.key})
	}
}

// derive fills rows of a default column that the files do not have.
func (d *Dataset) derive(c *column, rows []robocache.Row, dst []byte) error {
	size := c.rowBytes
	for i, r := range rows {
		var v int64
		switch c.key {
		case "timestamp":
			putFloat(dst[i*size:], c.dtype, d.seconds(r.Index))
			continue
		case "frame_index":
			v = int64(r.Index)
		case "episode_index":
			v = d.eps.id(r.Episode)
		case "index":
			v = d.eps.from[r.Episode] + int64(r.Index)
		case "task_index":
			if len(d.info.Tasks) != 1 {
				return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"column": c.key}, Msg: "the column is missing, and there is more than one task"}
			}
			v = d.info.Tasks[0].Index
		}
		if c.dtype.Float() {
			putFloat(dst[i*size:], c.dtype, float64(v))
		} else if !putInt(dst[i*size:], c.dtype, v, false) {
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"column": c.key}, Want: "a value that fits " + c.dtype.String(), Got: fmt.Sprint(v)}
		}
	}
	return nil
}

// seconds is the timestamp of a row where none is stored: row / fps, as the recorder computes it.
func (d *Dataset) seconds(row int) float64 { return float64(row) / d.raw.fps.Float() }

// Times gives the timestamps of an episode's rows. Every stream of a LeRobot episode shares them.
func (d *Dataset) Times(ctx context.Context, episode int, key string) (out []int64, err error) {
	defer guard.Malformed("lerobot times", &err)
	if err := d.checkEpisode(episode); err != nil {
		return nil, err
	}
	if key != "" {
		if _, err := d.get(key); err != nil {
			return nil, err
		}
	}
	// The length is the metadata's claim: memory is taken as rows are found, not before.
	n := d.Len(episode)
	i, ok := d.byKey["timestamp"]
	if !ok || d.cols[i].src == derived {
		file, start := d.tab.fileOf(episode)
		f, err := d.tab.footer(ctx, file)
		if err != nil {
			return nil, err
		}
		if start+int64(n) > f.pq.Rows {
			return nil, d.tab.lengthError(f, episode, f.pq.Rows-start)
		}
		out = make([]int64, n)
		for k := range out {
			out[k] = d.raw.fps.Nanos(int64(k))
		}
		return out, nil
	}
	c := d.cols[i]
	out = make([]int64, 0, min(n, 1<<16))
	for len(out) < n {
		s, start, err := d.unitOf(ctx, &c, unitTimes, episode, len(out), c.timestamps(d.raw.fps, d.limit))
		if err != nil {
			return nil, err
		}
		at := start + int64(len(out)) - s.start
		timestamps := s.value.([]int64)[at:]
		out = append(out, timestamps[:min(len(timestamps), n-len(out))]...)
	}
	for k, t := range out {
		switch {
		case t == badTimestamp:
			return nil, d.badTime(ctx, episode, k, key, "a time", "NaN, infinity or a number beyond int64 nanoseconds")
		case k > 0 && t < out[k-1]:
			return nil, d.badTime(ctx, episode, k, key, fmt.Sprintf("at least %d ns, the time of the row before", out[k-1]), fmt.Sprintf("%d ns", t))
		}
	}
	return out, nil
}

func (d *Dataset) badTime(ctx context.Context, episode, row int, key, want, got string) error {
	if key == "" {
		key = "timestamp"
	}
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: d.inFile(ctx, episode, robocache.Where{"episode": d.eps.id(episode), "stream": key, "column": "timestamp", "index": row}), Want: want, Got: got}
}

// inFile adds the data file of an episode to a place.
func (d *Dataset) inFile(ctx context.Context, episode int, w robocache.Where) robocache.Where {
	file, _ := d.tab.fileOf(episode)
	if f, err := d.tab.footer(ctx, file); err == nil {
		w["file"] = f.name
	}
	return w
}

const badTimestamp = math.MinInt64

// stampNanos turns stored seconds into nanoseconds. What is row/fps rounded to float32, as the recorder stores it, is the time row/fps: a
// timestamp that float32 moved up by a part of a nanosecond would give "the last row at or before" the row before (L8).
func timestampNanos(sec float64, rate robocache.Rate) int64 {
	if f := float32(sec); float64(f) == sec {
		if row := math.Round(sec * rate.Float()); math.Abs(row) < 1<<40 && f == float32(row/rate.Float()) {
			return rate.Nanos(int64(row))
		}
	}
	ns := math.RoundToEven(sec * 1e9)
	if math.IsNaN(ns) || ns >= 1<<63 || ns <= -1<<63 {
		return badTimestamp
	}
	return int64(ns)
}

func leFloat64(b []byte, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(b[i*8:]))
}
